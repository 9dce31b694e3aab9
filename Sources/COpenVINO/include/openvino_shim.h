#pragma once
// OpenVINO's C interface, opened at run time. Only what is called is declared, so that the program builds and starts
// where OpenVINO is not installed. The shapes of the functions are those of OpenVINO 2026.x; ovs_open refuses others.

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ovs_core ovs_core;
typedef struct ovs_model ovs_model;
typedef struct ovs_compiled ovs_compiled;
typedef struct ovs_request ovs_request;
typedef struct ovs_tensor ovs_tensor;
typedef struct ovs_port ovs_port;

/// 0 is success, all errors are negative.
typedef int32_t ovs_status;

/// Number of the element type 32-bit float.
#define OVS_F32 4

typedef struct {
  const char *_Nullable build;
  const char *_Nullable description;
} ovs_version;

typedef struct {
  int64_t rank;
  int64_t *_Nullable dims;
} ovs_shape;

typedef struct {
  int64_t min;
  int64_t max;
} ovs_dimension;

typedef struct {
  ovs_dimension rank;
  ovs_dimension *_Nullable dims;
} ovs_partial_shape;

/// The functions used. Field `core_create` holds the library's `ov_core_create`, and so on for every field.
/// X(result, name, arguments)
#define OVS_FUNCTIONS(X)                                                                                               \
  X(ovs_status, get_openvino_version, (ovs_version *_Nonnull version))                                                 \
  X(void, version_free, (ovs_version *_Nonnull version))                                                               \
  X(const char *_Nullable, get_error_info, (ovs_status status))                                                        \
  X(const char *_Nullable, get_last_err_msg, (void))                                                                   \
  X(void, free, (const char *_Nullable content))                                                                       \
  X(ovs_status, core_create, (ovs_core *_Nullable *_Nonnull core))                                                     \
  X(void, core_free, (ovs_core *_Nullable core))                                                                       \
  X(ovs_status, core_get_property,                                                                                     \
    (const ovs_core *_Nonnull core, const char *_Nonnull device, const char *_Nonnull key,                             \
     char *_Nullable *_Nonnull value))                                                                                 \
  X(ovs_status, core_read_model,                                                                                       \
    (const ovs_core *_Nonnull core, const char *_Nonnull path, const char *_Nullable weights,                          \
     ovs_model *_Nullable *_Nonnull model))                                                                            \
  X(ovs_status, core_read_model_from_memory_buffer,                                                                    \
    (const ovs_core *_Nonnull core, const char *_Nonnull bytes, size_t count, const ovs_tensor *_Nullable weights,     \
     ovs_model *_Nullable *_Nonnull model))                                                                            \
  X(void, model_free, (ovs_model *_Nullable model))                                                                    \
  X(bool, model_is_dynamic, (const ovs_model *_Nonnull model))                                                         \
  X(ovs_status, model_inputs_size, (const ovs_model *_Nonnull model, size_t *_Nonnull count))                          \
  X(ovs_status, model_outputs_size, (const ovs_model *_Nonnull model, size_t *_Nonnull count))                         \
  X(ovs_status, model_const_input_by_index,                                                                            \
    (const ovs_model *_Nonnull model, size_t index, ovs_port *_Nullable *_Nonnull port))                               \
  X(ovs_status, model_const_output_by_index,                                                                           \
    (const ovs_model *_Nonnull model, size_t index, ovs_port *_Nullable *_Nonnull port))                               \
  X(ovs_status, compiled_model_input_by_index,                                                                         \
    (const ovs_compiled *_Nonnull compiled, size_t index, ovs_port *_Nullable *_Nonnull port))                         \
  X(ovs_status, compiled_model_output_by_index,                                                                        \
    (const ovs_compiled *_Nonnull compiled, size_t index, ovs_port *_Nullable *_Nonnull port))                         \
  X(ovs_status, compiled_model_get_property,                                                                           \
    (const ovs_compiled *_Nonnull compiled, const char *_Nonnull key, char *_Nullable *_Nonnull value))                \
  X(ovs_status, compiled_model_create_infer_request,                                                                   \
    (const ovs_compiled *_Nonnull compiled, ovs_request *_Nullable *_Nonnull request))                                 \
  X(void, compiled_model_free, (ovs_compiled *_Nullable compiled))                                                     \
  X(ovs_status, const_port_get_shape, (const ovs_port *_Nonnull port, ovs_shape *_Nonnull shape))                      \
  X(ovs_status, port_get_partial_shape,                                                                                \
    (const ovs_port *_Nonnull port, ovs_partial_shape *_Nonnull shape))                                                \
  X(ovs_status, port_get_element_type, (const ovs_port *_Nonnull port, int32_t *_Nonnull type))                        \
  X(void, output_const_port_free, (ovs_port *_Nullable port))                                                          \
  X(ovs_status, shape_free, (ovs_shape *_Nonnull shape))                                                               \
  X(ovs_status, infer_request_get_input_tensor_by_index,                                                               \
    (const ovs_request *_Nonnull request, size_t index, ovs_tensor *_Nullable *_Nonnull tensor))                       \
  X(ovs_status, infer_request_get_output_tensor_by_index,                                                              \
    (const ovs_request *_Nonnull request, size_t index, ovs_tensor *_Nullable *_Nonnull tensor))                       \
  X(ovs_status, infer_request_set_input_tensor_by_index,                                                               \
    (ovs_request *_Nonnull request, size_t index, const ovs_tensor *_Nonnull tensor))                                  \
  X(ovs_status, infer_request_infer, (ovs_request *_Nonnull request))                                                  \
  X(void, infer_request_free, (ovs_request *_Nullable request))                                                        \
  X(ovs_status, tensor_create, (int32_t type, ovs_shape shape, ovs_tensor *_Nullable *_Nonnull tensor))                \
  X(ovs_status, tensor_get_shape, (const ovs_tensor *_Nonnull tensor, ovs_shape *_Nonnull shape))                      \
  X(ovs_status, tensor_get_size, (const ovs_tensor *_Nonnull tensor, size_t *_Nonnull elements))                       \
  X(ovs_status, tensor_data, (const ovs_tensor *_Nonnull tensor, void *_Nullable *_Nonnull data))                      \
  X(void, tensor_free, (ovs_tensor *_Nullable tensor))                                                                 \
  X(ovs_status, partial_shape_create,                                                                                  \
    (int64_t rank, const ovs_dimension *_Nonnull dims, ovs_partial_shape *_Nonnull shape))                             \
  X(ovs_status, partial_shape_create_static,                                                                           \
    (int64_t rank, const int64_t *_Nonnull dims, ovs_partial_shape *_Nonnull shape))                                   \
  X(void, partial_shape_free, (ovs_partial_shape *_Nonnull shape))                                                     \
  X(ovs_status, model_reshape_single_input, (const ovs_model *_Nonnull model, ovs_partial_shape shape))

