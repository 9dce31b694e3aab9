// A stage that hands every picture back as it came, for what a call of a plugin costs.
#include <vips/vips.h>

#include "pipeline_plugin.h"

static void *create(const PipelineSettings *settings, PipelineError *error) {
  (void)settings;
  (void)error;
  static int instance;
  return &instance;
}

static int process(void *instance, const PipelineItem *item, const PipelinePictures *in, PipelinePictures *out,
  PipelineError *error) {
  (void)instance;
  (void)item;
  (void)error;
  out->picture = in->picture;
  g_object_ref(out->picture);
  return 0;
}

static const PipelinePlugin plugin = {
  .abi = PIPELINE_PLUGIN_ABI,
  .size = sizeof plugin,
  .vips_major = VIPS_MAJOR_VERSION,
  .vips_minor = VIPS_MINOR_VERSION,
  .spec = "{ \"name\": \"bench.nothing\", \"summary\": \"Does nothing.\" }",
  .create = create,
  .process = process,
};

const PipelinePlugin *pipeline_plugin(void) { return &plugin; }
