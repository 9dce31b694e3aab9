import Imaging
import PipelineKit
import Transport

/// The body that a picture goes into, of hosts that take it as a file, as base64 and as an address.
struct PictureRequest: Sendable {
  var form: PictureForm
  /// Where the host fetches it; for `url` alone.
  var address: String?

  /// - Parameters:
  ///   - field: what the picture is called.
  ///   - typeField: the field that says in which form it comes, where the host has one.
  ///   - before: fields in front of it.
  ///   - after: fields behind it.
  func body(
    _ field: String, _ encoded: Item.Encoded, fileName: String, typeField: String?,
    before: [(name: String, value: String)], after: [(name: String, value: String)]
  ) -> RequestBody {
    let payload = Payload(encoded.bytes)
    let word = form == .urlencoded ? "base64" : form.rawValue
    let rest = (typeField.map { [(name: $0, value: word)] } ?? []) + after
    switch form {
    case .file, .base64, .url:
      let picture: Part =
        switch form {
        case .file: .file(field, payload, filename: fileName, type: encoded.format.mediaType)
        case .url: .text(field, address ?? "")
        default: .field(field, .base64(of: payload))
        }
      return .multipart(before.map { .text($0.name, $0.value) } + [picture] + rest.map { .text($0.name, $0.value) })
    case .urlencoded:
      return .form(
        before.map { ($0.name, Payload($0.value)) } + [(field, .base64(of: payload))]
          + rest.map { ($0.name, Payload($0.value)) })
    }
  }

  /// - Throws: `upload-address` for what no host can fetch.
  static func checked(_ text: String) throws(StageError) -> String {
    do throws(TransportError) {
      return try RequestURL(text).text
    } catch { throw StageError("upload-address", "\"sourceURL\" gives no address: \(error.message)") }
  }
}
