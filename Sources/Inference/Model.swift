import COpenVINO

/// The arithmetic that a model runs in.
public enum Precision: String, Sendable, CaseIterable {
  /// 32-bit floats: masks agree across machines.
  case f32
  /// 8-bit integers where the model's ranges are known, else bf16 where the CPU has it, else f32.
  case fast
}

/// A model, read, checked against its recipe and compiled for this CPU.
public final class Model: Sendable {
  public let recipe: ModelRecipe
  /// The file it was read from.
  public let file: String
  /// SHA-256 of that file, lower-case hexadecimal.
  public let sha256: String
  /// Whether a checksum of the recipe vouches for the file.
  public let verified: Bool
  /// What the model runs in on this CPU: `f32`, `bf16`, or `int8`, which leaves some operations in `f32`.
  public let precisionUsed: String
  /// OpenVINO's version, as it writes it.
  public let runtimeVersion: String
  /// How many inferences run at once.
  public let requests: Int
  let compiled: CompiledModel

  /// Reads and compiles a model; loads OpenVINO if this is the first.
  ///
  /// With as many requests as threads each request runs on a thread of its own, which gives the most pictures a second;
  /// with one request all threads work on one picture.
  ///
  /// Throws `runtimeMissing`, `runtimeVersion`, `modelMissing`, `checksum`, or `modelInvalid` when the file is no model
  /// or not one the recipe describes.
  ///
  /// - Parameters:
  ///   - file: an ONNX, TFLite or OpenVINO IR (`.xml` with its `.bin` beside it) file; nil looks it up by the recipe's
  ///     file name.
  ///   - requests: how many inferences run at once, at least 1.
  ///   - threads: CPU threads for all of them together, at least 1.
  public init(
    recipe: ModelRecipe, file: String? = nil, precision: Precision = .f32, requests: Int, threads: Int,
    home: PipelineHome = .current
  ) throws(InferenceError) {
    precondition(requests > 0 && threads > 0, "at least one request and one thread")
    let file = if let file { file } else { try ModelCatalogue.locate(recipe, home: home) }
    let digest = try FileDigest.ofFile(file)
    try recipe.check(digest, of: file)
    let runtime = try Runtime.open(try home.locateRuntime())
    self.recipe = recipe
    self.file = file
    self.sha256 = digest.sha256
    self.verified = recipe.sha256 != nil || recipe.md5 != nil
    self.requests = requests
    runtimeVersion = runtime.version
    let wanted = precision == .fast ? runtime.fastPrecision(of: digest.sha256) : "f32"
    let isEightBit = wanted == "int8"
    compiled = try CompiledModel(
      recipe: recipe, file: file, precision: isEightBit ? "f32" : wanted,
      calibration: isEightBit ? .of(digest.sha256) : nil, requests: requests, threads: threads, runtime: runtime)
    // What OpenVINO says it runs, rather than what it was asked for; of integers it says nothing.
    precisionUsed = isEightBit ? wanted : compiled.property("INFERENCE_PRECISION_HINT") ?? "unknown"
  }

  /// What `fast` means on this machine for the model with this SHA-256, `int8`, `bf16` or `f32`; loads OpenVINO.
  public static func fastPrecision(
    of sha256: String? = nil, home: PipelineHome = .current
  ) throws(InferenceError) -> String {
    try Runtime.open(try home.locateRuntime()).fastPrecision(of: sha256)
  }

  /// The version of the OpenVINO that would be used; loads it.
  public static func runtimeVersion(home: PipelineHome = .current) throws(InferenceError) -> String {
    try Runtime.open(try home.locateRuntime()).version
  }
}

extension ModelRecipe {
  /// Throws `checksum` when a published checksum is not the file's.
  func check(_ digest: FileDigest, of file: String) throws(InferenceError) {
    for (kind, wanted, found) in [("SHA-256", sha256, digest.sha256), ("MD5", md5, digest.md5)] {
      guard let wanted, wanted.lowercased() != found else { continue }
      throw InferenceError(
        .checksum, "\(file) is not the model \(name): its \(kind) is \(found), not \(wanted)",
        hint: "the file is damaged or another; remove it and fetch it again from \(source)")
    }
  }
}

