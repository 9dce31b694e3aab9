// Plugins for the tests: one that is good, and others that are each wrong in one way, chosen by -DFAULT_…. A program
// that looks closely enough finds each on the one line that is about it.
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <vips/vips.h>

#include "pipeline_plugin.h"

#ifndef NAME
#define NAME "test.plugin"
#endif
#ifndef FACTS
#define FACTS ""
#endif
#ifndef TABLE
#define TABLE ""
#endif
#ifndef SPEC
#define SPEC \
  "{ \"name\": \"" NAME "\", \"summary\": \"Makes pictures darker.\"," \
  "  \"fields\": [" \
  "    { \"name\": \"share\", \"type\": \"number\", \"min\": 0, \"max\": 1, \"default\": 0.75, \"help\": \"what is left of the light\" }," \
  "    { \"name\": \"how\", \"type\": \"choice\", \"choices\": [\"plain\", { \"name\": \"none\", \"help\": \"nothing is done\" }]," \
  "      \"default\": \"plain\", \"help\": \"what is done to the picture\" }," \
  "    { \"name\": \"times\", \"type\": \"integer\", \"min\": 1, \"max\": 9, \"default\": 1, \"help\": \"how often it is done\" }," \
  "    { \"name\": \"spoken\", \"type\": \"boolean\", \"default\": false, \"help\": \"whether it says what it has done\" }," \
  "    { \"name\": \"table\", \"type\": \"path\", " TABLE "\"help\": \"a file that has to be there\" }" \
  "  ]," FACTS \
  "  \"examples\": [{ \"stage\": \"" NAME "\", \"share\": 0.5 }] }"
#endif
#ifndef ABI
#define ABI PIPELINE_PLUGIN_ABI
#endif
#ifndef MINOR
#define MINOR VIPS_MINOR_VERSION
#endif

typedef struct {
  double share;
  int times, spoken, passes;
} Settings;

static void *create(const PipelineSettings *settings, PipelineError *error) {
  const char *table = settings->text(settings, "table", NULL);
  if (table && access(table, R_OK) != 0) {
    snprintf(error->code, sizeof error->code, "no-table");
    snprintf(error->message, sizeof error->message, "%s cannot be read.", table);
    return NULL;
  }
#ifdef FAULT_EXIT_CREATE
  exit(0);
#endif
#ifdef FAULT_CRASH_CREATE
  *(volatile int *)8 = 1;
#endif
#ifdef FAULT_TALK
  puts("create");
  fflush(stdout);
#endif
  Settings *made = calloc(1, sizeof *made);
  made->share = settings->number(settings, "share", -1);
  made->times = (int)settings->number(settings, "times", -1);
  made->spoken = settings->boolean(settings, "spoken", -1);
  made->passes = strcmp(settings->text(settings, "how", ""), "none") == 0;
  return made;
}

#ifdef FAULT_LAZY
// Pixels that cannot be computed.
static int no_pixels(VipsRegion *region, void *seq, void *a, void *b, gboolean *stop) {
  (void)region; (void)seq; (void)a; (void)b; (void)stop;
  vips_error("lazy", "nothing here");
  return -1;
}
static VipsImage *lazy(VipsImage *like) {
  VipsImage *image = vips_image_new();
  vips_image_pipelinev(image, VIPS_DEMAND_STYLE_ANY, like, NULL);
  vips_image_generate(image, NULL, no_pixels, NULL, NULL, NULL);
  return image;
}
#endif

#ifdef FAULT_THREADS
static uint8_t shared[4096 * 64];
#endif

