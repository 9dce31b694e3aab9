import JobSyntax
import PipelineKit
import Transport

/// The rules for addresses that pictures and credentials are sent to.
enum UploadAddress {
  /// The address that a provider works below: the job's, or the usual one.
  ///
  /// - Throws: `upload-address` for one that is none.
  static func endpoint(_ settings: Settings, usual: String) throws(StageError) -> RequestURL {
    do throws(TransportError) {
      return try RequestURL(settings[UploadFields.endpoint] ?? usual)
    } catch { throw StageError("upload-address", "\"endpoint\" is no address: \(error.message)", kind: .job) }
  }

  /// What is wrong with the job's endpoint.
  ///
  /// - Parameter holdsCredential: whether a credential is sent there.
  static func check(_ settings: Settings, holdsCredential: Bool) -> [Diagnostic] {
    guard let text = settings[UploadFields.endpoint] else { return [] }
    func refuse(_ message: String, hint: String? = nil) -> [Diagnostic] {
      [settings.diagnostic(.error, "wrong-value", at: UploadFields.endpoint, message, hint: hint)]
    }
    let url: RequestURL
    do throws(TransportError) {
      url = try RequestURL(text)
    } catch { return refuse("\"endpoint\" is no address: \(error.message)") }
    guard url.query == nil, !text.contains("#") else {
      return refuse("\"endpoint\" must have no query and no fragment")
    }
    guard holdsCredential, let words = insecure(url, settings) else { return [] }
    return refuse(words, hint: insecureHint)
  }

  /// Why no credential may be sent to an address; nil where it may: over https, to this machine, or where the job says
  /// that it may go in the open.
  static func insecure(_ url: RequestURL, _ settings: Settings) -> String? {
    guard !url.isEncrypted, !url.isLoopback, !settings[UploadFields.allowInsecure] else { return nil }
    return "a credential would go to \(url.origin) unencrypted, for everyone on the way to read"
  }

  static let insecureHint = "use https, or set \"allowInsecure\": true"

  /// - Throws: `upload-insecure` where no credential may be sent to the address.
  static func requireSecure(_ url: RequestURL, _ settings: Settings) throws(StageError) {
    guard let words = insecure(url, settings) else { return }
    throw StageError("upload-insecure", words, kind: .job, hint: insecureHint)
  }

  /// One name is sent to once in a run.
  ///
  /// - Throws: `output-collision` where it was before.
  static func claim(_ url: RequestURL, in context: StageContext) throws(StageError) {
    // As bytes: two forms of one letter are two names.
    guard context.claims.claim(PathBytes(bytes: Array("upload:\(url.text)".utf8))) else {
      throw StageError(
        "output-collision", "\(url.display) is sent to already, for another picture or stage",
        hint: "make the names differ, with ${item.dir} or ${item.index}")
    }
  }

  /// Names below a folder, parted by `/`, percent-encoded.
  ///
  /// - Throws: `output-name` for the names `.` and `..`, which servers take for other folders.
  static func encoded(_ name: String) throws(StageError) -> String {
    let parts = name.split(separator: "/")
    guard !parts.contains("."), !parts.contains("..") else {
      throw StageError("output-name", "\"\(name)\" holds a part that is \".\" or \"..\", which names another folder")
    }
    return parts.map { RequestURL.encoded(pathSegment: String($0)) }.joined(separator: "/")
  }
}

/// The address that a template gives for each item.
///
/// The job's author has written the template; the values filled in come from file names and manifest columns, which
/// others may have written: they are percent-encoded, and name no folder above. A value at the very beginning is a
/// whole address, and taken as it is.
struct AddressTemplate: Sendable {
  private let template: Template
  /// What an address that begins with `/` lies below.
  private let base: RequestURL?

  init(_ template: Template, below base: RequestURL?) {
    self.template = template
    self.base = base
  }

