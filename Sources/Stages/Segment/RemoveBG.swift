import Digest
import Imaging
import JobSyntax
import PipelineKit
import Transport

/// remove.bg, and what speaks as it does: API v1.0.
///
/// Every call costs, so each goes through `payOnce`: what was paid for is on the disk, as it came, before it is looked at.
struct RemoveBG: Segmenter {
  static let address = "https://api.remove.bg/v1.0"
  /// As jobs and the ledger call it.
  static let provider = "removebg"

  private static let service = "remove.bg"
  /// What it takes: 22 MB, 50 megapixels.
  private static let taken = (bytes: 22_000_000, pixels: 50_000_000)

  /// What an account has to spend; nil where the service does not tell.
  private struct Balance: Sendable {
    var credits: Double
    var freeCalls: Int
  }

  let name = RemoveBG.service
  let maker = "remove.bg v1.0"

  let request: String?
  private let settings: Settings
  private let removal: RequestURL
  private let accountAddress: RequestURL
  private let key: String
  private let isToken: Bool
  /// Whose credits are spent; no credential.
  private let account: String
  private let caller: Caller
  private let balance: AskedOnce<Balance?>
  private let facts: RunFacts
  private let background: ServiceForm.File?
  private let size: RemoveBGFields.Size

  init(_ settings: Settings, resources: StageResources) throws(StageError) {
    self.settings = settings
    size = RemoveBGFields.size(settings)
    let base = settings[ServiceFields.endpoint] ?? Self.address
    removal = try ServiceFields.address(base, "removebg")
    accountAddress = try ServiceFields.address(base, "account")
    isToken = settings[RemoveBGFields.apiKey] == nil
    guard let credential = settings[RemoveBGFields.apiKey] ?? settings[RemoveBGFields.token] else {
      throw StageError("internal-fault", "removebg has no credential", kind: .job)
    }
    key = try credential.reveal()
    // Tells accounts apart, and is too short to say anything about the key.
    let mark = Array(key.utf8).withUnsafeBytes { Hex.text(SHA256.digest(of: $0).prefix(4)) }
    account = "\(removal.host)/\(mark)"
    // 500 megapixels a minute, counted from what is sent; a little at once after a rest.
    let pacer = resources.services.pacer("removebg \(account)", perMinute: 500, burst: 25)
    caller = resources.services.caller(pacer)
    let shared = "segment.removebg.\(account)"
    balance = try resources.shared.object(shared) { () throws(StageError) in AskedOnce<Balance?>() }
    facts = resources.facts
    background = try settings[RemoveBGFields.backgroundFile].map { (path) throws(StageError) in
      try Self.backgroundFile(resources.run.baseFolder.joining(path).normalised)
    }
    let file = try background.map { (file) throws(StageError) -> String in
      do throws(TransportError) {
        return Hex.text(try file.payload.bytes().withUnsafeBytes { SHA256.digest(of: $0) })
      } catch { throw StageError(error, of: Self.service) }
    }
    request = "\(Self.provider) \(RemoveBGFields.effective(settings)) \(file ?? "")"
  }

  private static func backgroundFile(_ path: PathBytes) throws(StageError) -> ServiceForm.File {
    do throws(ImagingError) {
      let bytes = try EncodedPicture.read(path: path.bytes, maxBytes: taken.bytes).array
      let isPNG = bytes.starts(with: [0x89, 0x50])
      let isJPEG = bytes.starts(with: [0xFF, 0xD8])
      guard ServiceAnswer.looksLikePicture(bytes), !ServiceAnswer.isZip(bytes) else {
        throw ImagingError(.unsupported, "it is no JPEG, PNG or WebP")
      }
      let ending = isPNG ? "png" : isJPEG ? "jpg" : "webp"
      return ServiceForm.File(
        name: "bg_image_file", payload: Payload(bytes), filename: "background.\(ending)",
        type: "image/\(isJPEG ? "jpeg" : ending)")
    } catch {
      throw StageError(
        "background-file", "the background \(path.printable) cannot be used: \(error.message)", kind: .environment,
        hint: error.hint)
    }
  }

