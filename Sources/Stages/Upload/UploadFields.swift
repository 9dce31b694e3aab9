import JobSyntax
import PipelineKit
import Transport

/// Fields that more than one provider of `upload` has.
enum UploadFields {
  static let endpoint = Field<String?>.text(
    "endpoint", when: FieldCondition("provider", in: ["s3", "http", "webdav", "azure", "imgur", "imgbb"]),
    help: "the service's address, for one of your own or another than the usual one; for webdav the folder that "
      + "`path` lies in, for http what a `url` that begins with / lies below")
  static let url = Field<Template>(
    "url", type: .text(.secretTemplate), absent: nil, when: FieldCondition("provider", in: ["presigned", "http"]),
    help: "the address to send to. ${item.url} from a manifest at its beginning is taken as it is; other values are "
      + "percent-encoded. Shown without its query"
  ) { node, _ in node.stringValue.flatMap { Template.parse($0).template } }
  static let contentType = Field<String?>.text(
    "contentType", when: FieldCondition("provider", in: ["s3", "presigned", "http", "webdav", "azure"]),
    help: "the media type that is sent; that of the picture's format when left out")
  static let cacheControl = Field<String?>.text(
    "cacheControl", when: FieldCondition("provider", in: ["s3", "azure"]),
    help: "Cache-Control that the picture is given out with, such as max-age=31536000, immutable")
  static let contentDisposition = Field<String?>.text(
    "contentDisposition", when: FieldCondition("provider", in: ["s3", "azure"]),
    help: "Content-Disposition that the picture is given out with")
  static let metadata = Field<[NamedTemplate]>.templates(
    "metadata", when: FieldCondition("provider", in: ["s3", "azure"]),
    help: "what is noted beside the picture, in ASCII, as x-amz-meta-NAME or x-ms-meta-NAME")
  static let publicURL = Field<String?>.text(
    "publicURL", when: FieldCondition("provider", in: ["s3", "webdav", "azure"]),
    help: "what links in reports and receipts begin with instead of the address sent to, such as https://img.example")
  static let path = Field<Template>.template(
    "path", default: "${item.dir}/${item.stem}.${ext}", when: FieldCondition("provider", in: ["webdav", "azure"]),
    help: "the picture's place below the folder or container")
  static let overwrite = Field<ExistingUpload>.choice(
    "overwrite", default: .replace, when: FieldCondition("provider", in: ["webdav", "azure"]),
    help: "what happens to something of that name that is there already")
  static let user = Field<Credential?>.credential(
    "user", when: FieldCondition("provider", in: ["http", "webdav"]), help: "the name to log in with")
  static let password = Field<Credential?>.credential(
    "password", when: FieldCondition("provider", in: ["http", "webdav"]), help: "the password, beside user")
  static let fileName = Field<Template>.template(
    "fileName", default: "${item.stem}.${ext}", when: FieldCondition("provider", in: ["http", "imgur", "imgbb"]),
    help: "the file name that is sent along")
  static let form = Field<PictureForm>.choice(
    "request", default: .file, when: FieldCondition("provider", in: ["imgur", "imgbb"]),
    help: "how the picture goes into the request")
  static let sourceURL = Field<Template?>.template(
    "sourceURL", when: FieldCondition("request", in: ["url"]),
    help: "where the service fetches the picture itself, such as ${item.url}")
  static let perMinute = Field<Double?>.number(
    "perMinute", in: 0.01...1_000_000,
    when: FieldCondition("provider", in: ["http", "webdav", "azure", "imgur", "imgbb"]),
    help: "the most requests a minute; no limit but the service's own when left out")
  static let allowInsecure = Field<Bool>.boolean(
    "allowInsecure", default: false,
    when: FieldCondition("provider", in: ["http", "webdav", "azure", "imgur", "imgbb"]),
    help: "whether credentials may go over plain http to another machine, where everyone on the way reads them")

  static let shared: [any FieldDeclaration] = [
    endpoint, url, path, overwrite, contentType, cacheControl, contentDisposition, metadata, publicURL, user, password,
    form, sourceURL, fileName, perMinute, allowInsecure,
  ]

  /// Rules that hold whoever the provider is.
  static func check(_ settings: Settings) -> [Diagnostic] {
    var findings: [Diagnostic] = []
    // Headers must hold no line break, or they would be several.
    for field in [contentType, cacheControl, contentDisposition] {
      guard let text = settings[field], text.isEmpty || !isHeaderText(text) else { continue }
      findings.append(
        settings.diagnostic(
          .error, "wrong-value", at: field, "\"\(field.name)\" expects text in ASCII, not empty, for a header"))
    }
    if let text = settings[publicURL], publicBase(text) == nil {
      findings.append(
        settings.diagnostic(
          .error, "wrong-value", at: publicURL,
          "\"publicURL\" expects an address with http:// or https:// and no query, got \"\(text)\""))
    }
    if settings.isSet(user) != settings.isSet(password) {
      let given: any FieldDeclaration = settings.isSet(user) ? user : password
      findings.append(
        settings.diagnostic(
          .error, "missing-key", at: given, "\"user\" and \"password\" go together, and one is missing"))
    }
    if settings[form] == .url, !settings.isSet(sourceURL) {
      findings.append(
        settings.diagnostic(
          .error, "missing-key", at: form, "\"request\": \"url\" needs \"sourceURL\": where the picture is fetched"))
    }
    return findings
  }

  static func isHeaderText(_ text: String) -> Bool { text.utf8.allSatisfy { (0x20...0x7E).contains($0) } }

  /// What links begin with, ending in `/`; nil for what is no such address.
  static func publicBase(_ text: String) -> String? {
    guard let url = try? RequestURL(text), url.query == nil, !text.contains("#") else { return nil }
    return text.hasSuffix("/") ? text : text + "/"
  }

  /// A token of RFC 9110, as names of headers are.
  static func isToken(_ name: String) -> Bool {
    !name.isEmpty
      && name.utf8.allSatisfy { byte in
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
        default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
        }
      }
  }

  /// The value of a header for an item: what a name or column brings along that no header can hold is percent-encoded.
  static func headerValue(
    _ template: Template, for item: Item, in context: StageContext
  ) throws(StageError) -> String {
    let text = String(decoding: try context.render(template, for: item), as: UTF8.self)
    return isHeaderText(text) ? text : RequestURL.encoded(path: text)
  }

  static func text(_ template: Template, for item: Item, in context: StageContext) throws(StageError) -> String {
    String(decoding: try context.render(template, for: item), as: UTF8.self)
  }
}

/// What happens to something of the same name that a service has already.
enum ExistingUpload: String, FieldChoice {
  case replace, skip, error

  var help: String {
    switch self {
    case .replace: "it is replaced"
    case .skip: "it stays, and the picture counts as done, with the warning upload-kept"
    case .error: "it stays, and the picture fails, unless it is the same byte for byte"
    }
  }
}

/// How a picture goes into the request of a host that takes several forms.
enum PictureForm: String, FieldChoice {
  case file, base64, urlencoded, url

  var help: String {
    switch self {
    case .file: "as a file of a multipart form"
    case .base64: "as base64 in a multipart form"
    case .urlencoded: "as base64 in a form without files"
    case .url: "not at all: the host fetches it from `sourceURL`, and nothing that the chain has made is sent"
    }
  }
}
