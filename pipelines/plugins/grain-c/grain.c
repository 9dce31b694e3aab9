// Film grain, as a stage: { "stage": "example.grain", "amount": 12 }
//
// The grain of a picture follows from its path, so that a second run makes the same file. It is the same in all three
// colours, as on film, and leaves transparency alone.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <vips/vips.h>

#include "pipeline_plugin.h"

typedef struct {
  double amount;
  uint64_t seed;
} Grain;

static const char spec[] =
  "{"
  "  \"name\": \"example.grain\","
  "  \"summary\": \"Adds film grain, the same for a picture in every run.\","
  "  \"notes\": [\"Put it last before encode: grain that is scaled is blurred.\"],"
  "  \"fields\": ["
  "    { \"name\": \"amount\", \"type\": \"number\", \"min\": 0, \"max\": 100, \"default\": 12, \"unit\": \"levels of 255\","
  "      \"help\": \"how strong the grain is: the usual distance of a pixel from what it was\" },"
  "    { \"name\": \"seed\", \"type\": \"integer\", \"min\": 0, \"max\": 1000000, \"default\": 0,"
  "      \"help\": \"another number gives every picture another grain\" }"
  "  ],"
  "  \"examples\": [{ \"stage\": \"example.grain\" }, { \"stage\": \"example.grain\", \"amount\": 25, \"seed\": 7 }]"
  "}";

static void *create(const PipelineSettings *settings, PipelineError *error) {
  Grain *grain = malloc(sizeof *grain);
  if (!grain) {
    snprintf(error->message, sizeof error->message, "there is not enough memory");
    return NULL;
  }
  grain->amount = settings->number(settings, "amount", 12);
  grain->seed = (uint64_t)settings->number(settings, "seed", 0);
  return grain;
}

// The 64-bit finaliser of MurmurHash3 on a counter: a number for each pixel, whatever thread asks first.
static uint64_t mixed(uint64_t value) {
  value = (value ^ value >> 33) * 0xff51afd7ed558ccdULL;
  value = (value ^ value >> 33) * 0xc4ceb9fe1a85ec53ULL;
  return value ^ value >> 33;
}

// About a normal distribution with a deviation of 1: a sum of four even ones.
static double noise(uint64_t seed, uint64_t pixel) {
  uint64_t bits = mixed(seed ^ mixed(pixel + 1));
  double sum = 0;
  for (int i = 0; i < 4; i++) sum += (double)(bits >> 16 * i & 0xffff) / 65535 - 0.5;
  return sum * 1.732;
}

static double within(double value, double most) { return value < 0 ? 0 : value > most ? most : value; }

static int process(void *instance, const PipelineItem *item, const PipelinePictures *in, PipelinePictures *out,
  PipelineError *error) {
  const Grain *grain = instance;
  VipsImage *picture = in->picture;
  const int width = vips_image_get_width(picture), height = vips_image_get_height(picture);
  const int bands = vips_image_get_bands(picture);
  const VipsBandFormat format = vips_image_get_format(picture);
  const int deep = format == VIPS_FORMAT_USHORT;
  const double most = deep ? 65535 : 255;
  const double amount = grain->amount * most / 255;
  const uint64_t seed = item->seed ^ mixed(grain->seed);

  // Pictures that come in lie in memory, and are not to be written to.
  const void *from = vips_image_get_data(picture);
  const size_t samples = (size_t)width * height * bands;
  void *to = from ? malloc(samples * (deep ? 2 : 1)) : NULL;
  if (!to) {
    snprintf(error->message, sizeof error->message, "there is not enough memory for %d x %d pixels", width, height);
    error->kind = PIPELINE_ERROR_TEMPORARY;
    return -1;
  }
  for (int y = 0; y < height; y++) {
    if (item->cancelled(item)) {
      free(to);
      snprintf(error->message, sizeof error->message, "given up at row %d of %d", y, height);
      return -1;
    }
    for (int x = 0; x < width; x++) {
      const size_t pixel = (size_t)y * width + x;
      const double grains = amount * noise(seed, pixel);
      for (int band = 0; band < bands; band++) {
        const size_t at = pixel * bands + band;
        // The fourth band is transparency.
        const double change = band < 3 ? grains : 0;
        if (deep) ((uint16_t *)to)[at] = (uint16_t)(within(((const uint16_t *)from)[at] + change, most) + 0.5);
        else ((uint8_t *)to)[at] = (uint8_t)(within(((const uint8_t *)from)[at] + change, most) + 0.5);
      }
    }
  }
  out->picture = vips_image_new_from_memory_copy(to, samples * (deep ? 2 : 1), width, height, bands, format);
  free(to);
  if (out->picture) return 0;
  snprintf(error->message, sizeof error->message, "libvips did not take %d x %d pixels", width, height);
  return -1;
}

static const PipelinePlugin plugin = {
  .abi = PIPELINE_PLUGIN_ABI,
  .size = sizeof plugin,
  .vips_major = VIPS_MAJOR_VERSION,
  .vips_minor = VIPS_MINOR_VERSION,
  .spec = spec,
  .create = create,
  .process = process,
  .destroy = free,
};

const PipelinePlugin *pipeline_plugin(void) { return &plugin; }
