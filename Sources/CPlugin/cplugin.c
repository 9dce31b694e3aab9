#define _GNU_SOURCE
#include "include/cplugin.h"

#include "include/pipeline_plugin.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof((PipelineError *)0)->code == CPLUGIN_CODE_LENGTH, "one length");
_Static_assert(sizeof((PipelineError *)0)->message == CPLUGIN_MESSAGE_LENGTH, "one length");

struct CPlugin {
  const PipelinePlugin *description;
};

CPluginState cplugin_open(const char *path, CPlugin **plugin, uint32_t *abi, char *text, size_t length) {
  *plugin = NULL;
  *abi = 0;
  text[0] = 0;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *problem = dlerror();
    snprintf(text, length, "%s", problem ? problem : "unknown");
    return CPLUGIN_UNLOADABLE;
  }
  const PipelinePlugin *(*entry)(void) = NULL;
  // The way that POSIX gives for a function's address.
  *(void **)&entry = dlsym(library, "pipeline_plugin");
  if (!entry) return CPLUGIN_NO_ENTRY;
  const PipelinePlugin *description = entry();
  if (!description) return CPLUGIN_NOTHING;
  *abi = description->abi;
  if (description->abi != PIPELINE_PLUGIN_ABI) return CPLUGIN_OTHER_ABI;
  // What version 1 had at first: members that came later are read where `size` covers them.
  const size_t first = offsetof(PipelinePlugin, destroy) + sizeof description->destroy;
  if (description->size < first || !description->create || !description->process)
    return CPLUGIN_INCOMPLETE;
  CPlugin *made = malloc(sizeof *made);
  if (!made) {
    snprintf(text, length, "out of memory");
    return CPLUGIN_UNLOADABLE;
  }
  made->description = description;
  *plugin = made;
  return CPLUGIN_OPEN;
}

uintptr_t cplugin_identity(const CPlugin *plugin) { return (uintptr_t)plugin->description; }
uint32_t cplugin_vips_major(const CPlugin *plugin) { return plugin->description->vips_major; }
uint32_t cplugin_vips_minor(const CPlugin *plugin) { return plugin->description->vips_minor; }
const char *cplugin_spec(const CPlugin *plugin) { return plugin->description->spec; }
uint32_t cplugin_abi(void) { return PIPELINE_PLUGIN_ABI; }

// Settings.

typedef struct {
  char *name;
  CPluginKind kind;
  double number;
  char *text;
} Value;

struct CPluginSettings {
  // First, so that its address is that of the whole.
  PipelineSettings shown;
  char *json;
  size_t count, room;
  Value values[];
};

static const Value *find(const PipelineSettings *settings, const char *name, CPluginKind kind) {
  const CPluginSettings *all = (const CPluginSettings *)settings;
  for (size_t i = 0; i < all->count; i++) {
    if (all->values[i].kind == kind && strcmp(all->values[i].name, name) == 0) return &all->values[i];
  }
  return NULL;
}

static double number(const PipelineSettings *settings, const char *name, double otherwise) {
  const Value *value = find(settings, name, CPLUGIN_NUMBER);
  return value ? value->number : otherwise;
}

static const char *text(const PipelineSettings *settings, const char *name, const char *otherwise) {
  const Value *value = find(settings, name, CPLUGIN_TEXT);
  return value ? value->text : otherwise;
}

static int boolean(const PipelineSettings *settings, const char *name, int otherwise) {
  const Value *value = find(settings, name, CPLUGIN_BOOLEAN);
  return value ? value->number != 0 : otherwise;
}

CPluginSettings *cplugin_settings_new(const char *json, size_t count) {
  CPluginSettings *settings = calloc(1, sizeof *settings + count * sizeof(Value));
  char *copy = strdup(json);
  if (!settings || !copy) abort();
  settings->json = copy;
  settings->room = count;
  settings->shown = (PipelineSettings){
    .size = sizeof(PipelineSettings), .json = copy, .number = number, .text = text, .boolean = boolean};
  return settings;
}

void cplugin_settings_add(
  CPluginSettings *settings, const char *name, CPluginKind kind, double number, const char *text) {
  if (settings->count == settings->room) return;
  Value value = {.name = strdup(name), .kind = kind, .number = number, .text = strdup(text)};
  if (!value.name || !value.text) abort();
  settings->values[settings->count++] = value;
}

void cplugin_settings_free(CPluginSettings *settings) {
  for (size_t i = 0; i < settings->count; i++) {
    free(settings->values[i].name);
    free(settings->values[i].text);
  }
  free(settings->json);
  free(settings);
}

// Calls.

static void take(const PipelineError *error, CPluginError *taken) {
  taken->is_temporary = error->kind == PIPELINE_ERROR_TEMPORARY;
  memcpy(taken->code, error->code, sizeof taken->code);
  memcpy(taken->message, error->message, sizeof taken->message);
  // Whatever the plugin has done.
  taken->code[sizeof taken->code - 1] = 0;
  taken->message[sizeof taken->message - 1] = 0;
}

void *cplugin_create(const CPlugin *plugin, const CPluginSettings *settings, CPluginError *taken) {
  PipelineError error = {.size = sizeof error};
  void *instance = plugin->description->create(&settings->shown, &error);
  take(&error, taken);
  return instance;
}

void cplugin_destroy(const CPlugin *plugin, void *instance) {
  if (plugin->description->destroy) plugin->description->destroy(instance);
}

typedef struct {
  PipelineItem shown;
  const CPluginItem *own;
} Shown;

static int cancelled(const PipelineItem *item) {
  const CPluginItem *own = ((const Shown *)item)->own;
  return own->cancelled(own->context);
}

static void warn(const PipelineItem *item, const char *code, const char *message) {
  const CPluginItem *own = ((const Shown *)item)->own;
  own->warn(own->context, code ? code : "", message ? message : "");
}

static void note(const PipelineItem *item, const char *name, const char *text) {
  const CPluginItem *own = ((const Shown *)item)->own;
  own->note(own->context, name ? name : "", text ? text : "");
}

int cplugin_process(const CPlugin *plugin, void *instance, const CPluginItem *item, void *picture, void *matte,
  void **result, void **result_matte, CPluginError *taken) {
  Shown shown = {
    .shown = {.size = sizeof(PipelineItem), .path = item->path, .index = item->index, .seed = item->seed,
      .cancelled = cancelled, .warn = warn, .note = note},
    .own = item};
  const PipelinePictures in = {.size = sizeof in, .picture = picture, .matte = matte};
  PipelinePictures out = {.size = sizeof out};
  PipelineError error = {.size = sizeof error};
  int status = plugin->description->process(instance, &shown.shown, &in, &out, &error);
  take(&error, taken);
  *result = out.picture;
  *result_matte = out.matte;
  return status;
}
