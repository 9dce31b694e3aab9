import CVips
import Glibc
import Synchronization

/// The library as a whole: start, threads, memory.
public enum Libvips {
  private static let started = Mutex<Bool>(false)
  private static let warnings = Mutex<[String]>([])
  static let live = Atomic<Int>(0)

  /// Starts libvips, once; further calls do nothing.
  ///
  /// Turns the operation cache off and keeps libvips' warnings from standard error (`drainWarnings`). Everything in
  /// this module that makes an image calls it.
  /// - Throws: `internalFault` where libvips will not start.
  public static func start() throws(ImagingError) {
    let failure: ImagingError? = started.withLock { started in
      guard !started else { return nil }
      g_log_set_default_handler({ _, level, message, _ in Libvips.note(level, message) }, nil)
      let status = cvips_init()
      // libvips may have set a handler of its own that swallows warnings; what is set later comes first.
      for domain in ["VIPS", "GLib", "GLib-GObject"] {
        let levels = GLogLevelFlags(rawValue: 0b1_1100)
        g_log_set_handler(domain, levels, { _, level, message, _ in Libvips.note(level, message) }, nil)
      }
      guard status == 0 else {
        return ImagingError(
          .internalFault, "libvips could not be started", detail: drainErrors(),
          hint: "check the installation of libvips: vips --version")
      }
      // libvips 8.14 compiles some loops at run time with Orc. Used from several threads they crashed now and then: one
      // picture's loop read through another's pointers. The plain loops cost a third more time in resizes.
      vips_vector_set_enabled(0)
      // Pictures of a batch are all different: the cache would only hold memory.
      vips_cache_set_max(0)
      // Files are opened by named loaders only; these are shut all the same, in case one loader calls another.
      for name in blockedLoaders { vips_operation_block_set(name, 1) }
      started = true
      return nil
    }
    if let failure { throw failure }
  }

  private static let blockedLoaders = [
    "VipsForeignLoadCsv", "VipsForeignLoadMatrix", "VipsForeignLoadRaw", "VipsForeignLoadVips",
    "VipsForeignLoadAnalyze", "VipsForeignLoadPpm", "VipsForeignLoadRad", "VipsForeignLoadMat",
    "VipsForeignLoadFits", "VipsForeignLoadOpenexr", "VipsForeignLoadNifti", "VipsForeignLoadOpenslide",
    "VipsForeignLoadMagick",
  ]

  /// Such as "8.14.1".
  public static var version: String {
    "\(vips_version(0)).\(vips_version(1)).\(vips_version(2))"
  }

  /// libvips threads per picture, from now on; 1 or more.
  public static func setConcurrency(_ threads: Int) {
    try? start()
    vips_concurrency_set(Int32(clamping: max(1, threads)))
  }

  /// Frees what libvips keeps for the calling thread. Call it when a worker ends.
  public static func threadShutdown() {
    // Before vips_init the thread-local slots it would free do not exist.
    guard started.withLock({ $0 }) else { return }
    vips_thread_shutdown()
  }

  /// Bytes of pixel memory that libvips holds now.
  public static var trackedBytes: Int { Int(vips_tracked_get_mem()) }
  /// The most pixel memory that libvips has held at once, in bytes.
  public static var trackedBytesPeak: Int { Int(vips_tracked_get_mem_highwater()) }

  /// libvips images held by this module now; 0 when every image was let go.
  public static var liveImages: Int { live.load(ordering: .relaxed) }

  /// Whether this build of libvips has an operation, by nickname (`heifload_source`, `webpsave_buffer` …).
  public static func supports(_ nickname: String) -> Bool {
    try? start()
    return vips_type_find("VipsOperation", nickname) != 0
  }

  /// libvips' warnings since the last call, oldest first, the last 256 at most. They cannot be told apart by picture.
  public static func drainWarnings() -> [String] {
    warnings.withLock { list in
      defer { list = [] }
      return list
    }
  }

  /// Runs `body` and returns the warnings given on this thread meanwhile.
  ///
  /// libvips warns while an operation is built, on the thread that builds it; only evaluation runs elsewhere.
  static func capturingWarnings<R, E: Error>(_ body: () throws(E) -> R) throws(E) -> (R, [String]) {
    let thread = UInt(pthread_self())
    captures.withLock { $0[thread] = [] }
    defer { captures.withLock { _ = $0.removeValue(forKey: thread) } }
    let result = try body()
    return (result, captures.withLock { $0[thread] ?? [] })
  }

  private static let captures = Mutex<[UInt: [String]]>([:])

