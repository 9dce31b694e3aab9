import Glibc

/// Where models and the inference runtime are kept, and every other place they are looked for.
///
/// The root is `$PIPELINE_HOME`, else `$XDG_DATA_HOME/pipeline`, else `$HOME/.local/share/pipeline`, else the same
/// under the home folder of the password database, so that an empty environment (cron) finds what a shell finds.
/// A program laid by `make install PREFIX=…` also looks beside itself, in `PREFIX/share/pipeline` and
/// `PREFIX/lib/pipeline`.
public struct PipelineHome: Sendable, Hashable {
  /// The folder that everything is kept under.
  public let root: String
  /// A folder with OpenVINO's libraries named by `$PIPELINE_OPENVINO`; when set, no other is looked at.
  public let chosenRuntime: String?
  /// The folder that the running program was installed under, or nil when it is not known.
  public let prefix: String?

  /// The folder for OpenVINO's libraries, below `runtime` folders: the version that the program is tested with.
  public static let runtimeName = "openvino-2026.4.1"

  /// - Parameters:
  ///   - variable: reads one environment variable.
  ///   - executable: the absolute path of the running program.
  public init(variable: (String) -> String?, executable: String? = nil) {
    func value(_ name: String) -> String? {
      guard let text = variable(name), !text.isEmpty else { return nil }
      return text
    }
    if let home = value("PIPELINE_HOME") {
      root = home
    } else if let data = value("XDG_DATA_HOME"), data.hasPrefix("/") {
      // A relative path in it is invalid and to be ignored, says the XDG base directory specification.
      root = data + "/pipeline"
    } else {
      let home = value("HOME") ?? Self.homeOfUser() ?? "/"
      root = (home == "/" ? "" : home) + "/.local/share/pipeline"
    }
    chosenRuntime = value("PIPELINE_OPENVINO")
    // PREFIX/bin/pipeline → PREFIX
    if let executable, let bin = Self.parent(of: executable), let above = Self.parent(of: bin) {
      prefix = above == "/" ? "" : above
    } else {
      prefix = nil
    }
  }

  /// The places as this process's environment and program give them.
  public static var current: PipelineHome {
    PipelineHome(variable: { name in getenv(name).map { String(cString: $0) } }, executable: runningProgram())
  }

  /// The folder that models are kept in.
  public var models: String { root + "/models" }

  /// The folder that OpenVINO's libraries are kept in.
  public var runtime: String { root + "/runtime/" + Self.runtimeName }

  /// Every folder that a model is looked for in, in order.
  public var modelFolders: [String] {
    [models] + (prefix.map { [$0 + "/share/pipeline/models"] } ?? [])
  }

  /// Every folder that OpenVINO's libraries are looked for in, in order.
  public var runtimeFolders: [String] {
    if let chosenRuntime { return [chosenRuntime] }
    guard let prefix else { return [runtime] }
    return [runtime, prefix + "/lib/pipeline/runtime/" + Self.runtimeName, prefix + "/lib/pipeline/runtime"]
  }

  /// The path of OpenVINO's C library: the first found in `runtimeFolders`, the newest there.
  ///
  /// Looks at names only; nothing is opened. Throws `runtimeMissing`, naming every place looked in.
  public func locateRuntime() throws(InferenceError) -> String {
    for folder in runtimeFolders {
      let libraries = Self.names(in: folder).filter { $0.hasPrefix("libopenvino_c.so") }
      if let newest = libraries.max() { return folder + "/" + newest }
    }
    let places = runtimeFolders.joined(separator: ", ")
    if chosenRuntime != nil {
      throw InferenceError(
        .runtimeMissing, "OpenVINO was not found in \(places), the folder that PIPELINE_OPENVINO names",
        hint: "the folder must hold libopenvino_c.so and the libraries that come with it; "
          + "unset PIPELINE_OPENVINO to use the installed ones")
    }
    throw InferenceError(
      .runtimeMissing, "OpenVINO, which runs local models, was not found; looked in \(places)",
      hint: "`make demo` installs it; `pipeline doctor` shows what is found")
  }

  private static func homeOfUser() -> String? {
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: 16_384) { text in
      var entry = passwd()
      var found: UnsafeMutablePointer<passwd>?
      guard let start = text.baseAddress, getpwuid_r(getuid(), &entry, start, text.count, &found) == 0, found != nil,
        let folder = entry.pw_dir
      else { return nil }
      return String(cString: folder)
    }
  }

  private static func runningProgram() -> String? {
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(PATH_MAX)) { text in
      guard let start = text.baseAddress else { return nil }
      let count = readlink("/proc/self/exe", start, text.count)
      guard count > 0, count < text.count else { return nil }
      return String(decoding: UnsafeRawBufferPointer(start: start, count: count), as: UTF8.self)
    }
  }

  private static func parent(of path: String) -> String? {
    guard path.hasPrefix("/"), let slash = path.lastIndex(of: "/"), path != "/" else { return nil }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  private static func names(in folder: String) -> [String] {
    guard let stream = opendir(folder) else { return [] }
    defer { closedir(stream) }
    var names: [String] = []
    while let entry = readdir(stream) {
      names.append(
        withUnsafeBytes(of: entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) })
    }
    return names
  }
}
