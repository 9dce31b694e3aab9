#pragma once
// libvips' C interface is variadic and full of macros, which Swift does not import. Everything used is wrapped here,
// by name, with the arguments this program uses. Functions return 0, or -1 with text in libvips' error buffer.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vips/vips.h>
#include <vips/vector.h>

#define CVIPS static inline __attribute__((unused))

CVIPS int cvips_init(void) { return vips_init("pipeline"); }

CVIPS void cvips_unref(void *object) { g_object_unref(object); }
CVIPS VipsImage *cvips_ref(VipsImage *image) { g_object_ref(image); return image; }

// Bytes.

CVIPS VipsBlob *cvips_blob_adopt(void *data, size_t length) {
  return vips_blob_new((VipsCallbackFn)vips_area_free_cb, data, length);
}
CVIPS void cvips_blob_unref(VipsBlob *blob) { vips_area_unref((VipsArea *)blob); }

// Loaders, by nickname. Sequential access; damaged pixels are errors, not grey.

CVIPS int cvips_load(const char *loader, VipsSource *source, VipsImage **out, VipsFailOn fail_on) {
  return vips_call(loader, source, out, "access", VIPS_ACCESS_SEQUENTIAL, "fail_on", fail_on, NULL);
}
CVIPS int cvips_load_jpeg(VipsSource *source, VipsImage **out, int shrink, VipsFailOn fail_on) {
  return vips_jpegload_source(source, out, "access", VIPS_ACCESS_SEQUENTIAL, "fail_on", fail_on,
    "shrink", shrink, NULL);
}
CVIPS int cvips_load_webp(VipsSource *source, VipsImage **out, double scale, VipsFailOn fail_on) {
  return vips_webpload_source(source, out, "access", VIPS_ACCESS_SEQUENTIAL, "fail_on", fail_on,
    "scale", scale, NULL);
}
// All frames, one below the other.
CVIPS int cvips_load_frames(const char *loader, VipsSource *source, VipsImage **out, VipsFailOn fail_on) {
  return vips_call(loader, source, out, "access", VIPS_ACCESS_SEQUENTIAL, "fail_on", fail_on, "n", -1, NULL);
}

// Savers to memory.

CVIPS int cvips_save_jpeg(VipsImage *in, void **bytes, size_t *length, int quality, gboolean progressive,
  int subsample, gboolean optimise, gboolean strip) {
  return vips_jpegsave_buffer(in, bytes, length, "Q", quality, "interlace", progressive, "subsample_mode", subsample,
    "optimize_coding", optimise, "strip", strip, NULL);
}
CVIPS int cvips_save_png(VipsImage *in, void **bytes, size_t *length, int compression, gboolean palette, int bitdepth,
  gboolean strip) {
  if (palette)
    return vips_pngsave_buffer(in, bytes, length, "compression", compression, "palette", TRUE, "bitdepth", bitdepth,
      "strip", strip, NULL);
  // libvips filters nothing unless told to. On photographs "up" at a low level is both smaller and faster than no filter
  // at any level.
  return vips_pngsave_buffer(in, bytes, length, "compression", compression, "filter", VIPS_FOREIGN_PNG_FILTER_UP,
    "strip", strip, NULL);
}
CVIPS int cvips_save_webp(VipsImage *in, void **bytes, size_t *length, int quality, gboolean lossless, int effort,
  int alpha_quality, gboolean strip) {
  return vips_webpsave_buffer(in, bytes, length, "Q", quality, "lossless", lossless, "effort", effort,
    "alpha_q", alpha_quality, "strip", strip, NULL);
}
CVIPS int cvips_save_avif(VipsImage *in, void **bytes, size_t *length, int quality, int effort, gboolean strip) {
  return vips_heifsave_buffer(in, bytes, length, "Q", quality, "effort", effort, "bitdepth", 8,
    "compression", VIPS_FOREIGN_HEIF_COMPRESSION_AV1, "strip", strip, NULL);
}
CVIPS int cvips_save_tiff(VipsImage *in, void **bytes, size_t *length, int compression, int quality, gboolean strip) {
  return vips_tiffsave_buffer(in, bytes, length, "compression", compression, "Q", quality,
    "predictor", VIPS_FOREIGN_TIFF_PREDICTOR_HORIZONTAL, "strip", strip, NULL);
}

