#pragma once
// Text as coverage through Pango and Cairo, with fonts that were chosen before and no others unless asked for: Pango
// alone puts another font, or boxes, where one is missing.
#include <cairo-ft.h>
#include <fontconfig/fontconfig.h>
#include <fontconfig/fcfreetype.h>
#include <math.h>
#include <pango/pangocairo.h>
#include <pango/pangofc-font.h>
#include <pango/pangofc-fontmap.h>
#include <stdlib.h>
#include <string.h>

#define CPANGO static inline __attribute__((unused))

// The fonts that text may use, and the description of the one to begin with.
typedef struct {
  FcConfig *fonts;
  PangoFontDescription *description;
} CPangoFont;

CPANGO void cpango_font_free(CPangoFont font) {
  if (font.description) pango_font_description_free(font.description);
  if (font.fonts) FcConfigDestroy(font.fonts);
}

// Takes the face of a file: `index` as fontconfig counts faces, -1 for the first. 0, or -1 where it is no font file.
CPANGO int cpango_font_open(const char *path, int index, gboolean fallback, CPangoFont *out) {
  CPangoFont font = {fallback ? FcInitLoadConfigAndFonts() : FcConfigCreate(), NULL};
  if (!font.fonts) return -1;
  // A font outlined in pixels of one size has no other sizes; only outlines are taken.
  int count = 0;
  FcFontSet *faces = FcFontSetCreate();
  FcFreeTypeQueryAll((const FcChar8 *)path, (unsigned)-1, NULL, &count, faces);
  for (int i = 0; i < faces->nfont && !font.description; i++) {
    FcPattern *face = faces->fonts[i];
    int found = 0;
    FcBool outline = FcFalse, variable = FcFalse;
    FcPatternGetInteger(face, FC_INDEX, 0, &found);
    FcPatternGetBool(face, FC_OUTLINE, 0, &outline);
    FcPatternGetBool(face, FC_VARIABLE, 0, &variable);
    if (!outline || variable || (index >= 0 && found != index)) continue;
    font.description = pango_fc_font_description_from_pattern(face, FALSE);
  }
  FcFontSetDestroy(faces);
  if (!font.description || !FcConfigAppFontAddFile(font.fonts, (const FcChar8 *)path)) {
    cpango_font_free(font);
    return -1;
  }
  *out = font;
  return 0;
}

typedef struct {
  // Where the face is; freed with free().
  char *path;
  int index;
  // The family that was found, freed with free(), and whether it is the one asked for.
  char *family;
  gboolean is_asked;
  // As fontconfig counts: FC_WEIGHT_…, FC_SLANT_….
  int weight;
  int slant;
} CPangoMatch;

CPANGO void cpango_match_free(CPangoMatch match) {
  free(match.path);
  free(match.family);
}

// Looks for an installed face. 0, or -1 where there are no fonts at all.
CPANGO int cpango_font_match(const char *family, gboolean bold, gboolean italic, CPangoMatch *out) {
  FcPattern *wanted = FcPatternCreate();
  FcPatternAddString(wanted, FC_FAMILY, (const FcChar8 *)family);
  FcPatternAddInteger(wanted, FC_WEIGHT, bold ? FC_WEIGHT_BOLD : FC_WEIGHT_REGULAR);
  FcPatternAddInteger(wanted, FC_SLANT, italic ? FC_SLANT_ITALIC : FC_SLANT_ROMAN);
  FcPatternAddBool(wanted, FC_OUTLINE, FcTrue);
  FcConfigSubstitute(NULL, wanted, FcMatchPattern);
  FcDefaultSubstitute(wanted);
  FcResult result = FcResultNoMatch;
  FcPattern *found = FcFontMatch(NULL, wanted, &result);
  FcPatternDestroy(wanted);
  FcChar8 *path = NULL, *name = NULL;
  if (!found) return -1;
  if (FcPatternGetString(found, FC_FILE, 0, &path) != FcResultMatch ||
      FcPatternGetString(found, FC_FAMILY, 0, &name) != FcResultMatch) {
    FcPatternDestroy(found);
    return -1;
  }
  CPangoMatch match = {strdup((const char *)path), 0, strdup((const char *)name), FALSE, FC_WEIGHT_REGULAR,
    FC_SLANT_ROMAN};
  FcPatternGetInteger(found, FC_INDEX, 0, &match.index);
  FcPatternGetInteger(found, FC_SLANT, 0, &match.slant);
  double weight = FC_WEIGHT_REGULAR;
  if (FcPatternGetDouble(found, FC_WEIGHT, 0, &weight) == FcResultMatch) match.weight = (int)weight;
  for (int i = 0; FcPatternGetString(found, FC_FAMILY, i, &name) == FcResultMatch; i++)
    match.is_asked = match.is_asked || FcStrCmpIgnoreCase(name, (const FcChar8 *)family) == 0;
  FcPatternDestroy(found);
  *out = match;
  return 0;
}

// The installed families, each ended by a newline; freed with free().
CPANGO char *cpango_families(void) {
  FcPattern *any = FcPatternCreate();
  FcObjectSet *wanted = FcObjectSetBuild(FC_FAMILY, NULL);
  FcFontSet *fonts = FcFontList(NULL, any, wanted);
  GString *text = g_string_new(NULL);
  for (int i = 0; fonts && i < fonts->nfont; i++) {
    FcChar8 *name = NULL;
    for (int j = 0; FcPatternGetString(fonts->fonts[i], FC_FAMILY, j, &name) == FcResultMatch; j++)
      g_string_append_printf(text, "%s\n", (const char *)name);
  }
  if (fonts) FcFontSetDestroy(fonts);
  FcObjectSetDestroy(wanted);
  FcPatternDestroy(any);
  char *copy = strdup(text->str);
  g_string_free(text, TRUE);
  return copy;
}

