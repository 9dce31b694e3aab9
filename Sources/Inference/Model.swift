import COpenVINO

/// The arithmetic that a model runs in.
public enum Precision: String, Sendable, CaseIterable {
  /// 8-bit integers where that was measured to keep the masks, else f32.
  case auto
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
  /// Whether a published checksum vouches for the file; else it is at most the file that was first used under its name.
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
  /// A catalogue model without a published checksum is pinned when it is first used, and refused when its file is
  /// another one later (`ModelPins`).
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
    let isFromCatalogue = file == nil
    let file = if let file { file } else { try ModelCatalogue.locate(recipe, home: home) }
    let digest = try FileDigest.ofFile(file)
    try recipe.check(digest, of: file)
    if isFromCatalogue, !recipe.hasChecksum { try ModelPins(home).check(digest, of: recipe, file: file) }
    let runtime = try Runtime.open(try home.locateRuntime())
    self.recipe = recipe
    self.file = file
    self.sha256 = digest.sha256
    self.verified = recipe.hasChecksum
    self.requests = requests
    runtimeVersion = runtime.version
    let fast = precision == .f32 ? "f32" : runtime.fastPrecision(of: digest.sha256)
    // bf16 was not measured, so only who asks for it gets it.
    let wanted = precision == .auto && fast == "bf16" ? "f32" : fast
    let isEightBit = wanted == "int8"
    compiled = try CompiledModel(
      recipe: recipe, file: file, precision: isEightBit ? "f32" : wanted,
      calibration: isEightBit ? .of(digest.sha256) : nil, requests: requests, threads: threads, runtime: runtime)
    // What OpenVINO says it runs, rather than what it was asked for; of integers it says nothing.
    precisionUsed = isEightBit ? wanted : compiled.property("INFERENCE_PRECISION_HINT") ?? "unknown"
  }

  /// What a file says about its model by itself, without compiling it; loads OpenVINO.
  ///
  /// Throws `runtimeMissing`, `runtimeVersion`, `modelMissing`, or `modelInvalid` when the file is no model.
  public static func facts(ofFile file: String, home: PipelineHome = .current) throws(InferenceError) -> ModelFacts {
    // Before the runtime, whose words for a missing file are poor.
    _ = try FileDigest.ofFile(file)
    return try CompiledModel.facts(ofFile: file, runtime: try Runtime.open(try home.locateRuntime()))
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

/// The shapes of a model's input and outputs, as its file has them.
public struct ModelFacts: Sendable, Hashable {
  /// A tensor's dimensions; nil for one that is open.
  public typealias Shape = [Int?]

  public var input: Shape
  public var outputs: [Shape]

  public init(input: Shape, outputs: [Shape]) {
    self.input = input
    self.outputs = outputs
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
      InferenceError(.modelInvalid, "model \(recipe.name), \(file): \(text)", hint: recipe.note ?? hint)
    }

    let model = try Self.read(file, calibration, named: recipe.name, note: recipe.note, runtime: runtime)
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
    let inputShape = recipe.inputShape(width: recipe.width, height: recipe.height)
    var status: ovs_status = 0
    if recipe.sizeRule != nil {
      // Width and height stay open; OpenVINO then takes any size, picture by picture.
      let dimensions = inputShape.enumerated().map { place, side in
        let isSide = recipe.layout == .nchw ? place > 1 : place == 1 || place == 2
        return isSide ? ovs_dimension(min: -1, max: -1) : ovs_dimension(min: side, max: side)
      }
      try reshape(model, "an input of open width and height") { api.partial_shape_create(4, dimensions, $0) }
    } else if api.model_is_dynamic(model) {
      try reshape(model, "an input of \(describe(inputShape))") { api.partial_shape_create_static(4, inputShape, $0) }
    }
    func reshape(
      _ model: OpaquePointer, _ what: String, _ make: (UnsafeMutablePointer<ovs_partial_shape>) -> ovs_status
    ) throws(InferenceError) {
      var shape = ovs_partial_shape()
      let made = make(&shape)
      guard made == 0 else { throw invalid(runtime.reason(made)) }
      defer { api.partial_shape_free(&shape) }
      let reshaped = api.model_reshape_single_input(model, shape)
      guard reshaped == 0 else { throw invalid("it does not take \(what): \(runtime.reason(reshaped))") }
    }

    var compiled: OpaquePointer?
    status = ovs_compile(
      runtime.api, runtime.core, model, precision, String(requests), String(threads), &compiled)
    guard status == 0, let compiled else { throw invalid("OpenVINO cannot compile it: \(runtime.reason(status))") }
    pointer = compiled

    // From here on deinit frees the model, also when a check below throws.
    if recipe.sizeRule != nil {
      // There are no sizes to check before a picture comes.
      let input = try port(api.compiled_model_input_by_index, 0, "input", isOpen: true)
      let output = try port(api.compiled_model_output_by_index, recipe.output.index, "output", isOpen: true)
      guard input.isFloat, output.isFloat else { throw invalid("it takes or gives other than 32-bit floats") }
      return
    }
    let input = try port(api.compiled_model_input_by_index, 0, "input")
    guard input.isFloat, input.shape == inputShape else {
      throw invalid(
        "its input is \(input.text); the recipe says \(describe(inputShape)) 32-bit floats",
        hint: "the recipe's size and layout must be the model's")
    }
    let output = try port(api.compiled_model_output_by_index, recipe.output.index, "output")
    let size = recipe.outputSize(forInputWidth: recipe.width, height: recipe.height)
    guard output.isFloat, recipe.takes(outputShape: output.shape, width: recipe.width, height: recipe.height) else {
      throw invalid(
        "its output is \(output.text); the recipe says \(size.width)×\(size.height) with "
          + "\(recipe.output.channels) channels, \(recipe.output.layout.rawValue), as 32-bit floats")
    }
  }

  /// Reads a model's file; the caller frees the model.
  private static func read(
    _ file: String, _ calibration: EightBitModel.Calibration?, named name: String, note: String?, runtime: Runtime
  ) throws(InferenceError) -> OpaquePointer {
    let (status, model) = try runtime.readModel(file, calibration)
    guard status == 0, let model else {
      throw InferenceError(
        .modelInvalid, "model \(name), \(file): OpenVINO cannot read it: \(runtime.reason(status))",
        hint: note ?? "ONNX, TFLite and OpenVINO IR files can be read")
    }
    return model
  }

  static func facts(ofFile file: String, runtime: Runtime) throws(InferenceError) -> ModelFacts {
    let api = runtime.api.pointee
    let model = try read(file, nil, named: "by path", note: nil, runtime: runtime)
    defer { api.model_free(model) }
    func shape(
      _ find: (OpaquePointer, Int, UnsafeMutablePointer<OpaquePointer?>) -> ovs_status, _ index: Int
    ) throws(InferenceError) -> ModelFacts.Shape {
      var port: OpaquePointer?
      var status = find(model, index, &port)
      guard status == 0, let port else {
        throw InferenceError(.modelInvalid, "\(file): \(runtime.reason(status))")
      }
      defer { api.output_const_port_free(port) }
      var shape = ovs_partial_shape()
      status = api.port_get_partial_shape(port, &shape)
      guard status == 0 else { throw InferenceError(.modelInvalid, "\(file): \(runtime.reason(status))") }
      defer { api.partial_shape_free(&shape) }
      // An open number of dimensions has none to read.
      guard shape.rank.min == shape.rank.max, shape.rank.min > 0, let dims = shape.dims else { return [] }
      return (0..<Int(shape.rank.min)).map { dims[$0].min == dims[$0].max ? Int(exactly: dims[$0].min) : nil }
        .map { side in side.flatMap { $0 > 0 ? $0 : nil } }
    }
    var inputs = 0
    var outputs = 0
    _ = api.model_inputs_size(model, &inputs)
    _ = api.model_outputs_size(model, &outputs)
    guard inputs == 1 else {
      throw InferenceError(
        .modelInvalid, "\(file) has \(inputs) inputs; models with one picture as input are understood")
    }
    var shapes: [ModelFacts.Shape] = []
    for index in 0..<outputs { shapes.append(try shape(api.model_const_output_by_index, index)) }
    return ModelFacts(input: try shape(api.model_const_input_by_index, 0), outputs: shapes)
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
    _ find: (OpaquePointer, Int, UnsafeMutablePointer<OpaquePointer?>) -> ovs_status, _ index: Int, _ what: String,
    isOpen: Bool = false
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
    let typed = api.port_get_element_type(port, &type)
    if isOpen, typed == 0 { return Port(shape: [], isFloat: type == OVS_F32) }
    let shaped = api.const_port_get_shape(port, &shape)
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
  ///
  /// - Parameters:
  ///   - rgb: the picture at the input's size.
  ///   - width, height: that size in pixels.
  func run(_ rgb: UnsafeBufferPointer<UInt8>, width: Int, height: Int) throws(InferenceError) -> [Float] {
    let api = model.runtime.api.pointee
    if recipe.sizeRule != nil { try setInput(width: width, height: height) }
    let input = try tensor(api.infer_request_get_input_tensor_by_index, 0, count: width * height * 3)
    defer { api.tensor_free(input.tensor) }
    recipe.fillInput(input.values, from: rgb)
    let status = api.infer_request_infer(request)
    guard status == 0 else { throw failed(status) }
    let size = recipe.outputSize(forInputWidth: width, height: height)
    let output = try tensor(
      api.infer_request_get_output_tensor_by_index, recipe.output.index,
      count: size.width * size.height * recipe.output.channels)
    defer { api.tensor_free(output.tensor) }
    // Sizes that follow the picture could not be checked before.
    if recipe.sizeRule != nil { try checkShape(of: output.tensor, width: width, height: height) }
    return Array(output.values)
  }

  /// Gives the request an input tensor of a picture's own size.
  private func setInput(width: Int, height: Int) throws(InferenceError) {
    let api = model.runtime.api.pointee
    var dims = recipe.inputShape(width: width, height: height)
    var tensor: OpaquePointer?
    var status = dims.withUnsafeMutableBufferPointer {
      api.tensor_create(OVS_F32, ovs_shape(rank: 4, dims: $0.baseAddress), &tensor)
    }
    guard status == 0, let tensor else { throw failed(status) }
    // The request holds on to it.
    defer { api.tensor_free(tensor) }
    status = api.infer_request_set_input_tensor_by_index(request, 0, tensor)
    guard status == 0 else { throw failed(status) }
  }

  private func checkShape(of tensor: OpaquePointer, width: Int, height: Int) throws(InferenceError) {
    let api = model.runtime.api.pointee
    var shape = ovs_shape()
    let status = api.tensor_get_shape(tensor, &shape)
    guard status == 0 else { throw failed(status) }
    defer { _ = api.shape_free(&shape) }
    let found = Array(UnsafeBufferPointer(start: shape.dims, count: Int(shape.rank)))
    guard recipe.takes(outputShape: found, width: width, height: height) else {
      throw InferenceError(
        .modelInvalid,
        "model \(recipe.name): its output is \(describe(found)) for an input of \(width)×\(height), which its recipe "
          + "does not say")
    }
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
