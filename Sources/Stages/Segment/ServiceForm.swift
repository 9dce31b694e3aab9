import JobSyntax
import PipelineKit
import Transport

/// The forms in which services take a picture.
enum RequestForm: String, FieldChoice {
  case multipart
  case multipartBase64 = "multipart-base64"
  case multipartURL = "multipart-url"
  case jsonBase64 = "json-base64"
  case jsonURL = "json-url"
  case formBase64 = "form-base64"
  case formURL = "form-url"
  case raw

  enum Body { case multipart, json, form, raw }
  enum Source { case file, base64, url }

  var body: Body {
    switch self {
    case .multipart, .multipartBase64, .multipartURL: .multipart
    case .jsonBase64, .jsonURL: .json
    case .formBase64, .formURL: .form
    case .raw: .raw
    }
  }

  var source: Source {
    switch self {
    case .multipart, .raw: .file
    case .multipartBase64, .jsonBase64, .formBase64: .base64
    case .multipartURL, .jsonURL, .formURL: .url
    }
  }

  var help: String {
    switch self {
    case .multipart: "as a file of a multipart form"
    case .multipartBase64: "as a field in base64 of a multipart form"
    case .multipartURL: "by its address, `imageUrl`, in a multipart form"
    case .jsonBase64: "in base64, in a JSON object"
    case .jsonURL: "by its address, in a JSON object"
    case .formBase64: "in base64, in a form (application/x-www-form-urlencoded)"
    case .formURL: "by its address, in such a form"
    case .raw: "as the whole body; http alone"
    }
  }
}

/// What is asked of a service, before it has a form: a picture, options, and further files.
struct ServiceForm: Sendable {
  enum Value: Sendable, Hashable {
    case text(String)
    /// A boolean in JSON, `true` or `false` elsewhere.
    case flag(Bool)
  }

  struct File: Sendable {
    var name: String
    var payload: Payload
    var filename: String
    /// Its media type.
    var type: String
  }

  enum Picture: Sendable {
    case bytes(File)
    case address(name: String, String)
  }

  var picture: Picture
  var fields: [(name: String, value: Value)]
  /// In multipart alone.
  var files: [File] = []

  /// The request's body: the picture first, then the fields in their order.
  func body(_ form: RequestForm.Body, isBase64: Bool) -> RequestBody {
    switch form {
    case .raw:
      guard case .bytes(let file) = picture else { return .none }
      return .raw(file.payload, type: file.type)
    case .multipart:
      let part: Part =
        switch picture {
        case .bytes(let file) where isBase64: .field(file.name, .base64(of: file.payload))
        case .bytes(let file): Self.part(file)
        case .address(let name, let address): .text(name, address)
        }
      return .multipart([part] + fields.map { .text($0.name, $0.value.text) } + files.map(Self.part))
    case .form:
      let source: (name: String, value: Payload) =
        switch picture {
        case .bytes(let file): (file.name, .base64(of: file.payload))
        case .address(let name, let address): (name, Payload(address))
        }
      return .form([source] + fields.map { ($0.name, Payload($0.value.text)) })
    case .json:
      let rest = fields.map { ",\(Self.quoted($0.name)):\($0.value.json.rendered())" }.joined() + "}"
      switch picture {
      case .bytes(let file):
        // Base64 holds nothing that JSON escapes.
        return .raw(
          .joined([
            Payload("{\(Self.quoted(file.name)):\""), .base64(of: file.payload), Payload("\"" + rest),
          ]), type: "application/json")
      case .address(let name, let address):
        return .raw(Payload("{\(Self.quoted(name)):\(Self.quoted(address))" + rest), type: "application/json")
      }
    }
  }

  private static func part(_ file: File) -> Part {
    .file(file.name, file.payload, filename: file.filename, type: file.type)
  }

  private static func quoted(_ text: String) -> String { JSONText.string(text).rendered() }
}

extension ServiceForm.Value {
  var text: String {
    switch self {
    case .text(let text): text
    case .flag(let flag): flag ? "true" : "false"
    }
  }

  var json: JSONText {
    switch self {
    case .text(let text): .string(text)
    case .flag(let flag): .bool(flag)
    }
  }
}
