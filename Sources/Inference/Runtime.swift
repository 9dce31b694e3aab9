import COpenVINO
import Synchronization

/// OpenVINO, opened: its functions, its version and its one core object.
///
/// `@unchecked Sendable`: the table of functions and the core are set once and never changed or freed, and OpenVINO's
/// core may be used by several threads at once (its documentation says so of `ov::Core`).
final class Runtime: @unchecked Sendable {
  /// The versions whose C interface this program knows.
  static let acceptedVersion = "2026."

  let api: UnsafePointer<ovs_api>
  let core: OpaquePointer
  /// As OpenVINO writes it: `2026.4.1-22982-…`.
  let version: String
  /// Whether this CPU computes in bf16 natively.
  let hasBF16: Bool
  /// Whether it multiplies 8-bit integers faster than floats.
  let hasInt8: Bool

  /// One runtime for each library opened. Never emptied: OpenVINO's threads live as long as the process.
  private static let opened = Mutex<[String: Runtime]>([:])

  /// Opens the library at `path`, or takes the one opened before.
  ///
  /// Throws `runtimeMissing` when it does not open, or lacks something, `runtimeVersion` when it is of another version.
  static func open(_ path: String) throws(InferenceError) -> Runtime {
    // The lock is held while opening, on purpose: two threads must not make two cores. Nothing here can hang but the
    // loader itself, and then nobody else could do better.
    let result: Result<Runtime, InferenceError> = opened.withLock { opened in
      if let runtime = opened[path] { return .success(runtime) }
      do throws(InferenceError) {
        let runtime = try Runtime(path: path)
        opened[path] = runtime
        return .success(runtime)
      } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }

  private init(path: String) throws(InferenceError) {
    var table: UnsafePointer<ovs_api>?
    var text = [CChar](repeating: 0, count: 1024)
    let outcome = ovs_open(path, Self.acceptedVersion, &table, &text, text.count)
    let said = text.withUnsafeBytes { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    switch outcome {
    case OVS_OPENED: break
    case OVS_OTHER_VERSION:
      throw InferenceError(
        .runtimeVersion, "\(path) is OpenVINO \(said); this program works with \(Self.acceptedVersion)x",
        hint: "`make demo` installs the right version; PIPELINE_OPENVINO names the folder of another")
    case OVS_NO_SYMBOL:
      throw InferenceError(
        .runtimeMissing, "\(path) lacks the function \(said), so it is no OpenVINO \(Self.acceptedVersion)x",
        hint: "install the runtime afresh with `make demo`")
    default:
      throw InferenceError(
        .runtimeMissing, "OpenVINO does not open: \(said)",
        hint: "the folder must hold all of the runtime's libraries; `make demo` installs them")
    }
    guard let table else { throw InferenceError(.runtimeMissing, "OpenVINO does not open: \(path)") }
    api = table

    var versions = ovs_version()
    _ = api.pointee.get_openvino_version(&versions)
    version = versions.build.map { String(cString: $0) } ?? "unknown"
    api.pointee.version_free(&versions)

    var core: OpaquePointer?
    let status = api.pointee.core_create(&core)
    guard status == 0, let core else {
      throw InferenceError(.runtimeMissing, "OpenVINO does not start: \(Self.reason(status, api))")
    }
    self.core = core
    let folder = path.lastIndex(of: "/").map { String(path[..<$0]) } ?? "."
    var value: UnsafeMutablePointer<CChar>?
    let found = api.pointee.core_get_property(core, "CPU", "OPTIMIZATION_CAPABILITIES", &value)
    guard found == 0, let value else {
      let reason = Self.reason(found, api)
      api.pointee.core_free(core)
      throw InferenceError(
        .runtimeMissing, "OpenVINO in \(folder) finds no CPU to run on: \(reason)",
        hint: "the folder must hold libopenvino_intel_cpu_plugin.so; `make demo` installs it")
    }
    let capabilities = String(cString: value).split(separator: " ")
    hasBF16 = capabilities.contains("BF16")
    hasInt8 = capabilities.contains("INT8")
    api.pointee.free(value)
  }

  /// OpenVINO's own words for a failed call, on one line.
  ///
  /// The text is one per process: two calls that fail at once may get each other's. The caller's message says what
  /// failed on what; this is detail.
  func reason(_ status: ovs_status) -> String { Self.reason(status, api) }

  private static func reason(_ status: ovs_status, _ api: UnsafePointer<ovs_api>) -> String {
    let general = api.pointee.get_error_info(status).map { String(cString: $0) } ?? "error \(status)"
    guard let last = api.pointee.get_last_err_msg() else { return general }
    defer { api.pointee.free(last) }
    // "Exception from src/core/…:90:\nCheck '…' failed at src/…:\nFrontEnd API failed: …": the places in OpenVINO's
    // sources help no one here.
    let lines = String(cString: last).split(separator: "\n").filter {
      !$0.hasPrefix("Exception from ") && !$0.hasPrefix("[ ")
        && !($0.hasPrefix("Check '") && $0.contains(" failed at "))
    }
    return lines.isEmpty ? general : lines.joined(separator: "; ")
  }
}
