import Dispatch
import Imaging
import Inference
import JobSyntax
import PipelineKit
import Synchronization

/// Why the next provider is asked.
enum Trouble: String, FieldChoice {
  case lowScore, empty, quota, temporary

  var help: String {
    switch self {
    case .lowScore: "the mask's score is below `minScore`"
    case .empty: "nothing was found"
    case .quota: "a limit was reached: the service's, or the job's budget"
    case .temporary: "it failed in a way that may pass: no answer, too busy, no memory"
    }
  }

  /// What an error of a provider means; nil for one that another provider is no answer to.
  init?(_ error: StageError) {
    switch error.kind {
    case .budget: self = .quota
    case .temporary: self = .temporary
    case .usage, .job, .environment, .item: return nil
    }
  }
}

/// What happens in the end to a picture that no provider made a good mask of.
enum Otherwise: String, FieldChoice {
  case fail, review

  var help: String {
    switch self {
    case .fail: "the item fails"
    case .review: "the input is copied to a folder for a person, and the item counts as `review`, which is no failure"
    }
  }
}

extension Segment {
  static let on = Field<[Trouble]>(
    "on", type: .array(.choice(Trouble.allCases.map { Choice($0.rawValue, $0.help) }), count: 1...4), absent: [],
    help: "what the provider asked before must have ended in for this one to be asked; all but the first need it"
  ) { node, _ in node.arrayValue?.compactMap { $0.stringValue.flatMap { Trouble(rawValue: $0) } } }

  static let providerShape = ObjectShape(providerFields + [on])
  static let providers = Field<[Settings]>(
    "providers", type: .array(.object(providerShape), count: 1...8), absent: [],
    help: "instead of `provider`: who is asked, in this order, each with the fields that a single provider takes"
  ) { node, file in node.arrayValue?.map { Settings(reading: $0, shape: providerShape, file: file) } }

  static let minScore = Field<Double>.number(
    "minScore", in: 0...1, default: 0.75,
    help:
      "masks with a score below this are not good enough: the next provider is asked, then `otherwise` decides; the "
      + "default was found with u2netp, of which it passes on a quarter")
  static let otherwise = Field<Otherwise?>.choice(
    "otherwise",
    help: "what happens when no provider made a mask of at least `minScore`; left out, the best mask is used, with the "
      + "warning low-score")

  static let judge = Field<Judge>.choice(
    "judge", default: .mask, help: "what a mask's entry in the report is made from")
  static let judgingFields: [any FieldDeclaration] = [providers, judge, minScore, otherwise, ReviewCopy.field]

  /// The settings of each provider.
  static func entries(of settings: Settings) -> [Settings] {
    settings.isSet(providers) ? settings[providers] : [settings]
  }

