import Imaging
import JobSyntax
import PipelineKit
import Transport

/// A server of one's own that runs `rembg s`.
///
/// The mask is asked for and laid on the picture here: rembg's own cut-outs have the black behind them mixed into the
/// colours of soft edges.
struct RembgServer: Segmenter {
  static let address = "http://127.0.0.1:7000"
  static let provider = "rembg"
  /// The server works in threads of its own, and each model uses all cores.
  static let concurrency = 2

  private static let isChosen = FieldCondition("provider", in: ["rembg"])

  static let alphaMatting = Field<Bool>.boolean(
    "alphaMatting", default: false, when: isChosen,
    help:
      "whether the server works out the edge by alpha matting, which is slow and takes much memory on large pictures")
  static let foreground = Field<Int>.integer(
    "foregroundThreshold", in: 0...255, default: 240, when: isChosen,
    help: "with `alphaMatting`: levels of the mask above this are surely subject")
  static let backgroundThreshold = Field<Int>.integer(
    "backgroundThreshold", in: 0...255, default: 10, when: isChosen,
    help: "with `alphaMatting`: levels of the mask below this are surely background")
  static let erode = Field<Int>.integer(
    "erode", in: 0...1000, default: 10, unit: "pixels", when: isChosen,
    help: "with `alphaMatting`: how far what is sure is drawn back from the edge")
  static let postProcess = Field<Bool>.boolean(
    "postProcess", default: false, when: isChosen,
    help: "whether the server smooths the mask and makes it black and white, without soft edges")
  static let extras = Field<JSONNode?>(
    "extras", type: .named(.any), absent: .some(nil), when: isChosen,
    help: "further arguments of the model, as an object: { \"cc\": \"upper\" }, { \"sam_prompt\": […] }"
  ) { node, _ in .some(node) }

  static let fields: [any FieldDeclaration] = [
    alphaMatting, foreground, backgroundThreshold, erode, postProcess, extras,
  ]

  /// Arguments that the server gives itself: once more among the extras they make it fail.
  private static let taken: Set<String> = [
    "data", "session", "alpha_matting", "alpha_matting_foreground_threshold", "alpha_matting_background_threshold",
    "alpha_matting_erode_size", "only_mask", "post_process_mask", "bgcolor", "force_return_bytes",
  ]