/// OpenVINO's compiled model.
///
/// `@unchecked Sendable`: the pointer never changes, and OpenVINO lets any thread make requests of a compiled model.
final class CompiledModel: @unchecked Sendable {
  let runtime: Runtime
  private let recipe: ModelRecipe
  private let pointer: OpaquePointer

  init(
    recipe: ModelRecipe, file: String, precision: String, calibration: EightBitModel.Calibration?, requests: Int,
    threads: Int, runtime: Runtime
  ) throws(InferenceError) {
    self.runtime = runtime
    self.recipe = recipe
    let api = runtime.api.pointee
    func invalid(_ text: String, hint: String? = nil) -> InferenceError {
      InferenceError(.modelInvalid, "model \(recipe.name), \(file): \(text)", hint: hint)
    }

    var (status, model) = try runtime.readModel(file, calibration)
    guard status == 0, let model else {
      throw invalid(
        "OpenVINO cannot read it: \(runtime.reason(status))", hint: "ONNX, TFLite and OpenVINO IR files can be read")
    }
    // Freed once compiled: it holds a second copy of the weights.
    defer { api.model_free(model) }

    var inputs = 0
    var outputs = 0
    _ = api.model_inputs_size(model, &inputs)
    _ = api.model_outputs_size(model, &outputs)
    guard inputs == 1 else { throw invalid("it has \(inputs) inputs; models with one picture as input are understood") }
    guard recipe.output.index < outputs else {
      throw invalid("it has \(outputs) outputs and its recipe names number \(recipe.output.index + 1)")
    }
    if api.model_is_dynamic(model) {
      var shape = ovs_partial_shape()
      status = api.partial_shape_create_static(4, recipe.inputShape, &shape)
      guard status == 0 else { throw invalid(runtime.reason(status)) }
      defer { api.partial_shape_free(&shape) }
      status = api.model_reshape_single_input(model, shape)
      guard status == 0 else {
        throw invalid("it does not take an input of \(describe(recipe.inputShape)): \(runtime.reason(status))")
      }
    }

    var compiled: OpaquePointer?
    status = ovs_compile(
      runtime.api, runtime.core, model, precision, String(requests), String(threads), &compiled)
    guard status == 0, let compiled else { throw invalid("OpenVINO cannot compile it: \(runtime.reason(status))") }
    pointer = compiled

    // From here on deinit frees the model, also when a check below throws.
    let input = try port(api.compiled_model_input_by_index, 0, "input")
    guard input.isFloat, input.shape == recipe.inputShape else {
      throw invalid(
        "its input is \(input.text); the recipe says \(describe(recipe.inputShape)) 32-bit floats",
        hint: "the recipe's size and layout must be the model's")
    }
    let output = try port(api.compiled_model_output_by_index, recipe.output.index, "output")
    guard output.isFloat, output.shape.reduce(1, *) == Int64(recipe.outputCount) else {
      throw invalid(
        "its output is \(output.text); the recipe says \(recipe.width)×\(recipe.height) with "
          + "\(recipe.output.channels) channels, as 32-bit floats")
    }
  }

  deinit { runtime.api.pointee.compiled_model_free(pointer) }

  func property(_ key: String) -> String? {
    var value: UnsafeMutablePointer<CChar>?
    guard runtime.api.pointee.compiled_model_get_property(pointer, key, &value) == 0, let value else { return nil }
    defer { runtime.api.pointee.free(value) }
    return String(cString: value)
  }

  func makeRequest() throws(InferenceError) -> InferRequest {
    var request: OpaquePointer?
    let status = runtime.api.pointee.compiled_model_create_infer_request(pointer, &request)
    guard status == 0, let request else {
      throw InferenceError(.failed, "model \(recipe.name): no memory for an inference: \(runtime.reason(status))")
    }
    return InferRequest(request, recipe: recipe, model: self)
  }

