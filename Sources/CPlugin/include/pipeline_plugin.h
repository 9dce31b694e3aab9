// A stage of `pipeline` as a shared library: one file, one stage.
//
// A plugin exports one function, pipeline_plugin(), which describes it. The program opens only files that a job or its
// command line names ("plugins" of a job, --plugin); a plugin's code runs in the program's own process.
//
//   cc -shared -fPIC -O2 -o libgrain.so grain.c $(pkg-config --cflags --libs vips)
//
// Pictures are libvips images, so a plugin has to be built for the libvips that the program runs with: the same major
// and minor version. Include <vips/vips.h> before this file.
//
// Pixels
//   A picture has 3 bands (red, green, blue), or 4 with straight alpha, of 8 bits (UCHAR) or 16 bits (USHORT) a sample;
//   see "depth" in the spec. It is upright. Its colours are sRGB unless it carries an ICC profile. A mask as picture
//   has 1 band and comes only where the spec says "masks". A matte has 1 band of 8 bits and the sides of its picture:
//   255 where the subject is. Pictures and mattes that come in lie in memory, so they can be read as often as is needed
//   and by vips_image_get_data(). Frames of an animation come one by one.
//
// Who owns what
//   - What comes in (images, texts, structs) is lent until the function returns. Images must not be written to, neither
//     pixels nor metadata: other stages read them at the same time. To keep an image longer, g_object_ref() it.
//   - What a plugin hands back in PipelinePictures is one reference each, which the program takes over. The picture that
//     came in may be handed back as it is, with a reference of its own.
//   - An image that is handed back may be lazy: its pixels are computed after process() has returned 0, before the item
//     goes on, maybe by other threads; what they need must live as long as the image does. Metadata on it is not
//     looked at: the result gets that of the picture that came in.
//   - The texts and structs that PipelinePlugin points to stay valid and unchanged until the process ends.
//
// Threads
//   create() and destroy() are called once for each stage of a job that names the plugin, not at the same time as any
//   other call with their instance. process() is called by several threads at once with one instance: what belongs to
//   one picture is kept on the stack, and anything else that changes is guarded.
//
// libvips is started by the program. A plugin does not call vips_init(), vips_shutdown(), vips_concurrency_set() or
// vips_cache_set_max(), and does not change signal handlers. It never ends the process: exit() fails the picture, or
// the start, and _exit() would end the run without a word.
#ifndef PIPELINE_PLUGIN_H
#define PIPELINE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Raised when a plugin of before can no longer be called. Structs may grow at their end without that: `size` says how
// much of one there is.
#define PIPELINE_PLUGIN_ABI 1

typedef struct _VipsImage VipsImage;

// What went wrong, filled in by the plugin. All of it is 0 when it is handed over.
typedef struct PipelineError {
  // sizeof(PipelineError) of the program.
  size_t size;
  // One of PIPELINE_ERROR_….
  int kind;
  // Lower-case letters, digits and hyphens, for reports: "no-horizon". Empty for "plugin-failed".
  char code[64];
  // A sentence without a full stop, in UTF-8: what failed, and on what.
  char message[1024];
} PipelineError;

enum {
  // This picture cannot be worked on; others can.
  PIPELINE_ERROR_ITEM = 0,
  // Worth trying again in a later run.
  PIPELINE_ERROR_TEMPORARY = 1
};

// The settings of one stage of a job, which the program has checked against the spec.
typedef struct PipelineSettings {
  // sizeof(PipelineSettings) of the program.
  size_t size;
  // An object with every field that has a value or a default. Paths are absolute.
  const char *json;
  // A field's value without reading JSON; `otherwise` where it has none, or one of another type. A text lives as long
  // as the settings do. A boolean is read as 0 or 1.
  double (*number)(const struct PipelineSettings *settings, const char *name, double otherwise);
  const char *(*text)(const struct PipelineSettings *settings, const char *name, const char *otherwise);
  int (*boolean)(const struct PipelineSettings *settings, const char *name, int otherwise);
} PipelineSettings;

