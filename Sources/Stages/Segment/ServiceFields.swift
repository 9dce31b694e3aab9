import JobSyntax
import PipelineKit
import Transport

/// Fields that more than one service of a segment stage has.
enum ServiceFields {
  /// What of an answer is used.
  enum Channels: String, FieldChoice {
    case alpha, rgba

    var help: String {
      switch self {
      case .alpha: "the mask alone, laid on the picture's own pixels at its own size: a small answer will do"
      case .rgba: "the service's picture with its colours, at the size that it has"
      }
    }
  }

  static let removebg = FieldCondition("provider", in: ["removebg"])

  static let endpoint = Field<String?>.text(
    "endpoint", when: FieldCondition("provider", in: ["removebg", "rembg"]),
    help: "the service's address, where it is not \(RemoveBG.address) or \(RembgServer.address)")
  static let channels = Field<Channels>.choice(
    "channels", default: .alpha, when: FieldCondition("provider", in: ["removebg", "http"]),
    help: "what of the answer is used")
  static let request = Field<RequestForm>.choice(
    "request", default: .multipart, when: FieldCondition("provider", in: ["removebg", "http"]),
    help: "the form in which the picture is sent")
  static let imageURL = Field<Template?>.template(
    "imageUrl", when: FieldCondition("provider", in: ["removebg", "http"]),
    help:
      "for the forms of `request` that end in -url: where the service finds the picture, which must be the one that "
      + "the stage works on")
  static let maxSide = Field<Int?>.integer(
    "maxSide", in: 64...16_384, unit: "pixels", when: FieldCondition("provider", in: ["rembg", "http"]),
    help:
      "the longer side that the picture is sent with at most; left out, 1024 for rembg, whose models see no more, and "
      + "its own for http")
  static let timeout = Field<Int?>.integer(
    "timeout", in: 1...3600, unit: "seconds", when: FieldCondition("provider", in: ["rembg", "http"]),
    help:
      "how long the service may keep silent; left out, 600 for rembg, which may have to fetch its model first, and 120 "
      + "for http")
  /// Of the stage, not of each provider.
  static let concurrency = Field<Int?>.integer(
    "concurrency", in: 1...64,
    help: "pictures that services work on at once; left out, 2 where rembg is one of them, else 8")

  static let allowInsecure = Field<Bool>.boolean(
    UploadFields.allowInsecure.name, default: false, when: FieldCondition("provider", in: ["removebg", "http"]),
    help: "whether credentials may go unencrypted to another machine than this one")

  static let shared: [any FieldDeclaration] = [endpoint, channels, request, imageURL, maxSide, timeout, allowInsecure]

  /// Why the credentials of a request may not go to the address of a job; a job that lets items choose the host would
  /// send them to whatever a file's name or a manifest says.
  static func checkCredentials(_ address: Template, at field: any FieldDeclaration, _ settings: Settings)
    -> [Diagnostic]
  {
    let address = AddressTemplate(address, below: nil)
    if address.letsItemsChooseHost {
      return [
        settings.diagnostic(
          .error, "conflicting-keys", at: field,
          "\"\(field.name)\" lets each item choose the host, and a credential would go to whatever it is",
          hint: "write the host into \"\(field.name)\" itself, or send no credential")
      ]
    }
    guard let origin = (try? address.fixedOrigin()) ?? nil, let words = UploadAddress.insecure(origin, settings) else {
      return []
    }
    return [settings.diagnostic(.error, "wrong-value", at: field, words, hint: UploadAddress.insecureHint)]
  }

  /// Rules about addresses and forms that hold for every service.
  static func check(_ settings: Settings) -> [Diagnostic] {
    var findings: [Diagnostic] = []
    if settings.hasValue(for: endpoint), let text = settings[endpoint] {
      findings += checkAddress(text, at: endpoint, settings)
      if settings.isSet(RemoveBGFields.apiKey) || settings.isSet(RemoveBGFields.token),
        let address = Template.parse(text).template
      {
        findings += checkCredentials(address, at: endpoint, settings)
      }
    }
    let isByAddress = settings[request].source == .url
    if isByAddress, !settings.isSet(imageURL) {
      findings.append(
        settings.diagnostic(
          .error, "missing-key", at: request, "\"request\": \"\(settings[request].rawValue)\" needs \"imageUrl\"",
          hint: #"such as "imageUrl": "https://cdn.example.com/${item.path}""#))
    } else if !isByAddress, settings.isSet(imageURL) {
      findings.append(
        settings.diagnostic(
          .error, "not-applicable", at: imageURL,
          "\"imageUrl\" has no meaning where the picture itself is sent", hint: #"such as "request": "json-url""#))
    }
    return findings
  }

  static func checkAddress(_ text: String, at field: any FieldDeclaration, _ settings: Settings) -> [Diagnostic] {
    do throws(TransportError) {
      let address = try RequestURL(text)
      guard address.query != nil || text.contains("#") else { return [] }
      return [
        settings.diagnostic(
          .error, "wrong-value", at: field, "\"\(field.name)\" is an address without query and fragment")
      ]
    } catch {
      return [settings.diagnostic(.error, "wrong-value", at: field, "\"\(field.name)\": \(error.message)")]
    }
  }

  /// An address with a further path.
  ///
  /// - Throws: an error of class job where lint would have refused the address.
  static func address(_ base: String, _ path: String) throws(StageError) -> RequestURL {
    do throws(TransportError) { return try RequestURL(base).appending(path: path) } catch {
      throw StageError("service-address", "\(Secrets.redacted(base)): \(error.message)", kind: .job)
    }
  }

  /// An address with an item's values filled in, percent-encoded; what an address begins with stands as it is.
  ///
  /// - Throws: `template-value`, `environment-unset`, and `service-address` for what makes no address.
  static func address(
    _ template: Template, of item: Item, _ context: StageContext
  ) throws(StageError) -> RequestURL {
    var failure: StageError?
    var isFirst = true
    if case .literal = template.segments.first { isFirst = false }
    let bytes = template.render { variable in
      switch TemplateValues.value(of: variable, identity: item.identity, run: context.run, item: item) {
      case .success(let bytes):
        defer { isFirst = false }
        if isFirst { return bytes }
        let text = String(decoding: bytes, as: UTF8.self)
        return Array((variable.isSecret ? RequestURL.encoded(queryValue: text) : RequestURL.encoded(path: text)).utf8)
      case .failure(let error):
        failure = error
        return nil
      }
    }
    guard let bytes else {
      throw failure ?? StageError("template-value", "\(template.text) cannot be filled in")
    }
    do throws(TransportError) { return try RequestURL(String(decoding: bytes, as: UTF8.self)) } catch {
      throw StageError("service-address", "\(template.text) makes no address: \(error.message)")
    }
  }
}