  /// Whether the template begins with `/`, so that it needs a base.
  var isRelative: Bool {
    if case .literal(let bytes) = template.segments.first { bytes.first == UInt8(ascii: "/") } else { false }
  }

  var holdsSecret: Bool { template.variables.contains(where: \.isSecret) }
  var variesByItem: Bool { template.variables.contains(where: \.variesByItem) }

  private enum Place { case authority, path, query, fragment }

  private static func place(in text: String) -> Place {
    guard let mark = text.firstRange(of: "://") else { return .authority }
    let rest = text[mark.upperBound...]
    if rest.contains("#") { return .fragment }
    if rest.contains("?") { return .query }
    return rest.contains("/") ? .path : .authority
  }

  /// Whether what an item brings along decides which host is asked.
  var letsItemsChooseHost: Bool {
    guard base == nil else { return false }
    var text = ""
    for segment in template.segments {
      switch segment {
      case .literal(let bytes): text += String(decoding: bytes, as: UTF8.self)
      case .variable(let variable):
        guard Self.place(in: text) == .authority else { return false }
        if variable.variesByItem { return true }
        // A whole address, of which nothing is known here.
        if text.isEmpty { return false }
        text += "x"
      }
    }
    return false
  }

  /// The host, where the template alone says which it is; nil where a run does.
  ///
  /// - Throws: where the template makes no address.
  func fixedOrigin() throws(TransportError) -> RequestURL? {
    if let base { return base }
    var text = ""
    for segment in template.segments {
      guard case .literal(let bytes) = segment else {
        return Self.place(in: text) == .authority ? nil : try RequestURL(String(text.prefix { $0 != "?" && $0 != "#" }))
      }
      text += String(decoding: bytes, as: UTF8.self)
    }
    return try RequestURL(text)
  }

  /// The address for an item, and the same without credentials.
  ///
  /// - Throws: what rendering fails with, `output-escapes` where a value names a folder above, `upload-address` where
  ///   no address comes of it.
  func address(
    for item: Item, in context: StageContext
  ) throws(StageError) -> (url: RequestURL, shown: String) {
    var text = base.map { $0.text.hasSuffix("/") ? String($0.text.dropLast()) : $0.text } ?? ""
    var shown = text
    var isWhole = false
    var leftNothing = false
    for (index, segment) in template.segments.enumerated() {
      switch segment {
      case .literal(let bytes):
        var piece = String(decoding: bytes, as: UTF8.self)
        // `/${item.dir}/` of an item at the top.
        if leftNothing, text.hasSuffix("/"), piece.hasPrefix("/") { piece.removeFirst() }
        text += piece
        shown += piece
      case .variable(let variable):
        let bytes = try TemplateValues.value(
          of: variable, identity: item.identity, run: context.run, item: item
        ).get()
        guard let value = String(validating: bytes, as: UTF8.self) else {
          throw StageError("output-name", "the value of ${\(variable.name)} is not UTF-8, as addresses must be")
        }
        leftNothing = value.isEmpty
        if index == 0, base == nil {
          isWhole = true
          text += value
          shown += variable.isSecret ? "${\(variable.name)}" : value
          continue
        }
        let encoded =
          switch Self.place(in: text) {
          case .authority: RequestURL.encoded(pathSegment: value)
          case .path: RequestURL.encoded(path: value)
          case .query, .fragment: RequestURL.encoded(queryValue: value)
          }
        text += encoded
        shown += variable.isSecret ? "${\(variable.name)}" : encoded
      }
    }
    let url: RequestURL
    do throws(TransportError) {
      url = try RequestURL(text)
    } catch {
      throw StageError("upload-address", "\(template.text) gives no address to send to: \(error.message)")
    }
    let parts = url.path.split(separator: "/")
    guard isWhole || !(parts.contains(".") || parts.contains("..")) else {
      throw StageError(
        "output-escapes", "\(url.display), made from \(template.text), leads out of its folder",
        hint: "use ${item.stem} or a column without \"..\"")
    }
    return (url, shown)
  }
}