static int process(void *instance, const PipelineItem *item, const PipelinePictures *in, PipelinePictures *out,
  PipelineError *error) {
  const Settings *settings = instance;
  VipsImage *picture = in->picture;
  const int width = vips_image_get_width(picture), height = vips_image_get_height(picture);
  const int bands = vips_image_get_bands(picture), deep = vips_image_get_format(picture) == VIPS_FORMAT_USHORT;
  const size_t samples = (size_t)width * height * bands, bytes = samples * (deep ? 2 : 1);
  const void *from = vips_image_get_data(picture);

  if (settings->spoken) {
    item->warn(item, "spoken", item->path);
    item->note(item, "said", "hello");
  }
#ifdef FAULT_SPAM
  for (int i = 0; i < 300000; i++) fputs("line\n", stderr);
#endif
#ifdef FAULT_FLOOD
  static char words[5000];
  memset(words, 'w', sizeof words - 1);
  memcpy(words, "\033[31mred\a\n", 11);
  for (int i = 0; i < 100; i++) {
    item->warn(item, "flood", words);
    item->note(item, "flood", words);
  }
#endif
  if (settings->passes) {
    g_object_ref(picture);
    out->picture = picture;
    return 0;
  }
  if (strstr(item->path, "refused")) {
    snprintf(error->code, sizeof error->code, "refused-by-name");
    snprintf(error->message, sizeof error->message, "the name says so.");
    return 1;
  }
  if (strstr(item->path, "segv")) *(volatile int *)8 = 1;
#ifdef FAULT_ONE_PIXEL
  if (width == 1 && height == 1) *(volatile int *)8 = 1;
#endif
#ifdef FAULT_CANCELLATION
  while (item->cancelled(item)) usleep(1000);
  for (int i = 0; i < 60; i++) {
    usleep(1000);
    while (item->cancelled(item)) usleep(1000);
  }
#endif
#ifdef FAULT_LAZY
  out->picture = lazy(picture);
  return 0;
#endif
#ifdef FAULT_LARGE
  if (vips_black(&out->picture, 20000, 20000, "bands", bands, NULL)) return -1;
  return 0;
#endif
#ifdef FAULT_NOTHING
  return 0;
#endif

  double share = 1;
  for (int i = 0; i < settings->times; i++) share *= settings->share;
#ifdef FAULT_RANDOM
  static atomic_uint calls;
  share *= 1 - (atomic_fetch_add(&calls, 1) % 5) * 0.004;
#endif
  uint8_t *to = malloc(bytes);
  for (size_t i = 0; i < samples; i++) {
    // The fourth band is transparency.
    const double left = bands == 4 && i % 4 == 3 ? 1 : share;
    if (deep) ((uint16_t *)to)[i] = (uint16_t)(((const uint16_t *)from)[i] * left + 0.5);
    else to[i] = (uint8_t)(((const uint8_t *)from)[i] * left + 0.5);
  }
#ifdef FAULT_DEPTH
  // As if samples were bytes: the low ones are made darker too.
  if (deep) for (size_t i = 0; i < bytes; i++) to[i] = (uint8_t)(((const uint8_t *)from)[i] / 4);
#endif
#ifdef FAULT_THREADS
  if (!deep && bytes <= sizeof shared) {
    memcpy(shared, to, bytes);
    usleep(500);
    memcpy(to, shared, bytes);
  }
#endif
#ifdef FAULT_INPUT
  for (size_t i = 0; i < bytes / 2; i++) ((uint8_t *)(uintptr_t)from)[i] ^= 1;
#endif
  VipsImage *made = vips_image_new_from_memory_copy(
    to, bytes, width, height, bands, deep ? VIPS_FORMAT_USHORT : VIPS_FORMAT_UCHAR);
  free(to);
#ifdef FAULT_LEAK
  g_object_ref(made);
#endif
#ifdef FAULT_TURN
  VipsImage *turned = NULL;
  if (vips_rot(made, &turned, VIPS_ANGLE_D180, NULL)) return -1;
  g_object_unref(made);
  made = turned;
#endif
#ifdef FAULT_ALPHA
  if (bands == 4) {
    VipsImage *colours = NULL;
    if (vips_extract_band(made, &colours, 0, "n", 3, NULL)) return -1;
    g_object_unref(made);
    made = colours;
  }
#endif
#ifdef FAULT_OPAQUE
  if (bands == 4) {
    VipsImage *colours = NULL, *opaque = NULL;
    if (vips_extract_band(made, &colours, 0, "n", 3, NULL)) return -1;
    if (vips_bandjoin_const1(colours, &opaque, deep ? 65535 : 255, NULL)) return -1;
    g_object_unref(made);
    g_object_unref(colours);
    made = opaque;
  }
#endif
#ifdef FAULT_SIZE
  VipsImage *cut = NULL;
  if (vips_extract_area(made, &cut, 0, 0, (width + 1) / 2, height, NULL)) return -1;
  g_object_unref(made);
  made = cut;
#endif
  out->picture = made;
  (void)error;
  return 0;
}

static const PipelinePlugin plugin = {
  .abi = ABI,
  .size = sizeof plugin,
  .vips_major = VIPS_MAJOR_VERSION,
  .vips_minor = MINOR,
  .spec = SPEC,
  .create = create,
  .process = process,
  .destroy = free,
};

#ifndef FAULT_ENTRY
const PipelinePlugin *pipeline_plugin(void) {
#ifdef FAULT_EXIT_ENTRY
  exit(0);
#endif
#ifdef FAULT_QUICK_EXIT_ENTRY
  quick_exit(0);
#endif
#ifdef FAULT_CRASH_ENTRY
  abort();
#endif
#ifdef FAULT_TALK
  puts("entry");
  fflush(stdout);
#endif
  return &plugin;
}
#else
const PipelinePlugin *pipeline_plug(void) { return &plugin; }
#endif