// Operations.

CVIPS int cvips_copy(VipsImage *in, VipsImage **out) { return vips_copy(in, out, NULL); }
CVIPS int cvips_copy_as(VipsImage *in, VipsImage **out, VipsInterpretation interpretation) {
  return vips_copy(in, out, "interpretation", interpretation, NULL);
}
CVIPS int cvips_resize(VipsImage *in, VipsImage **out, double hscale, double vscale, VipsKernel kernel) {
  return vips_resize(in, out, hscale, "vscale", vscale, "kernel", kernel, NULL);
}
CVIPS int cvips_extract_area(VipsImage *in, VipsImage **out, int x, int y, int width, int height) {
  return vips_extract_area(in, out, x, y, width, height, NULL);
}
CVIPS int cvips_extract_band(VipsImage *in, VipsImage **out, int band, int n) {
  return vips_extract_band(in, out, band, "n", n, NULL);
}
CVIPS int cvips_bandjoin2(VipsImage *a, VipsImage *b, VipsImage **out) { return vips_bandjoin2(a, b, out, NULL); }
CVIPS int cvips_bandjoin_const1(VipsImage *in, VipsImage **out, double c) {
  return vips_bandjoin_const1(in, out, c, NULL);
}
CVIPS int cvips_embed_copy(VipsImage *in, VipsImage **out, int x, int y, int width, int height) {
  return vips_embed(in, out, x, y, width, height, "extend", VIPS_EXTEND_COPY, NULL);
}
CVIPS int cvips_embed_mirror(VipsImage *in, VipsImage **out, int x, int y, int width, int height) {
  return vips_embed(in, out, x, y, width, height, "extend", VIPS_EXTEND_MIRROR, NULL);
}
CVIPS int cvips_insert(VipsImage *in, VipsImage *part, VipsImage **out, int x, int y) {
  return vips_insert(in, part, out, x, y, NULL);
}
CVIPS int cvips_replicate(VipsImage *in, VipsImage **out, int across, int down) {
  return vips_replicate(in, out, across, down, NULL);
}
// The pixels of `width` × `height` from 0, 0, where the input's point p comes to lie on matrix · p + offset. What the
// input does not cover is 0, or goes on as its edge for the width of the interpolator where `extend` is so.
CVIPS int cvips_affine(VipsImage *in, VipsImage **out, const double matrix[4], const double offset[2], int width,
  int height, const char *interpolator, VipsExtend extend) {
  int area[4] = {0, 0, width, height};
  double nothing[1] = {0};
  VipsInterpolate *interpolate = vips_interpolate_new(interpolator);
  if (!interpolate) return -1;
  VipsArrayInt *oarea = vips_array_int_new(area, 4);
  VipsArrayDouble *background = vips_array_double_new(nothing, 1);
  int status = vips_affine(in, out, matrix[0], matrix[1], matrix[2], matrix[3], "interpolate", interpolate,
    "oarea", oarea, "odx", offset[0], "ody", offset[1], "extend", extend, "background", background,
    "premultiplied", TRUE, NULL);
  vips_area_unref((VipsArea *)oarea);
  vips_area_unref((VipsArea *)background);
  g_object_unref(interpolate);
  return status;
}
CVIPS int cvips_embed_background(VipsImage *in, VipsImage **out, int x, int y, int width, int height,
  const double *background, int n) {
  VipsArrayDouble *array = vips_array_double_new(background, n);
  int status = vips_embed(in, out, x, y, width, height, "extend", VIPS_EXTEND_BACKGROUND, "background", array, NULL);
  vips_area_unref((VipsArea *)array);
  return status;
}
CVIPS int cvips_flatten(VipsImage *in, VipsImage **out, double r, double g, double b) {
  double colour[3] = {r, g, b};
  VipsArrayDouble *array = vips_array_double_new(colour, 3);
  int status = vips_flatten(in, out, "background", array, NULL);
  vips_area_unref((VipsArea *)array);
  return status;
}
CVIPS int cvips_rot(VipsImage *in, VipsImage **out, VipsAngle angle) { return vips_rot(in, out, angle, NULL); }
CVIPS int cvips_flip(VipsImage *in, VipsImage **out, VipsDirection direction) {
  return vips_flip(in, out, direction, NULL);
}
CVIPS int cvips_cast(VipsImage *in, VipsImage **out, VipsBandFormat format, gboolean shift) {
  return vips_cast(in, out, format, "shift", shift, NULL);
}
CVIPS int cvips_linear1(VipsImage *in, VipsImage **out, double a, double b) {
  return vips_linear1(in, out, a, b, NULL);
}
CVIPS int cvips_premultiply(VipsImage *in, VipsImage **out, double max_alpha) {
  return vips_premultiply(in, out, "max_alpha", max_alpha, NULL);
}
CVIPS int cvips_unpremultiply(VipsImage *in, VipsImage **out, double max_alpha, int band) {
  return vips_unpremultiply(in, out, "max_alpha", max_alpha, "alpha_band", band, NULL);
}
CVIPS int cvips_multiply(VipsImage *a, VipsImage *b, VipsImage **out) { return vips_multiply(a, b, out, NULL); }
CVIPS int cvips_divide(VipsImage *a, VipsImage *b, VipsImage **out) { return vips_divide(a, b, out, NULL); }
CVIPS int cvips_subtract(VipsImage *a, VipsImage *b, VipsImage **out) { return vips_subtract(a, b, out, NULL); }
CVIPS int cvips_add(VipsImage *a, VipsImage *b, VipsImage **out) { return vips_add(a, b, out, NULL); }
// Images one below the other, all of one size.
CVIPS int cvips_stack(VipsImage **images, VipsImage **out, int n) {
  return vips_arrayjoin(images, out, n, "across", 1, NULL);
}
CVIPS int cvips_more_const1(VipsImage *in, VipsImage **out, double c) { return vips_more_const1(in, out, c, NULL); }
CVIPS int cvips_ifthenelse(VipsImage *condition, VipsImage *a, VipsImage *b, VipsImage **out, gboolean blend) {
  return vips_ifthenelse(condition, a, b, out, "blend", blend, NULL);
}
CVIPS int cvips_min(VipsImage *in, double *out) { return vips_min(in, out, NULL); }
CVIPS int cvips_max(VipsImage *in, double *out) { return vips_max(in, out, NULL); }
CVIPS int cvips_gaussblur(VipsImage *in, VipsImage **out, double sigma, VipsPrecision precision) {
  return vips_gaussblur(in, out, sigma, "min_ampl", 0.01, "precision", precision, NULL);
}
CVIPS int cvips_sharpen(VipsImage *in, VipsImage **out, double sigma) {
  return vips_sharpen(in, out, "sigma", sigma, NULL);
}
CVIPS int cvips_sharpen_edges(VipsImage *in, VipsImage **out, double sigma, double threshold, double lighten,
  double darken, double flat, double edges) {
  return vips_sharpen(in, out, "sigma", sigma, "x1", threshold, "y2", lighten, "y3", darken, "m1", flat, "m2", edges,
    NULL);
}
CVIPS int cvips_smartcrop(VipsImage *in, VipsImage **out, int width, int height, VipsInteresting interesting) {
  return vips_smartcrop(in, out, width, height, "interesting", interesting, NULL);
}
CVIPS int cvips_colourspace(VipsImage *in, VipsImage **out, VipsInterpretation to, VipsInterpretation from) {
  return vips_colourspace(in, out, to, "source_space", from, NULL);
}
// From the embedded profile, or from the built-in one named `input` where that is not NULL, to a built-in one.
CVIPS int cvips_icc_transform(VipsImage *in, VipsImage **out, const char *input, const char *output,
  VipsIntent intent, int depth) {
  if (input)
    return vips_icc_transform(in, out, output, "input_profile", input, "intent", intent,
      "black_point_compensation", TRUE, "depth", depth, NULL);
  return vips_icc_transform(in, out, output, "embedded", TRUE, "intent", intent,
    "black_point_compensation", TRUE, "depth", depth, NULL);
}
// To the connection space, from the embedded profile, or from the built-in one where `input` is not NULL.
CVIPS int cvips_icc_import(VipsImage *in, VipsImage **out, const char *input, VipsPCS pcs) {
  if (input)
    return vips_icc_import(in, out, "input_profile", input, "pcs", pcs, "intent", VIPS_INTENT_RELATIVE,
      "black_point_compensation", TRUE, NULL);
  return vips_icc_import(in, out, "embedded", TRUE, "pcs", pcs, "intent", VIPS_INTENT_RELATIVE,
    "black_point_compensation", TRUE, NULL);
}
// From the connection space to the profile that the image carries.
CVIPS int cvips_icc_export(VipsImage *in, VipsImage **out, VipsPCS pcs, int depth) {
  return vips_icc_export(in, out, "pcs", pcs, "intent", VIPS_INTENT_RELATIVE, "black_point_compensation", TRUE,
    "depth", depth, NULL);
}
CVIPS int cvips_black(VipsImage **out, int width, int height, int bands) {
  return vips_black(out, width, height, "bands", bands, NULL);
}