typedef struct {
#define OVS_FIELD(result, name, arguments) result(*_Nonnull name) arguments;
  OVS_FUNCTIONS(OVS_FIELD)
#undef OVS_FIELD
  /// ov_core_compile_model takes its properties as variable arguments, which Swift cannot call: see ovs_compile.
  void *_Nonnull core_compile_model;
} ovs_api;

typedef enum {
  OVS_OPENED = 0,
  /// The file could not be opened as a library; the text is the loader's.
  OVS_NOT_OPENED = 1,
  /// The library opened and is of another version; the text is its version.
  OVS_OTHER_VERSION = 2,
  /// The library lacks a function; the text is the function's name.
  OVS_NO_SYMBOL = 3,
} ovs_open_result;

/// Opens the library at `path`, whose version must start with `version`, and looks up every function.
///
/// On success `*api` is set, for good: the library is never closed, since threads of its own live in it. Otherwise
/// `text` holds, cut to `size` bytes, what the result says.
ovs_open_result ovs_open(const char *_Nonnull path, const char *_Nonnull version,
                         const ovs_api *_Nullable *_Nonnull api, char *_Nonnull text, size_t size);

/// Compiles a model for the CPU with the properties that matter here, each given as text.
ovs_status ovs_compile(const ovs_api *_Nonnull api, const ovs_core *_Nonnull core, const ovs_model *_Nonnull model,
                       const char *_Nonnull precision, const char *_Nonnull streams, const char *_Nonnull threads,
                       ovs_compiled *_Nullable *_Nonnull compiled);
