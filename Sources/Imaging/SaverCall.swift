import CVips

/// One call of a libvips saver: made by nickname, its arguments set by libvips' own names, run once.
struct SaverCall: ~Copyable {
  private var operation: UnsafeMutablePointer<VipsOperation>?
  private let nickname: String

  /// - Throws: `encoder` where this build of libvips has no such saver.
  init(_ nickname: String, _ image: VipsRef) throws(ImagingError) {
    self.nickname = nickname
    guard let operation = cvips_saver_new(nickname, image.pointer) else {
      throw ImagingError(
        .encoder, "this build of libvips has no \(nickname)", detail: Libvips.drainErrors(),
        hint: "install a libvips with it")
    }
    self.operation = operation
  }

  deinit { if let operation { cvips_unref(operation) } }

  /// Sets an argument; an enumerated one by its number, flags by their sum.
  ///
  /// - Throws: `internalFault` where the saver has no such argument, or one of another kind.
  mutating func set(_ name: String, _ value: Double) throws(ImagingError) {
    guard cvips_saver_set(operation, name, value) == 0 else {
      throw ImagingError(.internalFault, "\(nickname) of this libvips has no argument \(name)")
    }
  }

  mutating func set(_ name: String, _ value: Int) throws(ImagingError) { try set(name, Double(value)) }
  mutating func set(_ name: String, _ value: Bool) throws(ImagingError) { try set(name, value ? 1.0 : 0) }

  /// Encodes; nil where the saver fails, with its text in libvips' error buffer.
  consuming func run() -> (memory: UnsafeMutableRawPointer, length: Int)? {
    var memory: UnsafeMutableRawPointer?
    var length = 0
    guard let saver = operation else { return nil }
    operation = nil
    guard cvips_saver_run(saver, &memory, &length) == 0, let memory, length > 0 else {
      if let memory { g_free(memory) }
      return nil
    }
    return (memory, length)
  }
}
