#include "openvino_shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ovs_open_result fail(ovs_open_result result, const char *message, char *text, size_t size) {
  snprintf(text, size, "%s", message ? message : "no reason given");
  return result;
}

ovs_open_result ovs_open(const char *path, const char *version, const ovs_api **api, char *text, size_t size) {
  // RTLD_NODELETE: the library's own threads outlive any handle. RTLD_LOCAL: its symbols stay out of everyone's way.
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) return fail(OVS_NOT_OPENED, dlerror(), text, size);

  // The version first: a library of another version may lack functions, and "wrong version" is the better message.
  ovs_status (*get_version)(ovs_version *) = (ovs_status(*)(ovs_version *))dlsym(library, "ov_get_openvino_version");
  void (*free_version)(ovs_version *) = (void (*)(ovs_version *))dlsym(library, "ov_version_free");
  if (!get_version || !free_version) {
    fail(OVS_NO_SYMBOL, get_version ? "ov_version_free" : "ov_get_openvino_version", text, size);
    dlclose(library);
    return OVS_NO_SYMBOL;
  }
  ovs_version found = {0};
  if (get_version(&found) != 0 || !found.build || strncmp(found.build, version, strlen(version)) != 0) {
    fail(OVS_OTHER_VERSION, found.build ? found.build : "unknown", text, size);
    free_version(&found);
    dlclose(library);
    return OVS_OTHER_VERSION;
  }
  free_version(&found);

  ovs_api *table = calloc(1, sizeof *table);
  if (!table) return fail(OVS_NOT_OPENED, "out of memory", text, size);
  const char *missing = NULL;
#define OVS_LOAD(result, name, arguments)                                                                              \
  if (!missing) {                                                                                                      \
    void *symbol = dlsym(library, "ov_" #name);                                                                        \
    if (symbol) table->name = (result(*) arguments)symbol;                                                             \
    else missing = "ov_" #name;                                                                                        \
  }
  OVS_FUNCTIONS(OVS_LOAD)
#undef OVS_LOAD
  if (!missing) {
    void *symbol = dlsym(library, "ov_core_compile_model");
    if (symbol) table->core_compile_model = symbol;
    else missing = "ov_core_compile_model";
  }
  if (missing) {
    free(table);
    dlclose(library);
    return fail(OVS_NO_SYMBOL, missing, text, size);
  }
  *api = table;
  return OVS_OPENED;
}

typedef ovs_status (*compile_function)(const ovs_core *, const ovs_model *, const char *, size_t, ovs_compiled **, ...);

ovs_status ovs_compile(const ovs_api *api, const ovs_core *core, const ovs_model *model, const char *precision,
                       const char *streams, const char *threads, ovs_compiled **compiled) {
  const char *const settings[] = {
      "INFERENCE_PRECISION_HINT", precision, "NUM_STREAMS", streams, "INFERENCE_NUM_THREADS", threads,
      // Unpinned: other threads of ours decode and encode meanwhile, and other processes may pin to the same cores.
      "ENABLE_CPU_PINNING", "NO",
  };
  compile_function compile = (compile_function)api->core_compile_model;
  return compile(core, model, "CPU", sizeof settings / sizeof *settings, compiled, settings[0], settings[1],
                 settings[2], settings[3], settings[4], settings[5], settings[6], settings[7]);
}
