import CPlugin
import Glibc
@_spi(Plugins) import Imaging
import JobSyntax
import PipelineKit
import Synchronization

/// A plugin's instance for one stage of a job.
final class PluginStage: ReadyStage, @unchecked Sendable {
  // Unchecked: the instance is the plugin's, which promises that it can be called by several threads at once.
  private let instance: UnsafeMutableRawPointer
  private let plugin: Plugin
  private let name: String
  private let limits: DecodeLimits
  private let calls = Mutex((inside: 0, isOver: false))

  /// - Throws: an error of class `environment` with what the plugin says.
  init(_ plugin: Plugin, _ settings: Settings, _ resources: StageResources) throws(StageError) {
    self.plugin = plugin
    name = plugin.spec.stage.name
    limits = resources.decodeLimits
    let handed = Self.settings(plugin.spec.stage, settings, resources.run.baseFolder)
    defer { cplugin_settings_free(handed) }
    var error = CPluginError()
    let made = Plugin.guarding("plugin \(plugin.file.printable) was being made ready") {
      cplugin_create(plugin.handle, handed, &error)
    }
    guard let instance = made else {
      var failure = Self.failure(error, of: name)
      failure.kind = .environment
      throw failure
    }
    self.instance = instance
    resources.facts.set(
      "version.\(name)", .string("\(plugin.spec.stage.version), SHA-256 \(plugin.sha256)"))
  }

  func finish() throws(StageError) {
    // A call that hangs is still inside: what it works with is left to it.
    let isFree = calls.withLock { calls in
      let isFree = !calls.isOver && calls.inside == 0
      calls.isOver = true
      return isFree
    }
    if isFree { cplugin_destroy(plugin.handle, instance) }
  }

