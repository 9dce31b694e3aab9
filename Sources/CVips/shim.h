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

// Drawings. The source is memory, so there is no place that names inside the drawing could be relative to.
CVIPS int cvips_load_svg(VipsSource *source, VipsImage **out, double dpi, double scale) {
  return vips_svgload_source(source, out, "access", VIPS_ACCESS_SEQUENTIAL, "fail_on", VIPS_FAIL_ON_ERROR,
    "dpi", dpi, "scale", scale, NULL);
}
CVIPS int cvips_load_pdf(VipsSource *source, VipsImage **out, int page, int n, double dpi, double scale) {
  return vips_pdfload_source(source, out, "access", VIPS_ACCESS_SEQUENTIAL, "fail_on", VIPS_FAIL_ON_ERROR,
    "page", page, "n", n, "dpi", dpi, "scale", scale, NULL);
}

// Savers to memory, by nickname. An operation is made, its arguments are set by name, and it is run once.

CVIPS VipsOperation *cvips_saver_new(const char *nickname, VipsImage *in) {
  VipsOperation *saver = vips_operation_new(nickname);
  if (saver) g_object_set(saver, "in", in, NULL);
  return saver;
}
// Sets a boolean, integer, enumerated or fractional argument to a number; -1 where there is no such argument.
CVIPS int cvips_saver_set(VipsOperation *saver, const char *name, double value) {
  GParamSpec *spec = g_object_class_find_property(G_OBJECT_GET_CLASS(saver), name);
  if (!spec) return -1;
  GType kind = G_TYPE_FUNDAMENTAL(G_PARAM_SPEC_VALUE_TYPE(spec));
  if (kind == G_TYPE_DOUBLE) g_object_set(saver, name, value, NULL);
  else if (kind == G_TYPE_INT || kind == G_TYPE_BOOLEAN || kind == G_TYPE_ENUM || kind == G_TYPE_FLAGS)
    g_object_set(saver, name, (int)value, NULL);
  else return -1;
  return 0;
}
// Runs the saver and lets go of it; the memory is the caller's, to be freed with g_free.
CVIPS int cvips_saver_run(VipsOperation *saver, void **bytes, size_t *length) {
  int status = vips_cache_operation_buildp(&saver);
  if (status == 0) {
    VipsArea *area = NULL;
    g_object_get(saver, "buffer", &area, NULL);
    if (area) {
      *bytes = area->data;
      *length = area->length;
      // The memory leaves the area, as in libvips' own functions.
      area->free_fn = NULL;
      vips_area_unref(area);
    }
  }
  vips_object_unref_outputs(VIPS_OBJECT(saver));
  g_object_unref(saver);
  return status;
}

// What arguments a saver takes.

typedef enum { CVIPS_BOOLEAN, CVIPS_INTEGER, CVIPS_NUMBER, CVIPS_CHOICE, CVIPS_FLAGS } CVipsArgumentKind;
typedef struct {
  const char *name;
  const char *help;
  CVipsArgumentKind kind;
  double least, most, usual;
  GType type;
} CVipsArgument;
typedef struct {
  CVipsArgument *list;
  int count, most;
} CVipsArgumentList;