// The picture that process() is called for, and what can be said about it. The functions may be called until process()
// returns, from any thread.
typedef struct PipelineItem {
  // sizeof(PipelineItem) of the program.
  size_t size;
  // The input's path as the job found it, in UTF-8; bytes that are not are percent-escaped. For messages: the file
  // need not be there.
  const char *path;
  // Its place among all inputs of the job, from 0.
  uint64_t index;
  // Made from the path alone: the same for one picture in every run and on every machine. For what looks random.
  uint64_t seed;
  // Nonzero once nobody waits for the picture any more: its time is over, or its run is being stopped. Long work should
  // look now and then, and give up with any error.
  int (*cancelled)(const struct PipelineItem *item);
  // Puts a warning in the report: a code as in PipelineError, and a sentence. Of one call 20 warnings and notes are
  // taken, and 1,024 bytes of each text.
  void (*warn)(const struct PipelineItem *item, const char *code, const char *message);
  // Puts a fact in the report of the picture: a name, and a text.
  void (*note)(const struct PipelineItem *item, const char *name, const char *text);
} PipelineItem;

// A picture and what goes with it.
typedef struct PipelinePictures {
  // sizeof(PipelinePictures) of the program.
  size_t size;
  VipsImage *picture;
  // NULL where there is none. Handed back as NULL, the matte stays as it is, unless the spec says that the stage moves
  // pixels: then there is none any more.
  VipsImage *matte;
} PipelinePictures;

typedef struct PipelinePlugin {
  // PIPELINE_PLUGIN_ABI and sizeof(PipelinePlugin), as the plugin was built.
  uint32_t abi;
  uint32_t size;
  // VIPS_MAJOR_VERSION and VIPS_MINOR_VERSION, as the plugin was built.
  uint32_t vips_major;
  uint32_t vips_minor;
  // A JSON object in UTF-8:
  //   name       with a namespace: "acme.grain"
  //   version    a whole number, raised whenever the same settings give other results; 1 where it is left out
  //   summary    one sentence
  //   notes      further paragraphs, a list of texts
  //   fields     a list of objects:
  //     name, help
  //     type       "boolean", "integer", "number", "text", "choice", "color" or "path"
  //     default    the value when the job does not name the field
  //     required   true for a field that the job has to name
  //     min, max   of a number
  //     unit       of a number, such as "pixels"
  //     choices    of a choice: a list of words, or of objects with "name" and "help"
  //   examples   a list of objects, each one stage of a job file
  //   accepts    what the picture must have, a list: "alpha" (it was cut out), "matte"
  //   produces   what it has afterwards besides: "alpha", "matte"
  //   removes    what it may no longer have: "alpha", "matte"
  //   moves      true where pixels do not all keep their places, or the sides change; the matte that goes with the
  //              result then has to be handed back too
  //   masks      true where pictures that are masks, of 1 band, are taken; else they pass the stage unchanged
  //   depth      8 where samples of 16 bits cannot be taken: they are narrowed before
  //   memory     bytes that the work takes for each pixel of the picture, besides result and picture
  const char *spec;
  // Makes the stage ready to work and answers what process() is called with; NULL with an error filled in where that
  // cannot be.
  void *(*create)(const PipelineSettings *settings, PipelineError *error);
  // Works on one picture. Answers 0 with the result in `out`, whose pointers are NULL before, or something else with an
  // error filled in.
  int (*process)(void *instance, const PipelineItem *item, const PipelinePictures *in, PipelinePictures *out,
    PipelineError *error);
  // Called once when no work is left. May be NULL.
  void (*destroy)(void *instance);
} PipelinePlugin;

#define PIPELINE_PLUGIN_EXPORT __attribute__((visibility("default")))

// What a plugin exports.
PIPELINE_PLUGIN_EXPORT const PipelinePlugin *pipeline_plugin(void);

#ifdef __cplusplus
}
#endif

#endif
