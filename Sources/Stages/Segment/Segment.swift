import Imaging
import Inference
import JobSyntax
import PipelineKit

/// Finds the subject and cuts it out, or gives its mask.
public struct Segment: ExchangingStage {
  /// Who finds the subject.
  enum Provider: String, FieldChoice {
    case local, removebg, rembg, http

    var help: String {
      switch self {
      case .local: "a model on this machine, through OpenVINO"
      case .removebg: "remove.bg, which is paid in credits: the job needs a `budget`"
      case .rembg: "a server of one's own that runs `rembg s`"
      case .http: "any other service that takes a picture and gives a cut-out or a mask"
      }
    }
  }

  /// What happens when nothing was found.
  enum OnEmpty: String, FieldChoice {
    case fail, keep, clear

    var help: String {
      switch self {
      case .fail: "the item fails with nothing-found"
      case .keep: "the whole picture counts as the subject, with a warning"
      case .clear: "the whole picture counts as background, with a warning"
      }
    }
  }

  /// What the picture becomes.
  enum Output: String, FieldChoice {
    case cutout, mask

    var help: String {
      switch self {
      case .cutout: "the picture with the mask as straight alpha"
      case .mask: "the mask as a grey picture: white where the subject is"
      }
    }
  }

  static let provider = Field<Provider>.choice("provider", default: .local, help: "who finds the subject")
  static let precision = Field<Precision>.choice(
    "precision", default: .auto, when: FieldCondition("provider", in: ["local"]), help: "the arithmetic of the model")
  /// What a single provider takes, and each of several.
  static let providerFields: [any FieldDeclaration] =
    [provider] + ModelFields.all + [precision] + ServiceFields.shared + RemoveBGFields.all + RembgServer.fields
    + HTTPSegmenter.all
  static let onEmpty = Field<OnEmpty>.choice(
    "onEmpty", default: .fail, help: "what happens when the model finds nothing")
  static let name = Field<String?>.text(
    "name", help: "also keeps the mask under this name, for `use` in a later `matte` stage")
  static let output = Field<Output>.choice("output", default: .cutout, help: "what the picture becomes")

