import CPlugin
import CSystem
import Digest
import Glibc
import Imaging
import JobSyntax
import PipelineKit

/// A stage that was loaded from a shared library; see `pipeline_plugin.h`.
public final class Plugin: @unchecked Sendable {
  // Unchecked: the library's description is constant and lives as long as the process, and the handle is only read.
  let handle: OpaquePointer
  let file: PathBytes
  let spec: PluginSpec
  /// The SHA-256 of the file, 64 hex digits; empty where it cannot be read.
  let sha256: String

  /// Opens a plugin. Its code runs from here on.
  ///
  /// - Parameter path: absolute, so that nothing is searched for.
  /// - Throws: an error of class `environment` that names the file: `plugin-missing`, `plugin-unloadable`,
  ///   `plugin-entry`, `plugin-abi`, `plugin-libvips`, `plugin-spec`, `plugin-name`.
  public init(_ path: PathBytes) throws(StageError) {
    let name = path.printable
    func refusal(_ code: String, _ message: String, cause: String? = nil, hint: String? = nil) -> StageError {
      StageError(code, message, kind: .environment, cause: cause, hint: hint)
    }
    var status = stat()
    guard path.withCString({ stat($0, &status) }) == 0 else {
      throw refusal("plugin-missing", "plugin \(name) cannot be opened", cause: String(cString: strerror(errno)))
    }
    guard status.st_mode & S_IFMT == S_IFREG else {
      throw refusal("plugin-missing", "plugin \(name) is no file")
    }
    // Its own handle on libvips' types is the program's: the library is started before anyone's code asks for it.
    try StageError.imaging { () throws(ImagingError) in try Libvips.start() }
    // Before it is opened: should it be replaced meanwhile, pictures are made once more, and never too seldom.
    sha256 = Self.digest(of: path)
    var opened: OpaquePointer?
    var abi: UInt32 = 0
    var text = [CChar](repeating: 0, count: 2048)
    let state = Self.guarding("plugin \(name) was being opened") {
      path.withCString { cplugin_open($0, &opened, &abi, &text, text.count) }
    }
    let problem = String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    switch state {
    case CPLUGIN_OPEN: break
    case CPLUGIN_NO_ENTRY:
      throw refusal(
        "plugin-entry", "plugin \(name) is a library without pipeline_plugin: it is no plugin of this program",
        hint: "it may have to be exported: PIPELINE_PLUGIN_EXPORT")
    case CPLUGIN_NOTHING: throw refusal("plugin-entry", "plugin \(name) does not describe itself")
    case CPLUGIN_OTHER_ABI:
      throw refusal(
        "plugin-abi",
        "plugin \(name) was built for version \(abi) of the plugin interface, and this program has "
          + "\(cplugin_abi())", hint: "build it again with this program's pipeline_plugin.h")
    case CPLUGIN_INCOMPLETE:
      throw refusal("plugin-abi", "plugin \(name) lacks create or process, or is shorter than its version says")
    default: throw refusal("plugin-unloadable", "plugin \(name) cannot be loaded", cause: problem)
    }
    guard let opened else { throw refusal("plugin-unloadable", "plugin \(name) cannot be loaded", cause: problem) }
    let built = "\(cplugin_vips_major(opened)).\(cplugin_vips_minor(opened))"
    let ours = Libvips.version.split(separator: ".").prefix(2).joined(separator: ".")
    guard built == ours else {
      throw refusal(
        "plugin-libvips", "plugin \(name) was built for libvips \(built), and this program runs with \(ours)",
        hint: "build it again on this machine")
    }
    guard let json = cplugin_spec(opened), let text = String(validatingCString: json) else {
      throw refusal("plugin-spec", "plugin \(name) has no spec in UTF-8")
    }
    spec = try PluginSpec(text, file: name)
    handle = opened
    file = path
  }