  static func check(_ settings: Settings) -> [Diagnostic] {
    var findings = ServiceFields.check(settings)
    func error(_ code: String, at field: any FieldDeclaration, _ message: String, hint: String? = nil) {
      findings.append(settings.diagnostic(.error, code, at: field, message, hint: hint))
    }
    if !settings[alphaMatting] {
      for field in [foreground, backgroundThreshold, erode] where settings.isSet(field) {
        error("not-applicable", at: field, "\"\(field.name)\" has no meaning without \"alphaMatting\": true")
      }
    } else if settings[foreground] <= settings[backgroundThreshold] {
      error(
        "out-of-range", at: settings.isSet(foreground) ? foreground : backgroundThreshold,
        "\"foregroundThreshold\" must be above \"backgroundThreshold\"")
    }
    for member in settings[extras]?.objectValue ?? [] where taken.contains(member.key) {
      error(
        "not-applicable", at: extras, "\"\(member.key)\" among the extras would make rembg fail: it is set already")
    }
    if settings.isSet(ModelFields.model), settings[ModelFields.model] == "u2net_cloth_seg",
      settings[extras]?["cc"]?.stringValue == nil
    {
      error(
        "missing-key", at: ModelFields.model, "u2net_cloth_seg makes three masks, one below the other",
        hint: #""extras": { "cc": "upper" }, or "lower" or "full", chooses one"#)
    }
    return findings
  }

  let name = "rembg"
  let maker = "rembg"

  private let endpoint: RequestURL
  private let health: RequestURL
  private let caller: Caller
  private let known: AskedOnce<[String]?>
  private let model: String?
  private let settings: Settings
  private let timeouts: Timeouts

  init(_ settings: Settings, resources: StageResources) throws(StageError) {
    self.settings = settings
    let base = settings[ServiceFields.endpoint] ?? Self.address
    var remove = try ServiceFields.address(base, "api/remove")
    if let extras = settings[Self.extras], extras.objectValue?.isEmpty == false {
      // Of all arguments these alone must be in the query: as a field they are passed over without a word.
      do throws(TransportError) {
        remove = try remove.appending(query: "extras", JSONText(extras.value).rendered())
      } catch {
        throw StageError(error, of: "rembg")
      }
    }
    endpoint = remove
    health = try ServiceFields.address(base, "openapi.json")
    model = settings.isSet(ModelFields.model) ? settings[ModelFields.model] : nil
    var policy = RetryPolicy()
    // What it fails on it says to nobody, so more than one more attempt is of no use.
    policy.attempts = 2
    caller = resources.services.caller(resources.services.pacer("rembg \(remove.authority)"), policy)
    known = try resources.shared.object("segment.rembg.\(base)") { () throws(StageError) in AskedOnce<[String]?>() }
    let silence = Double(settings[ServiceFields.timeout] ?? 600)
    timeouts = Timeouts(connect: 30, stall: silence, total: silence + 600)
  }

  func begin(
    _ picture: Image, of item: Item, kept: KeptResults?, in context: StageContext
  ) throws(StageError) -> SegmenterStep {
    var limits = ServicePicture.Limits()
    // Points of a prompt are pixels of the picture.
    let isFull = settings[Self.extras]?["sam_prompt"] != nil || settings[Self.alphaMatting]
    limits.usefulSide = settings[ServiceFields.maxSide] ?? (isFull ? .max : 1024)
    let sent = try ServicePicture(picture, as: .png, within: limits)
    let request = call(for: sent)
    return .exchange { context throws(StageError) in
      try checkHealth(context)
      let response: Response
      do throws(ServiceFailure) {
        response = try context.call(caller, repeats: .always, classify: Self.classify) { _ in request }
      } catch {
        throw StageError(error, of: "rembg")
      }
      return .compute { _ throws(StageError) in
        let image = try FoundMatte.decoded(response.body, from: "rembg")
        return .found(
          try FoundMatte.answered(
            image, .alpha, settings[Self.alphaMatting] ? .alpha : .either, for: picture, provider: Self.provider,
            model: model))
      }
    }
  }

  private func call(for sent: ServicePicture) -> Request {
    var fields: [(name: String, value: ServiceForm.Value)] = []
    if let model { fields.append(("model", .text(model))) }
    if settings[Self.alphaMatting] {
      // With `om` the server gives the mask before matting.
      fields += [
        ("a", .flag(true)), ("af", .text("\(settings[Self.foreground])")),
        ("ab", .text("\(settings[Self.backgroundThreshold])")), ("ae", .text("\(settings[Self.erode])")),
      ]
    } else {
      fields.append(("om", .flag(true)))
    }
    if settings[Self.postProcess] { fields.append(("ppm", .flag(true))) }
    var request = Request(
      .post, endpoint,
      body: ServiceForm(picture: .bytes(sent.file("file")), fields: fields).body(.multipart, isBase64: false))
    request.timeouts = timeouts
    request.accept = "image/png"
    return request
  }

  static func classify(_ response: Response) -> ServiceFailure? {
    if response.isSuccess {
      return ServiceAnswer.looksLikePicture(response.body)
        ? nil
        : ServiceFailure(
          .request, StandardClassifier.message(status: response.status, "the answer is no picture"),
          status: response.status)
    }
    guard response.status == 422, let answer = try? JSONAnswer(response.body),
      let list = answer.root["detail"]?.arrayValue
    else { return StandardClassifier.classify(response) }
    let words = list.prefix(4).map { entry in
      let place = (entry["loc"]?.arrayValue ?? []).compactMap { $0.stringValue ?? $0.numberValue?.text }
      return (place.isEmpty ? "" : place.joined(separator: ".") + ": ") + (entry["msg"]?.stringValue ?? "not valid")
    }
    return ServiceFailure(
      .request, StandardClassifier.message(status: 422, words.joined(separator: "; ")), status: 422)
  }

  // MARK: Health

  /// Looks once a run whether it is rembg that answers there, and whether it knows the model.
  private func checkHealth(_ context: StageContext) throws(StageError) {
    let models = try known.answer(in: context) { () throws(StageError) -> [String]? in
      let response: Response
      do throws(ServiceFailure) {
        response = try context.call(caller, repeats: .always, classify: StandardClassifier.classify) { _ in
          Request(.get, health)
        }
      } catch {
        var failure = StageError(error, of: "rembg")
        if error.kind == .request || error.kind == .notFound { failure = notRembg }
        throw failure
      }
      guard let answer = try? JSONAnswer(response.body), answer.string(at: "/info/title") == "Rembg" else {
        throw notRembg
      }
      return Self.models(answer.root)
    }
    guard let model, let models, !models.contains(model) else { return }
    let near = NearestName.suggestion(for: model, among: models)
    throw StageError(
      "unknown-model", "the server at \(endpoint.authority) knows no model \"\(model)\"", kind: .job,
      hint: near.map { "did you mean \"\($0)\"?" } ?? "it knows: " + models.joined(separator: ", "))
  }

  private var notRembg: StageError {
    StageError(
      "service-unknown-kind", "what answers at \(endpoint.authority) is no rembg server", kind: .environment,
      hint: "`rembg s --port 7000` starts one; \"endpoint\" names its address")
  }

  /// The names in the pattern that the schema has for `model`; nil where there is none that can be read.
  static func models(_ schema: JSONNode) -> [String]? {
    func pattern(_ node: JSONNode, depth: Int) -> String? {
      guard depth < 24 else { return nil }
      if let model = node["model"], let pattern = model["pattern"]?.stringValue { return pattern }
      if node["name"]?.stringValue == "model", let pattern = node["schema"]?["pattern"]?.stringValue { return pattern }
      for child in (node.objectValue?.map(\.value) ?? []) + (node.arrayValue ?? []) {
        if let found = pattern(child, depth: depth + 1) { return found }
      }
      return nil
    }
    guard let text = pattern(schema, depth: 0) else { return nil }
    var inner = text[...]
    while let first = inner.first, "^(?:".contains(first) { inner.removeFirst() }
    while let last = inner.last, ")$".contains(last) { inner.removeLast() }
    let names = inner.split(separator: "|", omittingEmptySubsequences: false).map(String.init)
    // Anything else than plain names between bars is a pattern of another kind.
    let arePlain = names.allSatisfy { name in
      !name.isEmpty && name.utf8.allSatisfy { $0 == 45 || $0 == 95 || $0 == 46 || isLetterOrDigit($0) }
    }
    return arePlain ? names : nil
  }

  private static func isLetterOrDigit(_ byte: UInt8) -> Bool {
    0x30...0x39 ~= byte || 0x41...0x5A ~= byte || 0x61...0x7A ~= byte
  }
}