  private struct Port {
    let shape: [Int64]
    let isFloat: Bool
    var text: String { describe(shape) + (isFloat ? " 32-bit floats" : " of a type other than 32-bit floats") }
  }

  private func port(
    _ find: (OpaquePointer, Int, UnsafeMutablePointer<OpaquePointer?>) -> ovs_status, _ index: Int, _ what: String
  ) throws(InferenceError) -> Port {
    let api = runtime.api.pointee
    var port: OpaquePointer?
    let status = find(pointer, index, &port)
    guard status == 0, let port else {
      throw InferenceError(.modelInvalid, "model \(recipe.name): its \(what) is unknown: \(runtime.reason(status))")
    }
    defer { api.output_const_port_free(port) }
    var shape = ovs_shape()
    var type: Int32 = 0
    // Fails for sizes that stay open after the input's is fixed; such an output is of no use here.
    let shaped = api.const_port_get_shape(port, &shape)
    let typed = api.port_get_element_type(port, &type)
    guard shaped == 0, typed == 0 else {
      throw InferenceError(.modelInvalid, "model \(recipe.name): the size of its \(what) is not fixed")
    }
    defer { _ = api.shape_free(&shape) }
    return Port(
      shape: Array(UnsafeBufferPointer(start: shape.dims, count: Int(shape.rank))), isFloat: type == OVS_F32)
  }
}

private func describe(_ shape: [Int64]) -> String { shape.map(String.init).joined(separator: "×") }

/// One inference at a time on a compiled model.
///
/// `@unchecked Sendable`: it is used by whoever the pool lent it to, one thread at a time.
final class InferRequest: @unchecked Sendable {
  private let request: OpaquePointer
  private let recipe: ModelRecipe
  // Keeps the compiled model until its last request is gone.
  private let model: CompiledModel

  init(_ request: OpaquePointer, recipe: ModelRecipe, model: CompiledModel) {
    self.request = request
    self.recipe = recipe
    self.model = model
  }

  deinit { model.runtime.api.pointee.infer_request_free(request) }

  /// Blocks until the inference is done; writes the input in place and copies the output out.
  func run(_ rgb: UnsafeBufferPointer<UInt8>) throws(InferenceError) -> [Float] {
    let api = model.runtime.api.pointee
    let input = try tensor(api.infer_request_get_input_tensor_by_index, 0, count: recipe.inputCount)
    defer { api.tensor_free(input.tensor) }
    recipe.fillInput(input.values, from: rgb)
    let status = api.infer_request_infer(request)
    guard status == 0 else { throw failed(status) }
    let output = try tensor(
      api.infer_request_get_output_tensor_by_index, recipe.output.index, count: recipe.outputCount)
    defer { api.tensor_free(output.tensor) }
    return Array(output.values)
  }

  private func tensor(
    _ find: (OpaquePointer, Int, UnsafeMutablePointer<OpaquePointer?>) -> ovs_status, _ index: Int, count: Int
  ) throws(InferenceError) -> (tensor: OpaquePointer, values: UnsafeMutableBufferPointer<Float>) {
    let api = model.runtime.api.pointee
    var tensor: OpaquePointer?
    var status = find(request, index, &tensor)
    guard status == 0, let tensor else { throw failed(status) }
    var size = 0
    var data: UnsafeMutableRawPointer?
    status = api.tensor_get_size(tensor, &size)
    if status == 0 { status = api.tensor_data(tensor, &data) }
    guard status == 0, size == count, let data else {
      api.tensor_free(tensor)
      throw status == 0
        ? InferenceError(.failed, "model \(recipe.name): a tensor holds \(size) values, not \(count)") : failed(status)
    }
    let start = data.assumingMemoryBound(to: Float.self)
    return (tensor, UnsafeMutableBufferPointer(start: start, count: size))
  }

  private func failed(_ status: ovs_status) -> InferenceError {
    InferenceError(.failed, "model \(recipe.name): the inference failed: \(model.runtime.reason(status))")
  }
}