// A laid-out text and what it was made with.
typedef struct {
  PangoFontMap *map;
  PangoContext *context;
  PangoLayout *layout;
} CPangoText;

CPANGO void cpango_text_free(CPangoText text) {
  g_object_unref(text.layout);
  g_object_unref(text.context);
  g_object_unref(text.map);
}

// Lays text out. `size` and `width` in pixels; width 0 for no wrapping. Outlines are neither hinted nor put on whole
// pixels, so that all sizes look alike and machines agree.
CPANGO CPangoText cpango_text(CPangoFont font, const char *utf8, int length, double size, double width,
  PangoAlignment align) {
  CPangoText text;
  text.map = pango_cairo_font_map_new_for_font_type(CAIRO_FONT_TYPE_FT);
  pango_fc_font_map_set_config(PANGO_FC_FONT_MAP(text.map), font.fonts);
  text.context = pango_font_map_create_context(text.map);
  cairo_font_options_t *options = cairo_font_options_create();
  cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
  cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
  cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
  pango_cairo_context_set_font_options(text.context, options);
  cairo_font_options_destroy(options);
  pango_context_set_round_glyph_positions(text.context, FALSE);
  text.layout = pango_layout_new(text.context);
  PangoFontDescription *description = pango_font_description_copy(font.description);
  pango_font_description_set_absolute_size(description, size * PANGO_SCALE);
  pango_layout_set_font_description(text.layout, description);
  pango_font_description_free(description);
  pango_layout_set_text(text.layout, utf8, length);
  pango_layout_set_alignment(text.layout, align);
  if (width > 0) {
    pango_layout_set_width(text.layout, (int)(width * PANGO_SCALE));
    pango_layout_set_wrap(text.layout, PANGO_WRAP_WORD_CHAR);
  }
  return text;
}

CPANGO int cpango_text_missing(CPangoText text) { return pango_layout_get_unknown_glyphs_count(text.layout); }

// Whether part of the text would come from a font that brings its own colours.
CPANGO gboolean cpango_text_is_coloured(CPangoText text) {
  gboolean coloured = FALSE;
  PangoLayoutIter *runs = pango_layout_get_iter(text.layout);
  do {
    PangoLayoutRun *run = pango_layout_iter_get_run_readonly(runs);
    if (!run || !PANGO_IS_FC_FONT(run->item->analysis.font)) continue;
    FcBool colour = FcFalse;
    FcPatternGetBool(pango_fc_font_get_pattern(PANGO_FC_FONT(run->item->analysis.font)), FC_COLOR, 0, &colour);
    coloured = coloured || colour;
  } while (pango_layout_iter_next_run(runs));
  pango_layout_iter_free(runs);
  return coloured;
}

// The box of the ink in pixels, the text turned clockwise by `angle` radians.
typedef struct {
  double left, top, right, bottom;
} CPangoBox;

CPANGO CPangoBox cpango_text_box(CPangoText text, double angle) {
  PangoRectangle ink;
  pango_layout_get_extents(text.layout, &ink, NULL);
  CPangoBox box = {INFINITY, INFINITY, -INFINITY, -INFINITY};
  if (ink.width <= 0 || ink.height <= 0) return (CPangoBox){0, 0, 0, 0};
  for (int i = 0; i < 4; i++) {
    double x = (ink.x + (i & 1 ? ink.width : 0)) / (double)PANGO_SCALE;
    double y = (ink.y + (i & 2 ? ink.height : 0)) / (double)PANGO_SCALE;
    double u = x * cos(angle) - y * sin(angle), v = x * sin(angle) + y * cos(angle);
    box.left = fmin(box.left, u);
    box.right = fmax(box.right, u);
    box.top = fmin(box.top, v);
    box.bottom = fmax(box.bottom, v);
  }
  return box;
}

// Draws coverage, a byte a pixel, into `to` of width × height, the text's origin at x, y. 0, or -1 where Cairo fails.
CPANGO int cpango_text_draw(CPangoText text, double angle, double x, double y, int width, int height,
  unsigned char *to) {
  cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_A8, width, height);
  cairo_t *cairo = cairo_create(surface);
  cairo_translate(cairo, x, y);
  cairo_rotate(cairo, angle);
  pango_cairo_update_layout(cairo, text.layout);
  pango_cairo_show_layout(cairo, text.layout);
  int status = cairo_status(cairo);
  cairo_destroy(cairo);
  cairo_surface_flush(surface);
  if (status == CAIRO_STATUS_SUCCESS) status = cairo_surface_status(surface);
  if (status == CAIRO_STATUS_SUCCESS) {
    const unsigned char *rows = cairo_image_surface_get_data(surface);
    int stride = cairo_image_surface_get_stride(surface);
    for (int row = 0; row < height; row++) memcpy(to + (size_t)row * width, rows + (size_t)row * stride, width);
  }
  cairo_surface_destroy(surface);
  return status == CAIRO_STATUS_SUCCESS ? 0 : -1;
}