  func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let isOver = calls.withLock { calls in
      if !calls.isOver { calls.inside += 1 }
      return calls.isOver
    }
    guard !isOver else { throw StageError("internal-fault", "plugin \(name) was called after its end", kind: .job) }
    defer { calls.withLock { $0.inside -= 1 } }
    return try work(on: item, in: context)
  }

  private func work(on item: Item, in context: StageContext) throws(StageError) -> Outcome {
    var picture = try item.image(in: context)
    if picture.bands < 3, !plugin.spec.takesMasks {
      context.warn("mask-passed", "the picture is a mask, which \(name) does not take; it passes unchanged")
      return .next(item.with(image: picture))
    }
    if picture.depth > plugin.spec.mostDepth {
      let deep = picture
      picture = try StageError.imaging { () throws(ImagingError) in
        try deep.withDepth(plugin.spec.mostDepth).materialised()
      }
    }
    let still = picture
    let (input, matte) = try StageError.imaging { () throws(ImagingError) in
      (try still.materialised(), try item.matte?.materialised())
    }
    let (result, resultMatte) = try call(input, matte, item, context)
    guard let result else {
      throw StageError("plugin-nothing", "plugin \(name) reported success and handed back no picture")
    }
    let image = try self.picture(result, from: input)
    let newMatte = try resultMatte.map { (foreign) throws(StageError) in
      try self.matte(foreign, for: image, unchanged: matte)
    }
    if plugin.spec.produces.contains(.matte), newMatte == nil, matte == nil || plugin.spec.movesPixels {
      throw StageError(
        "plugin-matte", "plugin \(name) handed back no matte, and its spec says that it gives one")
    }
    if newMatte != nil, matte == nil, !plugin.spec.produces.contains(.matte) {
      throw StageError(
        "plugin-matte", "plugin \(name) handed back a matte, and its spec does not say that it gives one")
    }
    // What lay over the picture pixel by pixel lies there no more.
    if plugin.spec.movesPixels { return .next(item.with(image: image, matte: newMatte, original: nil)) }
    let keptMatte = plugin.spec.removes.contains(.matte) ? newMatte : newMatte ?? item.matte
    return .next(item.with(image: image, matte: keptMatte, original: item.original, mattes: item.mattes))
  }

  /// Warnings and notes that are taken of one call, and bytes of each.
  private static let mostSaid = 20
  private static let mostBytes = 1024

  private static func text(_ pointer: UnsafePointer<CChar>) -> String {
    let count = strnlen(pointer, mostBytes + 1)
    let bytes = UnsafeRawBufferPointer(start: pointer, count: min(count, mostBytes))
    return String(decoding: bytes, as: UTF8.self) + (count > mostBytes ? " …" : "")
  }

  /// What a plugin asks and says during one call.
  private final class Call: Sendable {
    let context: StageContext
    let name: String
    private let said = Atomic<Int>(0)
    init(_ context: StageContext, _ name: String) { (self.context, self.name) = (context, name) }

    /// Whether one more warning or note is taken.
    func mayTalk() -> Bool { said.add(1, ordering: .relaxed).newValue <= PluginStage.mostSaid }

    static func at(_ pointer: UnsafeRawPointer?) -> Call? {
      pointer.map { Unmanaged<Call>.fromOpaque($0).takeUnretainedValue() }
    }
  }

  private func call(
    _ picture: Image, _ matte: Image?, _ item: Item, _ context: StageContext
  ) throws(StageError) -> (ForeignImage?, ForeignImage?) {
    let talk = Call(context, name)
    defer { withExtendedLifetime(talk) {} }
    var error = CPluginError()
    var (result, resultMatte): (UnsafeMutableRawPointer?, UnsafeMutableRawPointer?) = (nil, nil)
    let path = item.identity.name
    let status: Int32 = try StageError.imaging { () throws(ImagingError) in
      func passing(_ matte: UnsafeMutableRawPointer?) throws(ImagingError) -> Int32 {
        try picture.lent { picture in
          path.display.withCString { path in
            var shown = CPluginItem(
              path: path, index: UInt64(item.identity.inputIndex), seed: item.identity.name.stableHash,
              context: UnsafeRawPointer(Unmanaged.passUnretained(talk).toOpaque()),
              cancelled: { Call.at($0)?.context.isCancelled == true ? 1 : 0 },
              warn: { pointer, code, message in
                guard let call = Call.at(pointer), call.mayTalk(), let code, let message else { return }
                let word = PluginStage.code(String(cString: code)) ?? "plugin-warning"
                call.context.warn(word, PluginStage.sentence(PluginStage.text(message)))
              },
              note: { pointer, name, text in
                guard let call = Call.at(pointer), call.mayTalk(), let name, let text else { return }
                let label = PluginStage.sentence(PluginStage.text(name))
                call.context.note("\(call.name).\(label)", .string(ProgramWords.plain(PluginStage.text(text))))
              })
            return cplugin_process(
              plugin.handle, instance, &shown, picture, matte, &result, &resultMatte, &error)
          }
        }
      }
      guard let matte else { return try passing(nil) }
      return try matte.lent { (pointer) throws(ImagingError) in try passing(pointer) }
    }
    // Taken over first: what comes with an error is let go.
    let images = (result.map { ForeignImage(adopting: $0) }, resultMatte.map { ForeignImage(adopting: $0) })
    guard status == 0 else { throw Self.failure(error, of: name) }
    return images
  }

  /// A result held against what the spec says and what came in.
  private func picture(_ foreign: ForeignImage, from input: Image) throws(StageError) -> Image {
    let spec = plugin.spec
    if !spec.movesPixels, foreign.width != input.width || foreign.height != input.height {
      throw StageError(
        "plugin-size",
        "plugin \(name) made \(foreign.width)×\(foreign.height) pixels of \(input.width)×\(input.height), and its spec "
          + "does not say that it moves any")
    }
    guard foreign.width <= limits.maxSide, foreign.height <= limits.maxSide,
      foreign.width <= limits.maxPixels / foreign.height
    else {
      throw StageError(
        "limit", "plugin \(name) made \(foreign.width)×\(foreign.height) pixels, more than the limits allow",
        hint: "raise limits.maxPixels or limits.maxSide if that is meant")
    }
    guard foreign.depth == input.depth else {
      throw StageError(
        "plugin-depth",
        "plugin \(name) handed back samples of another kind: \(foreign.formatName) for \(input.depth) bits")
    }
    guard foreign.mayBeColour else {
      throw StageError(
        "plugin-colour", "plugin \(name) handed back a picture in another colour space: \(foreign.interpretationName)")
    }
    let mask = input.bands == 1
    guard mask ? foreign.bands == 1 : foreign.bands == 3 || foreign.bands == 4 else {
      throw StageError(
        "plugin-bands", "plugin \(name) handed back a picture of \(foreign.bands) bands for one of \(input.bands)")
    }
    if input.hasAlpha, foreign.bands == 3, !spec.removes.contains(.alpha) {
      throw StageError(
        "plugin-alpha", "plugin \(name) lost the picture's transparency, and its spec does not say that it removes it")
    }
    if !input.hasAlpha, foreign.bands == 4, !spec.produces.contains(.alpha) {
      throw StageError(
        "plugin-alpha", "plugin \(name) added transparency, and its spec does not say that it gives any")
    }
    return try computed(foreign, like: input, "picture")
  }

  private func matte(
    _ foreign: ForeignImage, for picture: Image, unchanged: Image?
  ) throws(StageError) -> Image {
    guard foreign.bands == 1, foreign.depth == 8, foreign.width == picture.width, foreign.height == picture.height
    else {
      throw StageError(
        "plugin-matte",
        "plugin \(name) handed back a matte of \(foreign.width)×\(foreign.height)×\(foreign.bands) "
          + "\(foreign.formatName) for a picture of \(picture.width)×\(picture.height); it must have 1 band of 8 bits "
          + "and the picture's sides")
    }
    let plain: Image
    if let unchanged {
      plain = unchanged
    } else {
      plain = try StageError.imaging { () throws(ImagingError) in try Image(width: 1, height: 1, bands: 1, bytes: [0]) }
    }
    return try computed(foreign, like: plain, "matte")
  }

  private func computed(_ foreign: ForeignImage, like: Image, _ what: String) throws(StageError) -> Image {
    do throws(ImagingError) {
      return try foreign.image(like: like)
    } catch {
      throw StageError(
        "plugin-pixels", "the pixels of the \(what) that plugin \(name) handed back cannot be computed",
        kind: error.code == .memory ? .temporary : .item, cause: error.description)
    }
  }

  private static func failure(_ error: CPluginError, of name: String) -> StageError {
    func text<T>(_ tuple: T) -> String {
      withUnsafeBytes(of: tuple) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    }
    let message = sentence(text(error.message))
    return StageError(
      code(text(error.code)) ?? "plugin-failed",
      message.isEmpty ? "plugin \(name) failed and did not say why" : "plugin \(name): \(message)",
      kind: error.is_temporary != 0 ? .temporary : .item)
  }

  /// A code in the form that reports promise; nil for anything else.
  private static func code(_ text: String) -> String? {
    let isCode =
      !text.isEmpty
      && text.utf8.allSatisfy { (0x61...0x7A).contains($0) || (0x30...0x39).contains($0) || $0 == 0x2D }
    return isCode ? text : nil
  }

  /// One line, without the full stop that our messages do not have.
  private static func sentence(_ text: String) -> String {
    var line = ProgramWords.plain(text).split(whereSeparator: \.isNewline).joined(separator: " ")
    while line.hasSuffix(".") || line.hasSuffix(" ") { line.removeLast() }
    return line
  }

  /// Every field that has a value or a default, as plugins read them.
  private static func settings(_ spec: StageSpec, _ settings: Settings, _ folder: PathBytes) -> OpaquePointer? {
    var members: [(String, JSONText)] = []
    for field in spec.fields {
      guard let declared = field as? Field<JSONText> else { continue }
      let value = settings[declared]
      if case .null = value { continue }
      if case .string(let text) = value {
        let plain = Template.literal(text)
        if case .text(.path) = field.type {
          let path = folder.joining(PathBytes(plain))
          members.append((field.name, .string(String(validating: path.bytes, as: UTF8.self) ?? path.display)))
        } else {
          members.append((field.name, .string(plain)))
        }
      } else {
        members.append((field.name, value))
      }
    }
    let made = cplugin_settings_new(JSONText.object(members).rendered(), members.count)
    for (name, value) in members {
      switch value {
      case .integer(let number): cplugin_settings_add(made, name, CPLUGIN_NUMBER, Double(number), "")
      case .number(let number): cplugin_settings_add(made, name, CPLUGIN_NUMBER, number, "")
      case .bool(let flag): cplugin_settings_add(made, name, CPLUGIN_BOOLEAN, flag ? 1 : 0, "")
      case .string(let text): cplugin_settings_add(made, name, CPLUGIN_TEXT, 0, text)
      case .null, .array, .object: break
      }
    }
    return made
  }
}