  public static let spec = StageSpec(
    name: "segment", summary: "Finds the subject of the picture and cuts it out.",
    notes: [
      "The mask is as large as the picture. It becomes the picture's transparency, and is kept for later stages. "
        + "Transparency that a picture brings along stays: the mask is multiplied into it.",
      "A mask is spread over the whole range from black to white, as rembg does it. Nothing was found when the model's "
        + "map is flat or, with u2netp, nowhere reaches a tenth; a picture without a subject may still give some mask.",
      "The model sees the picture's colours after its colour profile was applied. rembg ignores profiles, so masks of "
        + "pictures with a profile that is not sRGB can differ from rembg's.",
      "A model that knows classes gives soft masks: the share that the model's scores leave to the chosen classes, each "
        + "pixel by itself, which is then enlarged. Nothing was found when no pixel has a share of half or more. Classes "
        + "have many spellings, and the usual ones are known: airplane and aeroplane, couch and sofa, tv monitor.",
      "Segment stages of one run that name the same model with the same precision share it, and it looks at a picture "
        + "once for all of them.",
      "Every mask of a model gets a score from 0 to 1, which stands in the report: less where the mask is soft, has a "
        + "long outline or touches much of the picture's border. On 60 photos with true masks (u2netp) its rank "
        + "correlation with the true overlap is 0.75 (Spearman). It does not show where a model is sure and wrong. With "
        + "`providers` only the pictures that need it go to a bigger model; a further provider's model is looked for at "
        + "the start, and loaded when it is first needed.",
      "Without `otherwise` a picture whose masks all score too low goes on with the best of them and the warning "
        + "low-score. `onEmpty` decides first about a picture in which nothing was found, unless it is `fail`.",
      "A service gets the picture upright, in sRGB, without transparency and metadata. Its mask is laid on the picture's "
        + "own pixels, which stay as they are; a smaller mask is enlarged as a model's is, along the picture's edges "
        + "(`refine`). With `\"channels\": \"rgba\"` the service's picture is taken instead, at its size.",
      "remove.bg is asked for a mask of a quarter of a megapixel unless the job says otherwise: a quarter of a credit a "
        + "picture. The report tells under `facts` what it charged, and the run what was left before the first call. "
        + "Pictures above 50 megapixels or 22 MB are sent smaller, with the warning sent-smaller. What was paid for is "
        + "kept in the state folder and not paid for again; a call whose answer was lost ends the picture as `unknown`, "
        + "until `pipeline receipts resolve` settles it. Out of credits, or with a key that is refused, no more calls "
        + "are made. `add_shadow`, which its API has given up, is `\"shadowType\": { \"car\": \"car\" }`.",
      "With rembg the mask alone is asked for (`om`): in the cut-outs that it makes itself the colours of soft edges are "
        + "darkened. It says nothing about why a picture failed, so it is asked once more and not again.",
      MatteFields.note,
    ],
    fields: providerFields + [onEmpty, refine, detail, name] + MatteFields.all + [output, decontaminate]
      + judgingFields + [ServiceFields.concurrency],
    examples: [
      #"{ "stage": "segment" }"#,
      #"{ "stage": "segment", "provider": "local", "model": "u2netp", "precision": "fast", "onEmpty": "keep" }"#,
      #"{ "stage": "segment", "output": "mask" }"#,
      #"{ "stage": "segment", "islands": "largest", "holes": 0.002, "shrink": 0.5 }"#,
      #"{ "stage": "segment", "model": "deeplabv3-257", "classes": ["person", "dog"] }"#,
      """
      { "stage": "segment", "model": "models/own.onnx", \
      "recipe": { "input": { "mean": [0.5, 0.5, 0.5], "std": [1, 1, 1] }, "output": { "activation": "sigmoid" } } }
      """,
      #"{ "stage": "segment", "providers": [{ "model": "u2netp" }, { "model": "u2net", "on": ["lowScore"] }] }"#,
      #"{ "stage": "segment", "otherwise": "review", "review": { "to": "review/${item.dir}/${item.name}" } }"#,
      #"{ "stage": "segment", "provider": "removebg", "apiKey": "${secret.REMOVE_BG_API_KEY}", "type": "product" }"#,
      """
      { "stage": "segment", "providers": [{ "model": "u2netp" }, { "provider": "removebg", \
      "apiKey": "${secret.REMOVE_BG_API_KEY}", "on": ["lowScore", "empty"] }] }
      """,
      #"{ "stage": "segment", "provider": "rembg", "endpoint": "http://gpu.local:7000", "model": "birefnet-general" }"#,
      """
      { "stage": "segment", "provider": "http", "url": "https://cut.example.com/v1/cut", \
      "headers": { "Authorization": "Bearer ${secret.CUT_TOKEN}" }, "answer": "json", "pointer": "/result/mask" }
      """,
    ])

  public static func plan(_ settings: Settings) -> StagePlan {
    var plan = StagePlan(
      accepts: .picture, produces: settings[output] == .mask ? .matte : [.alpha, .matte],
      removes: settings[output] == .mask ? [.alpha, .encoded] : .encoded)
    // The picture without its alpha, the matte, and the picture with its new alpha; changing the matte takes copies, as
    // does changing colours. What is worked out at the model's size is the same for every picture.
    let changesColours = settings[output] == .cutout && settings[decontaminate]
    let perPixel = (MatteAdjustment(settings).isEmpty ? 8 : 11) + (changesColours ? 3 : 0)
    let entries = entries(of: settings)
    plan.exchanges = exchanges(settings)
    plan.price = price(settings)
    // Each provider's own request counts, and nothing that is done with its answer.
    plan.paidSettings = ""
    // What is sent, and what comes back.
    let inTransit = plan.exchanges == nil ? 0 : 6
    plan.workingBytes = { width, height in width * height * (perPixel + inTransit) + 48 << 20 }
    plan.namedMattes = settings[name].map { [$0] } ?? []
    // Classes have many spellings, and the model's own is what counts.
    if entries.contains(where: { $0[ModelFields.separate] }) { plan.namedMattes = nil }
    plan.helperFiles = entries.flatMap { entry in
      entry[provider] == .local
        ? ModelFields.helperFiles(entry) : [entry[RemoveBGFields.backgroundFile]].compactMap { $0 }
    }
    if settings[otherwise] == .review, let review = settings[ReviewCopy.field] {
      plan.copies = [review[ReviewCopy.to]]
    }
    return plan
  }