// Metadata.

CVIPS gboolean cvips_has(VipsImage *image, const char *name) { return vips_image_get_typeof(image, name) != 0; }
CVIPS void cvips_remove_metadata(VipsImage *image) {
  char **names = vips_image_get_fields(image);
  for (int i = 0; names && names[i]; i++) vips_image_remove(image, names[i]);
  g_strfreev(names);
}
CVIPS void cvips_copy_field(VipsImage *to, VipsImage *from, const char *name) {
  GValue value = G_VALUE_INIT;
  if (vips_image_get(from, name, &value) == 0) {
    vips_image_set(to, name, &value);
    g_value_unset(&value);
  }
}
// Copies what `from` carries beside its pixels' own description (sides, bands, format, resolution).
CVIPS void cvips_copy_metadata(VipsImage *to, VipsImage *from) {
  static const char *own[] = {"width", "height", "bands", "format", "coding", "interpretation", "xoffset", "yoffset",
    "xres", "yres", "filename", NULL};
  char **names = vips_image_get_fields(from);
  for (int i = 0; names && names[i]; i++) {
    gboolean skip = FALSE;
    for (int j = 0; own[j]; j++) skip = skip || strcmp(own[j], names[i]) == 0;
    if (!skip) cvips_copy_field(to, from, names[i]);
  }
  g_strfreev(names);
}

// Files.

// Opens a file for reading without waiting on pipes. The descriptor, or -errno.
CVIPS int cvips_open(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  return fd < 0 ? -errno : fd;
}
// The size of a regular file; -errno, or -EINVAL where it is not a regular file.
CVIPS long long cvips_file_size(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return -errno;
  return S_ISREG(info.st_mode) ? (long long)info.st_size : -EINVAL;
}
// Reads up to `length` bytes, retrying where interrupted. Bytes read, or -errno.
CVIPS long long cvips_read(int fd, void *to, size_t length) {
  size_t done = 0;
  while (done < length) {
    ssize_t n = read(fd, (char *)to + done, length - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -errno;
    if (n == 0) break;
    done += (size_t)n;
  }
  return (long long)done;
}
CVIPS int cvips_rewind(int fd) { return lseek(fd, 0, SEEK_SET) < 0 ? -errno : 0; }
CVIPS int cvips_close(int fd) { return close(fd); }