  private static func note(_ level: GLogLevelFlags, _ message: UnsafePointer<CChar>?) {
    // Levels: 2 error, 3 critical, 4 warning; anything chattier is dropped.
    guard level.rawValue & 0b1_1100 != 0, let message else { return }
    let text = String(cString: message)
    let thread = UInt(pthread_self())
    let isCaptured = captures.withLock { captures in
      captures[thread]?.append(text) != nil
    }
    guard !isCaptured else { return }
    warnings.withLock { list in
      if list.count == 256 { list.removeFirst() }
      list.append(text)
    }
  }

  /// Takes libvips' error text and empties the buffer, in one step.
  ///
  /// The buffer belongs to the whole process. With `words` only those lines are kept whose first part, the name of the
  /// operation, contains one of them; so that another picture's lines mostly stay out.
  static func drainErrors(about words: [String] = []) -> String {
    guard let text = vips_error_buffer_copy() else { return "" }
    defer { g_free(text) }
    var kept: [String] = []
    for line in String(cString: text).split(separator: "\n") {
      let trimmed = line.drop { $0 == " " }
      let domain = trimmed.prefix { $0 != ":" }.lowercased()
      guard words.isEmpty || words.contains(where: { domain.contains($0) }) else { continue }
      if !kept.contains(where: { $0 == trimmed }) { kept.append(String(trimmed)) }
    }
    return kept.suffix(4).joined(separator: "; ")
  }
}

/// One counted reference to a libvips image.
final class VipsRef: @unchecked Sendable {
  // Unchecked: a VipsImage is immutable once built, its reference count is atomic, and libvips locks its own caches.
  let pointer: UnsafeMutablePointer<VipsImage>

  init(adopting pointer: UnsafeMutablePointer<VipsImage>) {
    self.pointer = pointer
    Libvips.live.add(1, ordering: .relaxed)
  }

  deinit {
    cvips_unref(pointer)
    Libvips.live.subtract(1, ordering: .relaxed)
  }

  var width: Int { Int(vips_image_get_width(pointer)) }
  var height: Int { Int(vips_image_get_height(pointer)) }
  var bands: Int { Int(vips_image_get_bands(pointer)) }
  var format: VipsBandFormat { vips_image_get_format(pointer) }
  var interpretation: VipsInterpretation { vips_image_guess_interpretation(pointer) }
  var hasAlpha: Bool { pointer.pointee.Coding == VIPS_CODING_NONE && vips_image_hasalpha(pointer) != 0 }
  /// Whether the pixels lie in memory already.
  var isInMemory: Bool {
    pointer.pointee.dtype == VIPS_IMAGE_SETBUF || pointer.pointee.dtype == VIPS_IMAGE_SETBUF_FOREIGN
  }

  /// Has the image, which nobody else may have yet, computed by one thread.
  ///
  /// libvips 8.14 looks for errors before all of its threads are done, so that with several of them damage in the last
  /// piece of a picture can go unseen (mended by its pull request 4116).
  func limitToOneThread() { vips_image_set_int(pointer, VIPS_META_CONCURRENCY, 1) }

  func has(_ field: String) -> Bool { cvips_has(pointer, field) != 0 }

  func int(_ field: String) -> Int? {
    var value: Int32 = 0
    guard has(field), vips_image_get_int(pointer, field, &value) == 0 else { return nil }
    return Int(value)
  }

  func ints(_ field: String) -> [Int] {
    var values: UnsafeMutablePointer<Int32>?
    var count: Int32 = 0
    guard has(field), vips_image_get_array_int(pointer, field, &values, &count) == 0, let values else { return [] }
    return (0..<Int(count)).map { Int(values[$0]) }
  }

  func string(_ field: String) -> String? {
    var value: UnsafePointer<CChar>?
    guard has(field), vips_image_get_string(pointer, field, &value) == 0, let value else { return nil }
    return String(cString: value)
  }

  func blob(_ field: String) -> [UInt8]? {
    var data: UnsafeRawPointer?
    var length = 0
    guard has(field), vips_image_get_blob(pointer, field, &data, &length) == 0, let data else { return nil }
    return Array(UnsafeRawBufferPointer(start: data, count: length))
  }

  var fields: [String] {
    guard let names = vips_image_get_fields(pointer) else { return [] }
    defer { g_strfreev(names) }
    var result: [String] = []
    var i = 0
    while let name = names[i] {
      result.append(String(cString: name))
      i += 1
    }
    return result
  }
}

typealias VipsOut = UnsafeMutablePointer<UnsafeMutablePointer<VipsImage>?>

/// The one way by which libvips makes an image for us: turns its status into an error with our message.
func vips(
  _ what: @autoclosure () -> String, _ code: ImagingError.Code = .internalFault, about words: [String] = [],
  _ call: (VipsOut) -> Int32
) throws(ImagingError) -> VipsRef {
  var out: UnsafeMutablePointer<VipsImage>?
  guard call(&out) == 0, let out else {
    throw ImagingError(code, "\(what()) failed", detail: Libvips.drainErrors(about: words))
  }
  return VipsRef(adopting: out)
}
