import Glibc
import TestSupport
import Testing

@testable import Inference

/// Shared libraries made with the C compiler that look like OpenVINO's C library in the one respect a test needs.
struct FakeRuntime {
  let folder = TemporaryFolder()

  /// The home whose runtime this is.
  var home: PipelineHome { PipelineHome(variable: { $0 == "PIPELINE_OPENVINO" ? folder.path : nil }) }

  init(_ source: String) throws {
    let file = folder.write(source, to: "fake.c")
    let status = try Self.run(["cc", "-shared", "-fPIC", "-o", folder["libopenvino_c.so.2641"], file])
    try #require(status == 0, "cc failed")
  }

  /// Just the version, which `build` gives.
  static func version(_ build: String) -> String {
    """
    typedef struct { const char *build, *description; } version;
    int ov_get_openvino_version(version *v) { v->build = "\(build)"; v->description = ""; return 0; }
    void ov_version_free(version *v) { v->build = v->description = 0; }

    """
  }

  /// All functions, around a model of 2×2 pixels whose output is its input's first plane.
  ///
  /// A first sample of 255 makes the inference hang for ever, 254 makes it fail.
  static let complete =
    version("2026.9.9-test") + """
      #include <stdbool.h>
      #include <stddef.h>
      #include <stdint.h>
      #include <stdlib.h>
      #include <string.h>
      #include <unistd.h>
      typedef struct { int64_t rank; int64_t *dims; } shape;
      typedef struct { int64_t min, max; } dimension;
      typedef struct { dimension rank; dimension *dims; } partial;
      typedef struct { float input[12], output[4]; } request;
      typedef struct { float *data; size_t size; } tensor;
      static char here;
      const char *ov_get_error_info(int s) { return "GENERAL_ERROR"; }
      const char *ov_get_last_err_msg(void) { return strdup("Exception from a.cpp:1:\\nthe fake was told to fail"); }
      void ov_free(const char *p) { free((void *)p); }
      int ov_core_create(void **c) { *c = &here; return 0; }
      void ov_core_free(void *c) {}
      int ov_core_get_property(void *c, const char *d, const char *k, char **v) { *v = strdup("FP32 BF16"); return 0; }
      int ov_core_read_model(void *c, const char *p, const char *w, void **m) { *m = &here; return 0; }
      int ov_core_read_model_from_memory_buffer(void *c, const char *b, size_t n, void *w, void **m) { return -1; }
      void ov_model_free(void *m) {}
      bool ov_model_is_dynamic(void *m) { return false; }
      int ov_model_inputs_size(void *m, size_t *n) { *n = 1; return 0; }
      int ov_model_outputs_size(void *m, size_t *n) { *n = 1; return 0; }
      int ov_model_const_input_by_index(void *m, size_t i, void **p) { *p = (void *)3; return 0; }
      int ov_model_const_output_by_index(void *m, size_t i, void **p) { *p = (void *)1; return 0; }
      int ov_port_get_partial_shape(void *p, partial *s) { return -1; }
      int ov_infer_request_set_input_tensor_by_index(void *r, size_t i, void *t) { return -1; }
      int ov_tensor_create(int t, shape s, void **out) { return -1; }
      int ov_tensor_get_shape(void *t, shape *s) { return -1; }
      int ov_partial_shape_create(int64_t r, const dimension *d, partial *s) { return -1; }
      int ov_model_reshape_single_input(void *m, partial s) { return 0; }
      int ov_partial_shape_create_static(int64_t r, const int64_t *d, partial *s) { return -1; }
      void ov_partial_shape_free(partial *s) {}
      static const char *precision;
      int ov_core_compile_model(void *c, void *m, const char *d, size_t n, void **out, const char *k, const char *v, ...) {
        precision = strcmp(k, "INFERENCE_PRECISION_HINT") ? "none" : strdup(v);
        *out = &here;
        return n == 8 ? 0 : -1;
      }
      int ov_compiled_model_input_by_index(void *c, size_t i, void **p) { *p = (void *)3; return 0; }
      int ov_compiled_model_output_by_index(void *c, size_t i, void **p) { *p = (void *)1; return 0; }
      int ov_compiled_model_get_property(void *c, const char *k, char **v) { *v = strdup(precision); return 0; }
      int ov_compiled_model_create_infer_request(void *c, void **r) { *r = calloc(1, sizeof(request)); return 0; }
      void ov_compiled_model_free(void *c) {}
      int ov_const_port_get_shape(void *p, shape *s) {
        int64_t dims[] = {1, (int64_t)(size_t)p, 2, 2};
        s->rank = 4;
        s->dims = memcpy(malloc(sizeof dims), dims, sizeof dims);
        return 0;
      }
      int ov_port_get_element_type(void *p, int *t) { *t = 4; return 0; }
      void ov_output_const_port_free(void *p) {}
      int ov_shape_free(shape *s) { free(s->dims); return 0; }
      static int make(float *data, size_t size, void **t) {
        tensor *made = malloc(sizeof *made);
        made->data = data;
        made->size = size;
        *t = made;
        return 0;
      }
      int ov_infer_request_get_input_tensor_by_index(request *r, size_t i, void **t) { return make(r->input, 12, t); }
      int ov_infer_request_get_output_tensor_by_index(request *r, size_t i, void **t) { return make(r->output, 4, t); }
      int ov_infer_request_infer(request *r) {
        while (r->input[0] == 255) pause();
        if (r->input[0] == 254) return -1;
        memcpy(r->output, r->input, sizeof r->output);
        return 0;
      }
      void ov_infer_request_free(request *r) { free(r); }
      int ov_tensor_get_size(tensor *t, size_t *n) { *n = t->size; return 0; }
      int ov_tensor_data(tensor *t, void **d) { *d = t->data; return 0; }
      void ov_tensor_free(tensor *t) { free(t); }
      """

  /// A recipe for the complete fake's model: samples reach it as they are.
  static let recipe = ModelRecipe(
    name: "tiny", fileName: "tiny.onnx", source: "the tests", licence: "none", width: 2, height: 2,
    scaling: .fixed(1), mean: [0, 0, 0], deviation: [1, 1, 1])

  /// A compiled model of this runtime.
  func model(requests: Int, precision: Precision = .f32) throws -> Model {
    try Model(
      recipe: Self.recipe, file: folder.write("tiny", to: "tiny.onnx"), precision: precision, requests: requests,
      threads: requests, home: home)
  }

  private static func run(_ words: [String]) throws -> Int32 {
    var arguments = words.map { strdup($0) } + [nil]
    defer { for argument in arguments { free(argument) } }
    var process = pid_t()
    let started = posix_spawnp(&process, words[0], nil, nil, &arguments, environ)
    try #require(started == 0, "the C compiler does not start: \(String(cString: strerror(started)))")
    var status: Int32 = 0
    while waitpid(process, &status, 0) < 0 { try #require(errno == EINTR) }
    return status
  }
}

/// The error that `body` throws.
func failure<T>(_ body: () throws(InferenceError) -> T) -> InferenceError? {
  do throws(InferenceError) {
    _ = try body()
    return nil
  } catch {
    return error
  }
}