  /// Runs code of a plugin before there is an item to blame: a crash or a call of `exit` is put down to it by name.
  static func guarding<T>(_ what: String, _ body: () -> T) -> T {
    what.withCString { text in
      csystem_guard_begin(text)
      defer { csystem_guard_end() }
      return body()
    }
  }

  private static func digest(of file: PathBytes) -> String {
    let descriptor = file.withCString { open($0, O_RDONLY | O_CLOEXEC) }
    guard descriptor >= 0 else { return "" }
    defer { close(descriptor) }
    guard case .success(let bytes) = SHA256.digest(ofFile: descriptor) else { return "" }
    return Hex.text(bytes)
  }

  /// The stage as a registry takes it.
  public var descriptor: StageDescriptor {
    StageDescriptor(
      spec: spec.stage, origin: file, plan: { [spec] settings in Self.plan(spec, settings) },
      ingredients: { _ in ["plugin": self.sha256] },
      make: { (settings, resources) throws(StageError) in try PluginStage(self, settings, resources) })
  }

  private static func plan(_ spec: PluginSpec, _ settings: Settings) -> StagePlan {
    var removes = spec.removes.union(.encoded)
    if spec.movesPixels, !spec.produces.contains(.matte) { removes.insert(.matte) }
    var plan = StagePlan(accepts: spec.accepts, produces: spec.produces.union(.picture), removes: removes)
    plan.uses = [.matte]
    // Whoever asks now and then is not given up while giving up.
    plan.endsWithin = 2
    plan.mostDepth = spec.mostDepth
    if spec.movesPixels {
      plan.movesPixels = true
      // How large the result is shows only in the run; that it may be another size, planning has to know.
      plan.resultSize = { width, height in (width, height) }
    }
    plan.workingBytes = { width, height in width * height * (spec.bytesPerPixel + 8) }
    plan.helperFiles = spec.stage.fields.compactMap { field in
      guard case .text(.path) = field.type else { return nil }
      let chosen = settings.nodes[field.name]?.stringValue ?? Self.absent(field)
      return chosen.map(Template.literal)
    }
    return plan
  }
}

extension Plugin {
  /// What a field is where a job does not name it, if that is a text.
  private static func absent(_ field: any FieldDeclaration) -> String? {
    guard let declared = field as? Field<JSONText>, case .string(let text)? = declared.absent else { return nil }
    return text
  }
}

extension StageRegistry {
  /// Adds the stage of a plugin. One that is there already, from the same file, is left as it is.
  ///
  /// - Parameters:
  ///   - path: as it was written; a name without a slash is a file of `folder` too, and nothing is searched for.
  ///   - folder: absolute; where relative paths start.
  /// - Throws: as `Plugin.init`, and `plugin-name-taken`.
  /// - Returns: the stage's name.
  @discardableResult
  public mutating func load(plugin path: String, from folder: PathBytes) throws(StageError) -> String {
    let file = folder.joining(PathBytes(String(path.trimmingPrefix("./"))))
    let plugin = try Plugin(file)
    let name = plugin.spec.stage.name
    if let there = self[name] {
      if let origin = there.origin, Self.isSame(origin, file) { return name }
      let owner = there.origin.map { "plugin \($0.printable)" } ?? "the program itself"
      throw StageError(
        "plugin-name-taken", "plugin \(file.printable) calls its stage \"\(name)\", and so does \(owner)",
        kind: .environment, hint: "load one of them")
    }
    do throws(StageError) {
      try register(plugin.descriptor)
    } catch {
      throw StageError(
        "plugin-spec", "plugin \(file.printable) cannot be taken: \(error.message)", kind: .environment,
        hint: error.hint)
    }
    return name
  }

  private static func isSame(_ a: PathBytes, _ b: PathBytes) -> Bool {
    var (first, second) = (stat(), stat())
    return a.withCString { stat($0, &first) } == 0 && b.withCString { stat($0, &second) } == 0
      && first.st_dev == second.st_dev && first.st_ino == second.st_ino
  }
}
