#pragma once
// Plugins opened and called. Pointers to images pass through as they are: only libvips and plugins look into them.
#include <stddef.h>
#include <stdint.h>

/// An open plugin. It is never closed: its code may be on the stack of a thread that hangs.
typedef struct CPlugin CPlugin;

typedef enum {
  CPLUGIN_OPEN,
  /// dlopen refused it; the text says why.
  CPLUGIN_UNLOADABLE,
  /// It exports no pipeline_plugin.
  CPLUGIN_NO_ENTRY,
  /// pipeline_plugin answered NULL.
  CPLUGIN_NOTHING,
  /// Another ABI than this program's; the number says which.
  CPLUGIN_OTHER_ABI,
  /// Its struct is shorter than this ABI's, or lacks a function.
  CPLUGIN_INCOMPLETE,
} CPluginState;

/// Opens a plugin. `path` has a slash in it, so that nothing is searched for.
///
/// Writes what is wrong to `text`, a C string of at most `length` bytes, and the plugin's ABI to `abi`. A file that is
/// open already gives a plugin of the same `cplugin_identity`.
CPluginState cplugin_open(const char *path, CPlugin **plugin, uint32_t *abi, char *text, size_t length);

/// The same for one library, whatever path it was opened by.
uintptr_t cplugin_identity(const CPlugin *plugin);
uint32_t cplugin_vips_major(const CPlugin *plugin);
uint32_t cplugin_vips_minor(const CPlugin *plugin);
/// The plugin's spec, JSON; NULL where it has none.
const char *cplugin_spec(const CPlugin *plugin);
/// The ABI of this program.
uint32_t cplugin_abi(void);

typedef enum { CPLUGIN_NUMBER, CPLUGIN_TEXT, CPLUGIN_BOOLEAN } CPluginKind;

typedef struct CPluginSettings CPluginSettings;
/// Settings with room for `count` values; `json` is copied.
CPluginSettings *cplugin_settings_new(const char *json, size_t count);
/// Adds a value; texts are copied.
void cplugin_settings_add(CPluginSettings *settings, const char *name, CPluginKind kind, double number, const char *text);
void cplugin_settings_free(CPluginSettings *settings);

enum { CPLUGIN_CODE_LENGTH = 64, CPLUGIN_MESSAGE_LENGTH = 1024 };

/// A plugin's error, closed with a NUL.
typedef struct {
  int is_temporary;
  char code[CPLUGIN_CODE_LENGTH];
  char message[CPLUGIN_MESSAGE_LENGTH];
} CPluginError;

/// The plugin's instance; NULL with an error where it makes none.
void *cplugin_create(const CPlugin *plugin, const CPluginSettings *settings, CPluginError *error);
void cplugin_destroy(const CPlugin *plugin, void *instance);

/// What a plugin may ask and say while it works on an item. `context` is passed to the functions.
typedef struct {
  const char *path;
  uint64_t index;
  uint64_t seed;
  const void *context;
  int (*cancelled)(const void *context);
  void (*warn)(const void *context, const char *code, const char *message);
  void (*note)(const void *context, const char *name, const char *text);
} CPluginItem;

/// Calls process: 0 with references in `result` and `result_matte`, or something else with an error. References that
/// come with an error are handed over all the same.
int cplugin_process(const CPlugin *plugin, void *instance, const CPluginItem *item, void *picture, void *matte,
  void **result, void **result_matte, CPluginError *error);