  public static func check(_ settings: Settings) -> [Diagnostic] { checkProviders(settings) }

  public static func ingredients(_ settings: Settings) -> [String: String] {
    var ingredients: [String: String] = [:]
    for entry in entries(of: settings) where entry[provider] == .local {
      ingredients.merge(ModelFields.ingredients(entry)) { $1 }
    }
    return ingredients
  }

  private let providers: ProviderChain
  private let otherwise: Otherwise?
  private let reviewCopy: ReviewCopy?
  private let onEmpty: OnEmpty
  private let output: Output
  private let matteFinish: MatteFinish
  private let adjustment: MatteAdjustment
  private let decontaminates: Bool
  private let name: String?

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    self.init(settings, providers: try ProviderChain(settings, resources: resources))
  }

  init(_ settings: Settings, providers: ProviderChain) {
    self.providers = providers
    otherwise = settings[Self.otherwise]
    reviewCopy = settings[ReviewCopy.field].map { ReviewCopy(template: $0[ReviewCopy.to]) }
    onEmpty = settings[Self.onEmpty]
    output = settings[Self.output]
    matteFinish = MatteFinish(settings)
    adjustment = MatteAdjustment(settings)
    decontaminates = settings[Self.decontaminate]
    name = settings[Self.name]
  }

  public func begin(_ item: Item, in context: StageContext) throws(StageError) -> StageStep {
    let picture = try item.image(in: context)
    let kept = context.keptResults(for: item)
    let maker = providers.maker
    if let known = kept?.find().flatMap({
      KeptMattes($0, width: picture.width, height: picture.height, maker: maker)
    }) {
      context.journal.record {
        $0.mattes += known.records
        $0.warnings += known.warnings
      }
      return .outcome(.next(try joined(item, picture, nil, known.whole, item.mattes.merging(known.named) { $1 })))
    }
    let before = context.journal.snapshot
    return try providers.answer(for: picture, of: item, kept: kept, in: context) { answer, context throws(StageError) in
      .outcome(try finish(item, picture, answer, kept, since: before, context))
    }
  }

  private func finish(
    _ item: Item, _ picture: Image, _ answer: ProviderChain.Answer, _ kept: KeptResults?,
    since before: ItemJournal.Entries, _ context: StageContext
  ) throws(StageError) -> Outcome {
    let found: FoundMatte?
    switch answer {
    case .found(let answer): found = answer
    case .shortfall(let shortfall):
      if shortfall.isEmpty, onEmpty != .fail || otherwise == nil {
        found = nil
      } else {
        switch otherwise {
        case .review: return try reviewed(item, shortfall.reason, context)
        case .fail: throw shortfall.failure
        case nil:
          guard let best = shortfall.best else { throw shortfall.failure }
          context.warn("low-score", shortfall.reason)
          found = best
        }
      }
    }
    var mattes: [String: Image] = [:]
    let whole: Image
    let used: FoundMatte?
    // What a model is unsure of, or sees in less than a pixel, may be gone from the mask at the picture's size.
    if let made = try found.map({ (found) throws(StageError) in try matteFinish.mattes(of: found, over: picture) }),
      try !Self.isBlack(made.whole)
    {
      whole = made.whole
      used = found
      for (name, matte) in made.named { mattes[name] = try adjustment.applied(to: matte, in: context) }
    } else {
      if found != nil, onEmpty == .fail, otherwise == .review {
        return try reviewed(item, Self.nothingFound.message, context)
      }
      whole = try emptyMatte(for: picture, context)
      used = nil
    }
    let matte = try adjustment.applied(to: whole, in: context)
    if let name { mattes[name] = matte }
    // A service's colours are kept as it sent them, where they are kept at all.
    if let kept, used?.replacement == nil { keep(matte, mattes, since: before, in: kept, context) }
    let others = used?.replacement == nil ? item.mattes.merging(mattes) { $1 } : mattes
    return .next(try joined(item, picture, used, matte, others))
  }

  /// The item with what was found in its picture.
  private func joined(
    _ item: Item, _ picture: Image, _ found: FoundMatte?, _ matte: Image, _ mattes: [String: Image]
  ) throws(StageError) -> Item {
    let original = found?.replacement == nil ? picture : found?.original
    switch output {
    case .mask: return item.with(image: matte, matte: matte, original: original, mattes: mattes)
    case .cutout:
      if let colours = found?.replacement {
        let cutout = try StageError.imaging { () throws(ImagingError) in try colours.multipliedAlpha(by: matte) }
        return item.with(image: cutout, matte: matte, original: original, mattes: mattes)
      }
      // Left lazy: picture and matte are in memory, and joining them again when pixels are read costs next to nothing,
      // while the joined picture would take more than both.
      let cutout = try StageError.imaging { () throws(ImagingError) in
        try picture.cutOut(by: matte, cleaningColours: decontaminates)
      }
      return item.with(image: cutout, matte: matte, original: picture, mattes: mattes)
    }
  }

  /// Keeps what was found for later runs. Where that fails, they find it again.
  private func keep(
    _ matte: Image, _ mattes: [String: Image], since before: ItemJournal.Entries, in kept: KeptResults,
    _ context: StageContext
  ) {
    let after = context.journal.snapshot
    let warnings = Array(after.warnings.dropFirst(before.warnings.count))
    // Another provider has stood in for one that may be well again next time.
    guard !warnings.contains(where: { $0.code == Self.providerFailed }) else { return }
    let found = KeptMattes(
      whole: matte, named: mattes, records: Array(after.mattes.dropFirst(before.mattes.count)), warnings: warnings,
      maker: providers.maker)
    if let bytes = (try? found.packed()) ?? nil { try? kept.keep(bytes) }
  }

  static let providerFailed = "provider-failed"

  static let nothingFound = StageError(
    "nothing-found", "the model found no subject in the picture",
    hint: "\"onEmpty\": \"keep\" or \"clear\" would go on")

  private static func isBlack(_ matte: Image) throws(StageError) -> Bool {
    try StageError.imaging { () throws(ImagingError) in try matte.withPixels { $0.allSatisfy { $0 == 0 } } }
  }

  private func reviewed(_ item: Item, _ reason: String, _ context: StageContext) throws(StageError) -> Outcome {
    guard let reviewCopy else {
      throw StageError("internal-fault", "segment has no folder for what is to be reviewed", kind: .job)
    }
    let path = try reviewCopy.put(item, in: context)
    return .review(reason: "\(reason); copied to \(path.printable)")
  }

  private func emptyMatte(for picture: Image, _ context: StageContext) throws(StageError) -> Image {
    let level: UInt8
    switch onEmpty {
    case .fail:
      throw Self.nothingFound
    case .keep:
      context.warn("nothing-found", "the model found no subject; the whole picture was kept")
      level = 255
    case .clear:
      context.warn("nothing-found", "the model found no subject; the whole picture was cleared")
      level = 0
    }
    return try StageError.imaging { () throws(ImagingError) in
      try Image(
        width: picture.width, height: picture.height, bands: 1,
        bytes: [UInt8](repeating: level, count: picture.width * picture.height))
    }
  }
}

extension Precision: FieldChoice {
  public var help: String {
    switch self {
    case .auto:
      "8-bit integers for models that were measured in them (u2netp: some 60 per cent of the time; over 60 photos with "
        + "true masks the mean error grew by 0.0003, and no overlap fell by more than 0.05), else f32"
    case .f32: "32-bit floats: masks agree across machines"
    case .fast: "as auto, but bf16 instead of f32 where the processor has it"
    }
  }
}
