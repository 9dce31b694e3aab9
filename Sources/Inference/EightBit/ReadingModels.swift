import COpenVINO
import Glibc

extension EightBitModel.Calibration {
  /// That of a file, by its SHA-256; nil where none was made.
  static func of(_ sha256: String) -> Self? { all.first { $0.sha256 == sha256 } }
}

extension Runtime {
  /// What `fast` is for a file: `int8` where its ranges are known, else `bf16` where the processor has it, else `f32`.
  func fastPrecision(of sha256: String?) -> String {
    if hasInt8, let sha256, EightBitModel.Calibration.of(sha256) != nil { return "int8" }
    return hasBF16 ? "bf16" : "f32"
  }

  /// Reads a model into OpenVINO, in 8 bits where there is a calibration of its file.
  ///
  /// - Returns: OpenVINO's status; on success the model, to be freed by the caller.
  /// - Throws: `modelInvalid` where the calibration is not one of the file's.
  func readModel(
    _ file: String, _ calibration: EightBitModel.Calibration?
  ) throws(InferenceError) -> (status: ovs_status, model: OpaquePointer?) {
    var model: OpaquePointer?
    guard let calibration else { return (api.pointee.core_read_model(core, file, nil, &model), model) }
    guard let bytes = Self.bytes(of: file), let quantised = EightBitModel.quantised(bytes, calibration) else {
      throw InferenceError(
        .modelInvalid, "\(file) changed while it was read", hint: "\"precision\": \"f32\" reads it as it is")
    }
    let status = quantised.withUnsafeBytes { raw in
      raw.withMemoryRebound(to: CChar.self) { text in
        guard let start = text.baseAddress else { return ovs_status(-1) }
        return api.pointee.core_read_model_from_memory_buffer(core, start, text.count, nil, &model)
      }
    }
    return (status, model)
  }

  private static func bytes(of path: String) -> [UInt8]? {
    guard let file = fopen(path, "re") else { return nil }
    defer { fclose(file) }
    var bytes: [UInt8] = []
    let piece = 1 << 20
    while true {
      let part = [UInt8](unsafeUninitializedCapacity: piece) { buffer, count in
        count = fread(buffer.baseAddress, 1, piece, file)
      }
      bytes += part
      if part.count < piece { return ferror(file) == 0 ? bytes : nil }
    }
  }
}
