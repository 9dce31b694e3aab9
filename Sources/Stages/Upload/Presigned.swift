import Imaging
import JobSyntax
import PipelineKit
import Transport

/// `upload` to addresses that hold their own signature, as S3 and its like make them for a PUT.
struct PresignedUpload: UploadProvider {
  static let name = "presigned"
  static let help = "a PUT to an address that holds its own signature, as S3 services make them"

  static let url = Field<Template>(
    "url", type: .text(.secretTemplate), absent: nil, when: ours,
    help:
      "the address for each picture, such as ${item.url} from a manifest: sent as it is, and shown without its query"
  ) { node, _ in node.stringValue.flatMap { Template.parse($0).template } }
  static let headers = Field<[NamedTemplate]>.templates(
    "signedHeaders", when: ours, allowsSecrets: true,
    help: "values of the headers that the address was signed with; Content-Type and x-amz-content-sha256 are known")

  private static let ours = FieldCondition("provider", in: [name])

  static let fields: [any FieldDeclaration] = [url, headers]

  static func check(_ settings: Settings) -> [Diagnostic] {
    var findings: [Diagnostic] = []
    for entry in settings[headers] where !isToken(entry.name) {
      findings.append(
        settings.diagnostic(
          .error, "wrong-value", at: headers, "\"signedHeaders\" expects names of headers, got \"\(entry.name)\""))
    }
    return findings
  }

  private static func isToken(_ name: String) -> Bool {
    !name.isEmpty
      && name.utf8.allSatisfy { byte in
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
        default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
        }
      }
  }

  private let url: Template
  private let headers: [NamedTemplate]
  private let type: String?
  private let services: ServiceResources

  init(_ settings: Settings, resources: StageResources) throws(StageError) {
    url = settings[Self.url]
    headers = settings[Self.headers]
    type = settings[UploadFields.contentType]
    services = resources.services
  }

  func prepare(_ encoded: Item.Encoded, for item: Item, in context: StageContext) throws(StageError) -> PreparedUpload {
    let text = String(decoding: try context.render(url, for: item), as: UTF8.self)
    let url: RequestURL
    do throws(TransportError) {
      url = try RequestURL(text)
    } catch {
      throw StageError("upload-address", "\(self.url.text) gives no address to send to: \(error.message)")
    }
    let place = url.origin + url.path
    guard context.claims.claim(PathBytes(bytes: Array("upload:\(place)".utf8))) else {
      throw StageError(
        "output-collision", "\(url.display) is sent to already, for another picture or stage",
        hint: "each picture needs an address of its own")
    }
    var given: [(name: String, value: String)] = []
    for entry in headers {
      given.append((entry.name, String(decoding: try context.render(entry.template, for: item), as: UTF8.self)))
    }
    let address = PresignedAddress(url)
    let fields = try address.headers(given: given, content: encoded.bytes)
    // A type that was not signed may make the signature wrong, or be passed over.
    let type = type ?? (address.signedNames.contains("content-type") ? encoded.format.mediaType : "")
    let caller = services.caller(services.pacer("presigned \(url.authority)"))
    let isOfItem = self.url.variables.contains(where: \.variesByItem)
    return PreparedUpload(encoded: encoded, target: place, isRepeatable: true) { context throws(StageError) in
      let payload = Payload(encoded.bytes)
      do throws(ServiceFailure) {
        let response = try context.call(caller, repeats: .always, classify: { address.failure(of: $0) }) { _ in
          var request = Request(.put, url, headers: fields, body: .raw(payload, type: type))
          request.timeouts.total = nil
          return request
        }
        return .sent(UploadReceipt(provider: Self.name, link: place, etag: response.headers["ETag"]))
      } catch {
        var failure = error
        // Another picture's address may well be accepted.
        if isOfItem, failure.kind == .credentials { failure.kind = .request }
        throw StageError(failure, of: url.display)
      }
    }
  }
}

/// An address that holds its own signature, and what it says about the request that it is for.
///
/// Source: AWS S3 API, "Authenticating requests: using query parameters"; Google Cloud Storage names its parameters
/// likewise.
struct PresignedAddress: Sendable {
  /// The names of the headers that must be sent as they were signed, in lower case, without `host`.
  let signedNames: [String]
  /// What of the query nobody may see.
  private let secrets: [String]

  init(_ url: RequestURL) {
    var (names, secrets) = ([String](), [String]())
    for field in (url.query ?? "").split(separator: "&") {
      let parts = field.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      let name = parts[0].lowercased()
      let value = parts.count > 1 ? String(parts[1]) : ""
      if name == "x-amz-signedheaders" || name == "x-goog-signedheaders" {
        names = value.lowercased().replacing("%3b", with: ";").split(separator: ";").map(String.init)
      } else if name.hasSuffix("signature") || name.hasSuffix("token") || name == "sig" {
        secrets.append(value)
      }
    }
    signedNames = names.filter { $0 != "host" }
    self.secrets = secrets.filter { $0.utf8.count >= 8 }
  }

  /// The headers to send, `Content-Type` aside: those given, and those that the content decides.
  ///
  /// - Throws: `upload-address` for one that was signed and is not known.
  func headers(
    given: [(name: String, value: String)], content: EncodedBytes
  ) throws(StageError) -> [HeaderField] {
    var fields = given.map { HeaderField($0.name, $0.value) }
    for name in signedNames where !given.contains(where: { $0.name.lowercased() == name }) {
      switch name {
      // Both are sent anyway.
      case "content-type", "content-length": break
      case "x-amz-content-sha256": fields.append(HeaderField(name, content.sha256))
      default:
        throw StageError(
          "upload-address", "the address was signed with the header \(name), whose value is not known",
          hint: "give it under \"signedHeaders\"")
      }
    }
    return fields
  }

  func failure(of response: Response) -> ServiceFailure? {
    guard var failure = S3Failures.failure(of: response, region: nil, now: RetryAfter.wallClock()) else { return nil }
    for secret in secrets { failure.message = failure.message.replacing(secret, with: "***") }
    return failure
  }
}