  static func checkProviders(_ settings: Settings) -> [Diagnostic] {
    var findings: [Diagnostic] = []
    if settings.isSet(providers) {
      for field in providerFields where settings.isSet(field) {
        findings.append(
          settings.diagnostic(
            .error, "conflicting-keys", at: field, "\"\(field.name)\" has no meaning with \"providers\"",
            hint: "put it into the first of the providers"))
      }
      for (index, entry) in settings[providers].enumerated() {
        findings += checkProvider(entry)
        if index == 0, entry.isSet(on) {
          findings.append(
            entry.diagnostic(
              .error, "not-applicable", at: on, "the first provider is always asked: \"on\" has no meaning there"))
        } else if index > 0, !entry.isSet(on) {
          findings.append(
            entry.diagnostic(
              .error, "missing-key", "provider \(index + 1) needs \"on\": what it is asked for",
              hint: #"such as "on": ["lowScore", "empty"]"#))
        }
      }
    } else {
      findings += checkProvider(settings)
    }
    if settings.isSet(ServiceFields.concurrency), entries(of: settings).allSatisfy({ $0[provider] == .local }) {
      findings.append(
        settings.diagnostic(
          .error, "not-applicable", at: ServiceFields.concurrency,
          "\"concurrency\" is about services, and there is none in this stage"))
    }
    if settings[otherwise] == .review, !settings.isSet(ReviewCopy.field) {
      findings.append(
        settings.diagnostic(
          .error, "missing-key", at: otherwise, "\"otherwise\": \"review\" needs \"review\": where inputs are copied",
          hint: #"such as "review": { "to": "review/${item.dir}/${item.name}" }"#))
    }
    // A field whose default is nothing governs no other for the checker of fields.
    if settings.isSet(ReviewCopy.field), settings[otherwise] == nil {
      findings.append(
        settings.diagnostic(
          .error, "not-applicable", at: ReviewCopy.field, "\"review\" has no meaning without \"otherwise\": \"review\"")
      )
    }
    return findings + ReviewCopy.check(settings)
  }

  private static func checkProvider(_ entry: Settings) -> [Diagnostic] {
    switch entry[provider] {
    case .local: ModelFields.check(entry)
    case .removebg: RemoveBGFields.check(entry)
    case .rembg: RembgServer.check(entry)
    case .http: HTTPSegmenter.check(entry)
    }
  }

  /// What a picture may cost, all providers together; nil where none is paid.
  static func price(_ settings: Settings) -> Price? {
    let prices = entries(of: settings).compactMap { entry -> Price? in
      switch entry[provider] {
      case .local, .rembg: nil
      case .removebg: Price(provider: RemoveBG.provider, credits: RemoveBGFields.size(entry).credits)
      case .http:
        entry[HTTPSegmenter.price] > 0
          ? Price(provider: HTTPSegmenter.provider, credits: entry[HTTPSegmenter.price]) : nil
      }
    }
    guard let first = prices.first else { return nil }
    let others = prices.dropFirst().map(\.provider).filter { $0 != first.provider }
    return Price(
      provider: ([first.provider] + others).joined(separator: " and "),
      credits: prices.reduce(0) { $0 + $1.credits })
  }

  /// How many pictures services work on at once; nil where there is no service.
  static func exchanges(_ settings: Settings) -> Int? {
    let services = entries(of: settings).map { $0[provider] }.filter { $0 != .local }
    guard !services.isEmpty else { return nil }
    return settings[ServiceFields.concurrency] ?? (services.contains(.rembg) ? RembgServer.concurrency : 8)
  }
}

/// The providers of a stage, asked in turn until one makes a mask that is good enough.
struct ProviderChain: Sendable {
  private struct Entry: Sendable {
    var segmenter: any Segmenter
    /// What the ones before must have ended in; nil for the first.
    var on: Set<Trouble>?
  }

  /// What became of a picture that no provider made a good enough mask of.
  struct Shortfall: Sendable {
    /// The mask with the best score, where there was any.
    var best: FoundMatte?
    /// What the last provider that was asked ended in.
    var trouble: Trouble
    /// The error of the last one that failed.
    var error: StageError?
    /// What each ended in, in a sentence.
    var reason: String

    /// Whether nothing was found, by the last one that was asked and all before.
    var isEmpty: Bool { best == nil && trouble == .empty }

    /// What the item fails with.
    var failure: StageError {
      if let error { return error }
      guard best != nil else { return Segment.nothingFound }
      return StageError(
        "low-score", reason, hint: "a lower \"minScore\", or a bigger model among the \"providers\", would go on")
    }
  }

  enum Answer: Sendable {
    case found(FoundMatte)
    case shortfall(Shortfall)
  }

  private let entries: [Entry]
  /// Nil where nothing depends on the score.
  private let minScore: Double?

  /// Makes the first provider ready, and looks whether the others could be: a model that is only asked for hard
  /// pictures is compiled when the first of them comes, and costs no memory before.
  init(_ settings: Settings, resources: StageResources) throws(StageError) {
    var entries: [Entry] = []
    for (index, entry) in Segment.entries(of: settings).enumerated() {
      let on = index == 0 ? nil : Set(entry[Segment.on])
      entries.append(
        Entry(
          segmenter: try Segment.segmenter(
            entry, judge: settings[Segment.judge], isSpare: index > 0, resources: resources), on: on))
    }
    let isJudged =
      settings.isSet(Segment.minScore) || settings[Segment.otherwise] != nil
      || entries.contains { $0.on?.contains(.lowScore) ?? false }
    self.init(entries, minScore: isJudged ? settings[Segment.minScore] : nil)
  }

  private init(_ entries: [Entry], minScore: Double?) {
    self.entries = entries
    self.minScore = minScore
  }

  /// A chain of segmenters that are ready, for tests.
  init(_ segmenters: [(segmenter: any Segmenter, on: Set<Trouble>?)], minScore: Double?) {
    self.init(segmenters.map { Entry(segmenter: $0.segmenter, on: $0.on) }, minScore: minScore)
  }

  /// The first provider's; the others run on the same machine with the same libraries.
  var maker: String { entries.first?.segmenter.maker ?? "" }

  /// How far the providers have been asked.
  private struct Asked: Sendable {
    var next = 0
    var trouble: Trouble?
    var best: FoundMatte?
    var failure: StageError?
    var reasons: [String] = []
  }

  /// Asks for a picture's mask.
  ///
  /// - Parameters:
  ///   - kept: where results are kept, of the whole stage.
  ///   - then: goes on with the answer, on the compute lane.
  /// - Throws: errors that no other provider is asked for, such as a picture that the chain is wrong for.
  func answer(
    for picture: Image, of item: Item, kept: KeptResults?, in context: StageContext,
    then: @escaping @Sendable (Answer, StageContext) throws(StageError) -> StageStep
  ) throws(StageError) -> StageStep {
    try ask(Asked(), picture, item, kept, context, then)
  }

  private func ask(
    _ asked: Asked, _ picture: Image, _ item: Item, _ kept: KeptResults?, _ context: StageContext,
    _ then: @escaping @Sendable (Answer, StageContext) throws(StageError) -> StageStep
  ) throws(StageError) -> StageStep {
    var asked = asked
    while asked.next < entries.count {
      let entry = entries[asked.next]
      if let on = entry.on {
        guard let trouble = asked.trouble, on.contains(trouble) else {
          asked.next += 1
          continue
        }
      }
      guard !context.isCancelled else {
        throw StageError("cancelled", "the picture was given up before its mask was made")
      }
      // Not by its place: a provider more or less is no reason to pay again.
      let own = kept?.narrowed(by: Array((entry.segmenter.request ?? "provider \(asked.next)").utf8))
      let step: SegmenterStep
      do throws(StageError) {
        step = try entry.segmenter.begin(picture, of: item, kept: own, in: context)
      } catch {
        try take(error, entry, &asked, context)
        continue
      }
      switch step {
      case .found(let found):
        if let answer = take(found, entry, &asked, context) { return try then(answer, context) }
      case .ended(let outcome): return .outcome(outcome)
      case .exchange, .compute: return follow(step, entry, asked, picture, item, kept, then)
      }
    }
    return try then(
      .shortfall(
        Shortfall(
          best: asked.best, trouble: asked.trouble ?? .empty, error: asked.failure,
          reason: asked.reasons.joined(separator: "; "))), context)
  }

  /// Goes on with a provider that is being asked, and after it with the next.
  private func follow(
    _ step: SegmenterStep, _ entry: Entry, _ asked: Asked, _ picture: Image, _ item: Item, _ kept: KeptResults?,
    _ then: @escaping @Sendable (Answer, StageContext) throws(StageError) -> StageStep
  ) -> StageStep {
    let body: @Sendable (StageContext) throws(StageError) -> SegmenterStep
    switch step {
    case .ended(let outcome): return .outcome(outcome)
    case .found(let found):
      return .compute { context throws(StageError) in
        var asked = asked
        if let answer = take(found, entry, &asked, context) { return try then(answer, context) }
        return try ask(asked, picture, item, kept, context, then)
      }
    case .exchange(let next), .compute(let next): body = next
    }
    let go: @Sendable (StageContext) throws(StageError) -> StageStep = { context throws(StageError) in
      do throws(StageError) {
        return follow(try body(context), entry, asked, picture, item, kept, then)
      } catch {
        var asked = asked
        try take(error, entry, &asked, context)
        let now = asked
        return .compute { context throws(StageError) in try ask(now, picture, item, kept, context, then) }
      }
    }
    if case .exchange = step { return .exchange(go) }
    return .compute(go)
  }

  /// Notes what a provider has found; nil where the next one is to be asked.
  private func take(
    _ found: FoundMatte?, _ entry: Entry, _ asked: inout Asked, _ context: StageContext
  ) -> Answer? {
    asked.next += 1
    guard let found else {
      asked.trouble = .empty
      asked.reasons.append("\(entry.segmenter.name) found nothing")
      return nil
    }
    for record in [found.record] + found.named { context.note(matte: record) }
    guard let minScore, found.record.score < minScore else { return .found(found) }
    asked.trouble = .lowScore
    asked.reasons.append(
      "\(entry.segmenter.name) made a mask of score \(Self.text(found.record.score)), below \(Self.text(minScore))")
    // At the same score the later one, which was meant for the hard pictures.
    if found.record.score >= asked.best?.record.score ?? 0 { asked.best = found }
    return nil
  }

  /// Notes what a provider has failed with.
  private func take(
    _ error: StageError, _ entry: Entry, _ asked: inout Asked, _ context: StageContext
  ) throws(StageError) {
    guard let kind = Trouble(error) else { throw error }
    asked.next += 1
    asked.trouble = kind
    asked.failure = error
    asked.reasons.append("\(entry.segmenter.name) failed: \(error.message)")
    if entries.count > 1 { context.warn(Segment.providerFailed, "\(entry.segmenter.name): \(error.description)") }
  }

  /// Two digits, rounded down: a score just below a threshold must not read as the threshold.
  private static func text(_ score: Double) -> String {
    let hundredths = Int((score * 100 + 1e-9).rounded(.down))
    return "\(hundredths / 100)." + (hundredths % 100 < 10 ? "0" : "") + "\(hundredths % 100)"
  }
}

/// A segmenter that is made when it is first asked for.
final class SpareSegmenter: Segmenter {
  private enum State {
    case none
    case making([DispatchSemaphore])
    case made(Result<any Segmenter, StageError>)
  }
  let name: String
  /// Not known before it is made.
  let maker = ""
  private let state = Mutex(State.none)
  private let make: @Sendable () throws(StageError) -> any Segmenter

  init(name: String, make: @escaping @Sendable () throws(StageError) -> any Segmenter) {
    self.name = name
    self.make = make
  }

  func begin(
    _ picture: Image, of item: Item, kept: KeptResults?, in context: StageContext
  ) throws(StageError) -> SegmenterStep {
    try ready().get().begin(picture, of: item, kept: kept, in: context)
  }

  /// One caller makes it and the others wait; no lock is held meanwhile.
  private func ready() -> Result<any Segmenter, StageError> {
    let semaphore = DispatchSemaphore(value: 0)
    while true {
      enum Step {
        case make, wait
        case use(Result<any Segmenter, StageError>)
      }
      let step: Step = state.withLock { state in
        switch state {
        case .none:
          state = .making([])
          return .make
        case .making(let waiting):
          state = .making(waiting + [semaphore])
          return .wait
        case .made(let result): return .use(result)
        }
      }
      switch step {
      case .use(let result): return result
      case .wait: semaphore.wait()
      case .make:
        let result: Result<any Segmenter, StageError>
        do throws(StageError) { result = .success(try make()) } catch { result = .failure(error) }
        let waiting = state.withLock { state in
          defer { state = .made(result) }
          if case .making(let waiting) = state { return waiting }
          return []
        }
        for semaphore in waiting { semaphore.signal() }
        return result
      }
    }
  }
}