CVIPS void *cvips_note_argument(VipsObject *object, GParamSpec *spec, VipsArgumentClass *argument,
  VipsArgumentInstance *instance, void *a, void *b) {
  (void)object; (void)instance; (void)b;
  CVipsArgumentList *list = (CVipsArgumentList *)a;
  VipsArgumentFlags flags = argument->flags;
  if (!(flags & VIPS_ARGUMENT_INPUT) || !(flags & VIPS_ARGUMENT_CONSTRUCT)) return NULL;
  if ((flags & VIPS_ARGUMENT_REQUIRED) || (flags & VIPS_ARGUMENT_DEPRECATED)) return NULL;
  if (list->count == list->most) return NULL;
  CVipsArgument item = {.name = g_param_spec_get_name(spec), .help = g_param_spec_get_blurb(spec),
    .type = G_PARAM_SPEC_VALUE_TYPE(spec)};
  if (G_IS_PARAM_SPEC_BOOLEAN(spec)) {
    item.kind = CVIPS_BOOLEAN;
    item.most = 1;
    item.usual = G_PARAM_SPEC_BOOLEAN(spec)->default_value;
  } else if (G_IS_PARAM_SPEC_INT(spec)) {
    item.kind = CVIPS_INTEGER;
    item.least = G_PARAM_SPEC_INT(spec)->minimum;
    item.most = G_PARAM_SPEC_INT(spec)->maximum;
    item.usual = G_PARAM_SPEC_INT(spec)->default_value;
  } else if (G_IS_PARAM_SPEC_DOUBLE(spec)) {
    item.kind = CVIPS_NUMBER;
    item.least = G_PARAM_SPEC_DOUBLE(spec)->minimum;
    item.most = G_PARAM_SPEC_DOUBLE(spec)->maximum;
    item.usual = G_PARAM_SPEC_DOUBLE(spec)->default_value;
  } else if (G_IS_PARAM_SPEC_ENUM(spec)) {
    item.kind = CVIPS_CHOICE;
    item.usual = G_PARAM_SPEC_ENUM(spec)->default_value;
  } else if (G_IS_PARAM_SPEC_FLAGS(spec)) {
    item.kind = CVIPS_FLAGS;
    item.usual = G_PARAM_SPEC_FLAGS(spec)->default_value;
  } else return NULL;
  list->list[list->count++] = item;
  return NULL;
}
// Fills `out` with up to `most` optional arguments that take a number or a name; how many there are.
CVIPS int cvips_saver_arguments(const char *nickname, CVipsArgument *out, int most) {
  VipsOperation *saver = vips_operation_new(nickname);
  if (!saver) return 0;
  CVipsArgumentList list = {.list = out, .count = 0, .most = most};
  vips_argument_map(VIPS_OBJECT(saver), (VipsArgumentMapFn)cvips_note_argument, &list, NULL);
  g_object_unref(saver);
  return list.count;
}
// The name and value at a place of an enumeration or a set of flags; NULL after the last.
CVIPS const char *cvips_name_at(GType type, int index, int *value) {
  gpointer any = g_type_class_ref(type);
  const char *name = NULL;
  if (G_TYPE_IS_ENUM(type) && index < (int)G_ENUM_CLASS(any)->n_values) {
    name = G_ENUM_CLASS(any)->values[index].value_nick;
    *value = G_ENUM_CLASS(any)->values[index].value;
  } else if (G_TYPE_IS_FLAGS(type) && index < (int)G_FLAGS_CLASS(any)->n_values) {
    name = G_FLAGS_CLASS(any)->values[index].value_nick;
    *value = (int)G_FLAGS_CLASS(any)->values[index].value;
  }
  // Types of libvips are never unloaded, so the name outlives this reference.
  g_type_class_unref(any);
  return name;
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
// Three bands out of three: each a sum of all, by the rows of `matrix`.
CVIPS int cvips_recomb3(VipsImage *in, VipsImage **out, const double matrix[9]) {
  VipsImage *weights = vips_image_new_matrix_from_array(3, 3, matrix, 9);
  if (!weights) return -1;
  int status = vips_recomb(in, out, weights, NULL);
  g_object_unref(weights);
  return status;
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
CVIPS int cvips_gaussblur(VipsImage *in, VipsImage **out, double sigma, VipsPrecision precision) {
  return vips_gaussblur(in, out, sigma, "min_ampl", 0.01, "precision", precision, NULL);
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
// The same pixels as an image of its own, which can be described otherwise; NULL unless they lie in memory.
CVIPS VipsImage *cvips_memory_view(VipsImage *in) {
  if (in->dtype != VIPS_IMAGE_SETBUF && in->dtype != VIPS_IMAGE_SETBUF_FOREIGN) return NULL;
  VipsImage *out = vips_image_new_from_memory(in->data, VIPS_IMAGE_SIZEOF_IMAGE(in), in->Xsize, in->Ysize, in->Bands,
    in->BandFmt);
  if (!out) return NULL;
  out->Type = in->Type;
  out->Xres = in->Xres;
  out->Yres = in->Yres;
  cvips_copy_metadata(out, in);
  g_object_set_data_full(G_OBJECT(out), "cvips-pixels", g_object_ref(in), g_object_unref);
  return out;
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