  func begin(
    _ picture: Image, of item: Item, kept: KeptResults?, in context: StageContext
  ) throws(StageError) -> SegmenterStep {
    if let known = kept?.find(paid: true).flatMap({ ServiceAnswer($0) }) {
      return .found(try absorb(known, picture, isNew: false, context))
    }
    // Spares the work where no call will be made.
    if let reason = context.services?.closure(of: account) {
      throw StageError("limit-reached", reason, kind: .budget)
    }
    guard context.services != nil else {
      throw StageError(
        "no-ledger", "pictures of an animation, and of runs without a ledger, are not sent to a service that is paid",
        kind: .item, hint: #"decode the first frame alone: "frames": "first""#)
    }
    let (request, weight) = try self.call(for: picture, of: item, context)
    return .exchange { context throws(StageError) in
      try checkBalance(context)
      let answer: CallAnswer
      do throws(StageError) {
        answer = try context.payOnce(
          provider: Self.provider, account: account, amount: size.credits, kept: kept
        ) { () throws(StageError) in try call(request, weight: weight, context) }
      } catch {
        if error.code == Segment.nothingFound.code { return .found(nil) }
        throw error
      }
      switch answer {
      case .unknown(let receipt): return .ended(.unknown(receipt: receipt))
      case .result(let bytes, let isNew):
        return .compute { context throws(StageError) in
          guard let answer = ServiceAnswer(bytes) else {
            throw StageError("service-answer", "what was kept of remove.bg's answer cannot be read")
          }
          return .found(try absorb(answer, picture, isNew: isNew, context))
        }
      }
    }
  }

  // MARK: The request

  /// The request for a picture, and what it takes of the pace: megapixels, at least 1.
  private func call(
    for picture: Image, of item: Item, _ context: StageContext
  ) throws(StageError) -> (Request, weight: Double) {
    let form = settings[ServiceFields.request]
    let source: ServiceForm.Picture
    let sent: (Int, Int)
    if form.source == .url, let template = settings[ServiceFields.imageURL] {
      sent = (picture.width, picture.height)
      source = .address(name: "image_url", try ServiceFields.address(template, of: item, context).text)
    } else {
      var limits = ServicePicture.Limits()
      (limits.bytes, limits.pixels) = Self.taken
      // For a mask there is no use in more than a few pixels for each of its own; up to a megapixel weighs the same.
      if settings[ServiceFields.channels] == .alpha { limits.usefulPixels = max(1_000_000, size.most) }
      let prepared = try ServicePicture(picture, as: .jpeg, within: limits)
      if let note = prepared.note { context.warn("sent-smaller", "remove.bg: \(note)") }
      sent = (prepared.width, prepared.height)
      source = .bytes(prepared.file(form.source == .file ? "image_file" : "image_file_b64"))
    }
    let body = ServiceForm(
      picture: source,
      fields: RemoveBGFields.options(settings, picture: (picture.width, picture.height), sent: sent),
      files: background.map { [$0] } ?? [])
    var request = Request(
      .post, removal, headers: credentials, body: body.body(form.body, isBase64: form.source == .base64))
    request.accept = settings[RemoveBGFields.response] == .json ? "application/json" : "image/*"
    // The largest pictures take their time.
    request.timeouts = Timeouts(connect: 30, stall: 120, total: 600)
    return (request, max(1, Double(sent.0 * sent.1) / 1e6))
  }

  private var credentials: [HeaderField] {
    isToken
      ? [HeaderField("Authorization", "Bearer \(key)", isCredential: true)]
      : [HeaderField("X-Api-Key", key, isCredential: true)]
  }

  /// Makes the call, with all repetitions that cost nothing.
  private func call(_ request: Request, weight: Double, _ context: StageContext) throws(StageError) -> CallResult {
    do throws(ServiceFailure) {
      let response = try context.call(
        caller, weight: weight, repeats: .unlessArrived, classify: RemoveBGAnswers.classify
      ) { _ in request }
      let answer = ServiceAnswer(response, keeping: RemoveBGAnswers.headers)
      return .answered(answer.packed, charged: Self.credits(answer))
    } catch {
      switch error.kind {
      case .unknown: return .unknown(error.message)
      case .badPicture where error.code == RemoveBGAnswers.nothingFound: return .failed(Segment.nothingFound)
      default: return .failed(failure(error, context))
      }
    }
  }

  /// What the service says it took; nil where that is no price, and what was expected counts.
  private static func credits(_ answer: ServiceAnswer) -> Double? {
    answer.number("X-Credits-Charged").flatMap { $0 == 0 || (0.001...1e6).contains($0) ? $0 : nil }
  }

  /// An error for a failure; where it is about the account, no more calls are made with it.
  private func failure(_ failure: ServiceFailure, _ context: StageContext) -> StageError {
    let error = StageError(failure, of: Self.service)
    if [.quota, .credentials].contains(failure.kind) {
      context.services?.close(account: account, reason: error.message)
    }
    return error
  }

  // MARK: The account

  /// Asks for the balance before the first call of a run that is paid. Where there is none, no call is made.
  private func checkBalance(_ context: StageContext) throws(StageError) {
    let known = try balance.answer(in: context) { () throws(StageError) -> Balance? in
      let found = try askBalance(context)
      facts.set(
        Self.provider,
        .object(
          [("account", .string(account))]
            + (found.map { [("credits", .number($0.credits)), ("freeCalls", .integer($0.freeCalls))] }
              ?? [("credits", .null)])))
      return found
    }
    // The number lags: only where nothing at all is left is it believed.
    guard let known, known.credits <= 0, known.freeCalls <= 0 || size.credits > 0.25 else { return }
    context.services?.close(account: account, reason: "remove.bg: the account has no credits left, as it says itself")
  }

  private func askBalance(_ context: StageContext) throws(StageError) -> Balance? {
    var request = Request(.get, accountAddress, headers: credentials)
    request.accept = "application/json"
    let response: Response
    do throws(ServiceFailure) {
      response = try context.call(caller, weight: 1, repeats: .always, classify: Self.classifyAccount) { _ in request }
    } catch {
      switch error.kind {
      case .credentials, .cancelled, .rate, .putOff, .temporary: throw failure(error, context)
      // A twin may not tell its balance; the calls themselves will show.
      default: return nil
      }
    }
    guard let answer = try? JSONAnswer(response.body), let credits = answer.number(at: "/data/attributes/credits/total")
    else { return nil }
    return Balance(
      credits: credits, freeCalls: Int(exactly: answer.number(at: "/data/attributes/api/free_calls") ?? 0) ?? 0)
  }

  private static let classifyAccount: Classifier = { response in
    response.isSuccess ? nil : RemoveBGAnswers.classify(response)
  }

  // MARK: The answer

  private func absorb(
    _ answer: ServiceAnswer, _ picture: Image, isNew: Bool, _ context: StageContext
  ) throws(StageError) -> FoundMatte? {
    context.note(Self.provider, RemoveBGAnswers.facts(answer, isNew: isNew))
    let bytes: [UInt8]
    do throws(TransportError) { bytes = try RemoveBGAnswers.picture(answer) } catch {
      throw StageError("service-answer", "remove.bg: \(error.message)")
    }
    let channels = settings[ServiceFields.channels]
    let image: Image
    let meaning: ServiceMask.Meaning
    if ServiceAnswer.isZip(bytes) {
      do throws(ImagingError) {
        let files = try RemoveBGAnswers.files(of: bytes)
        image = try Self.joined(files.colour, files.alpha, channels)
      } catch {
        throw StageError("service-answer", "remove.bg: \(error.message)", cause: error.detail)
      }
      meaning = channels == .alpha ? .brightness : .alpha
    } else {
      image = try FoundMatte.decoded(bytes, from: Self.service)
      meaning = channels == .alpha ? .either : .alpha
    }
    return try FoundMatte.answered(
      image, channels, meaning, for: picture,
      isWhole: !settings[RemoveBGFields.crop] && settings[RemoveBGFields.scale] == nil
        && [nil, "original"].contains(settings[RemoveBGFields.position]),
      mayBeOpaque: RemoveBGFields.hasBackground(settings), provider: Self.provider, model: size.rawValue)
  }

  /// The mask of an archive, or its colours under it.
  static func joined(
    _ colour: [UInt8], _ alpha: [UInt8], _ channels: ServiceFields.Channels
  ) throws(ImagingError) -> Image {
    let mask = try EncodedPicture(bytes: EncodedBytes(alpha), limits: DecodeLimits()).pixels()
    guard channels == .rgba else { return mask }
    let colours = try EncodedPicture(bytes: EncodedBytes(colour), limits: DecodeLimits()).pixels()
    guard let plane = try ServiceMask(mask, .brightness), (mask.width, mask.height) == (colours.width, colours.height)
    else {
      throw ImagingError(
        .damaged,
        "color.jpg has \(colours.width)×\(colours.height) pixels and alpha.png \(mask.width)×\(mask.height)")
    }
    return try colours.withAlpha(Image(width: plane.width, height: plane.height, bands: 1, bytes: plane.bytes))
  }
}
