import Imaging
import JobSyntax
import PipelineKit
import Transport

/// The fields of remove.bg's API v1.0, each with the values that it documents.
enum RemoveBGFields {
  private static let isChosen = ServiceFields.removebg

  /// How large the answer is.
  enum Size: String, FieldChoice {
    case preview, full
    case fifty = "50MP"
    case auto, medium, hd, small, regular
    case fourK = "4k"

    var help: String {
      switch self {
      case .preview: "a quarter of a megapixel, for a quarter of a credit"
      case .full: "up to 25 megapixels, as PNG up to 10, for one credit"
      case .fifty: "up to 50 megapixels, as PNG up to 10, for one credit"
      case .auto: "the largest that the account can pay, up to 25 megapixels: a quarter of a credit or one"
      case .medium: "1.5 megapixels, for one credit; an old name"
      case .hd: "4 megapixels, for one credit; an old name"
      case .small, .regular: "the same as preview"
      case .fourK: "the same as full"
      }
    }

    /// Credits, the most that one call takes.
    var credits: Double { isSmall ? 0.25 : 1 }

    private var isSmall: Bool {
      switch self {
      case .preview, .small, .regular: true
      case .full, .fifty, .auto, .medium, .hd, .fourK: false
      }
    }

    /// Pixels that an answer has at most.
    var most: Int {
      switch self {
      case .preview, .small, .regular: 250_000
      case .medium: 1_500_000
      case .hd: 4_000_000
      case .full, .fourK, .auto: 25_000_000
      case .fifty: 50_000_000
      }
    }
  }

  enum Format: String, FieldChoice {
    case auto, png, jpg, zip, webp

    var help: String {
      switch self {
      case .auto: "as the service chooses: PNG where the result has transparency, else JPEG"
      case .png: "PNG, which has at most 10 megapixels"
      case .jpg: "JPEG, for masks and for results with a background"
      case .zip: "colours as JPEG and the mask as PNG in an archive, joined here: smaller, and up to 50 megapixels"
      case .webp: "WebP, up to 50 megapixels"
      }
    }
  }

  enum Subject: String, FieldChoice {
    case auto, person, product, car, animal, graphic, transportation

    var help: String {
      switch self {
      case .auto: "whatever the service finds"
      case .person, .product, .animal, .graphic: "a \(rawValue)"
      case .car: "a car, whose windows may be half transparent"
      case .transportation: "another vehicle"
      }
    }
  }

  enum TypeLevel: String, FieldChoice {
    case one = "1"
    case none
    case two = "2"
    case latest

    var help: String {
      switch self {
      case .none: "no word of it"
      case .one: "person, product, animal, car or other"
      case .two: "also car_interior, car_part, transportation and graphics"
      case .latest: "the finest that there is"
      }
    }
  }

  enum Shadow: String, FieldChoice {
    case none, auto, car, drop
    case threeD = "3D"

    var help: String {
      switch self {
      case .none: "no shadow"
      case .auto: "what suits the subject"
      case .car: "under a car"
      case .drop: "a soft one below"
      case .threeD: "one that falls on the ground"
      }
    }
  }

  enum Response: String, FieldChoice {
    case image, json

    var help: String {
      switch self {
      case .image: "a picture"
      case .json: "JSON with the picture in base64"
      }
    }
  }

  /// Where a side lies: whole pixels, or a share as the job spells it.
  enum Edge: Sendable, Hashable {
    case pixels(Int)
    case share(String)

    init?(_ node: JSONNode) {
      if let text = node.stringValue {
        self = .share(text)
      } else {
        guard let pixels = node.numberValue?.integer else { return nil }
        self = .pixels(pixels)
      }
    }

    /// Of a hundred; nil for pixels.
    var percent: Double? { if case .share(let text) = self { Double(text.dropLast()) } else { nil } }

    /// As the service reads it.
    var text: String {
      switch self {
      case .pixels(let pixels): "\(pixels)px"
      case .share(let text): text
      }
    }

    /// The same on a side that is sent with another number of pixels; what lies beyond it stays beyond.
    func text(of side: Int, sentWith sent: Int) -> String {
      guard case .pixels(let pixels) = self, side != sent else { return text }
      let scaled = Int((Double(pixels) * Double(sent) / Double(side)).rounded())
      return "\(pixels > side ? max(scaled, sent + 1) : min(scaled, sent))px"
    }
  }

  private static func edges(
    _ name: String, count: ClosedRange<Int>, pixels: ClosedRange<Int>, help: String
  ) -> Field<[Edge]> {
    Field<[Edge]>(
      name, type: .array(.oneOf([.integer(pixels), .text(.percentage)]), count: count), absent: [], when: isChosen,
      help: help
    ) { node, _ in node.arrayValue?.compactMap { Edge($0) } }
  }

  static let apiKey = Field<Credential?>.credential(
    "apiKey", when: isChosen, help: "the key of the account at remove.bg")
  static let token = Field<Credential?>.credential(
    "token", when: isChosen, help: "instead of `apiKey`: an OAuth 2 access token")
  static let response = Field<Response>.choice(
    "response", default: .image, when: isChosen, help: "the form of the answer")
  static let size = Field<Size?>.choice(
    "size", when: isChosen,
    help:
      "how large the answer is, which decides what it costs; left out, preview where only the mask is used, else full")
  static let type = Field<Subject>.choice("type", default: .auto, when: isChosen, help: "what the subject is")
  static let typeLevel = Field<TypeLevel>.choice(
    "typeLevel", default: .one, when: isChosen, help: "how finely the report tells what the subject is")
  static let format = Field<Format?>.choice(
    "format", when: isChosen,
    help: "how the answer is packed; left out, PNG, and zip where more than PNG's 10 megapixels are wanted")
  static let roi = edges(
    "roi", count: 4...4, pixels: 0...100_000,
    help:
      "left, top, right and bottom of where the subject is looked for, in pixels of the picture or in per cent of its "
      + "sides; all else becomes background")
  static let crop = Field<Bool>.boolean(
    "crop", default: false, when: isChosen, help: "whether the empty border is cut off, which costs nothing")
  static let cropMargin = edges(
    "cropMargin", count: 1...4, pixels: 0...500,
    help:
      "what stays around the subject with `crop`: one value, two (top and bottom, left and right) or four (top, right, "
      + "bottom, left), in pixels up to 500 or in per cent of the subject up to 50")
  static let scale = Field<Int?>.integer(
    "scale", in: 10...100, unit: "per cent", when: isChosen,
    help: "how much of the canvas the subject takes; it is then moved to the centre, unless `position` says otherwise")
  static let position = Field<String?>(
    "position",
    type: .oneOf([
      .choice([Choice("original", "where it was"), Choice("center", "the centre")]),
      .array(.number(0...100), count: 1...2),
    ]), absent: .some(nil), when: isChosen,
    help: "where the subject is put: a word, or per cent of the free space, one for both directions or one each"
  ) { node, _ in
    if let word = node.stringValue { return .some(word) }
    return node.arrayValue.map { .some($0.compactMap { $0.numberValue.map { "\($0.text)%" } }.joined(separator: " ")) }
  }
  static let semitransparency = Field<Bool>.boolean(
    "semitransparency", default: true, when: isChosen, help: "whether windows of cars become half transparent")

  static let classes = ["car", "person", "product", "animal", "transportation", "graphic", "other"]

  /// One value for all subjects, or one for each class of them: `shadow_type`, `shadow_type[car]`.
  private static func byClass(
    _ name: String, _ parameter: String, _ type: FieldType, help: String,
    _ text: @escaping @Sendable (JSONNode) -> String?
  ) -> Field<[ServiceOption]> {
    let shape = ObjectShape(
      classes.map { subject in
        Field<String?>(subject, type: type, absent: .some(nil), help: "for the class \(subject)") { node, _ in
          text(node).map { .some($0) }
        }
      })
    return Field<[ServiceOption]>(
      name, type: .oneOf([type, .object(shape)]), absent: [], when: isChosen, help: help
    ) { node, _ in
      guard let members = node.objectValue else {
        return text(node).map { [ServiceOption(name: parameter, text: $0)] }
      }
      return members.compactMap { member in
        text(member.value).map { ServiceOption(name: "\(parameter)[\(member.key)]", text: $0) }
      }
    }
  }

  static let shadowType = byClass(
    "shadowType", "shadow_type", .choice(Shadow.allCases.map { Choice($0.rawValue, $0.help) }),
    help:
      "the shadow that is drawn: a word, or an object with one for each class of subjects, where classes that are left "
      + "out get none"
  ) { $0.stringValue }
  static let shadowOpacity = byClass(
    "shadowOpacity", "shadow_opacity",
    .oneOf([.choice([Choice("auto", "90 for cars, else 50")]), .integer(0...100)]),
    help: "how dark the shadow is: \"auto\", a number, or an object with one for each class of subjects"
  ) { $0.stringValue ?? $0.numberValue?.integer.map(String.init) }

  static let backgroundColor = Field<RGBA?>.color(
    "backgroundColor", when: isChosen, help: "the service lays the result on this colour")
  static let backgroundURL = Field<String?>.text(
    "backgroundUrl", when: isChosen, help: "the service lays the result on the picture at this address")
  static let backgroundFile = Field<String?>.text(
    "backgroundFile", .path, when: isChosen, help: "the service lays the result on this picture, which is sent along")

  static let all: [any FieldDeclaration] = [
    apiKey, token, response, size, type, typeLevel, format, roi, crop, cropMargin, scale, position, semitransparency,
    shadowType, shadowOpacity, backgroundColor, backgroundURL, backgroundFile,
  ]

  /// Fields that change what is seen, so that the mask alone could not be laid on the picture.
  private static let changing: [any FieldDeclaration] = [
    crop, cropMargin, scale, position, shadowType, shadowOpacity, backgroundColor, backgroundURL, backgroundFile,
  ]
  private static let backgrounds: [any FieldDeclaration] = [backgroundColor, backgroundURL, backgroundFile]

  static func hasBackground(_ settings: Settings) -> Bool { backgrounds.contains { settings.isSet($0) } }

  /// All that an answer follows from besides the picture, as text.
  static func effective(_ settings: Settings) -> String {
    let form: Set = [apiKey.name, token.name, response.name]
    let fields = all.filter { !form.contains($0.name) } + [ServiceFields.endpoint, ServiceFields.channels]
    let address: [any FieldDeclaration] = settings[ServiceFields.request].source == .url ? [ServiceFields.imageURL] : []
    return ObjectShape(fields + address).effective(settings.nodes).rendered()
  }

  /// What is asked for, and what it costs at most.
  static func size(_ settings: Settings) -> Size {
    settings[size] ?? (settings[ServiceFields.channels] == .alpha ? .preview : .full)
  }

  // MARK: Rules

  static func check(_ settings: Settings) -> [Diagnostic] {
    var findings = ServiceFields.check(settings)
    func error(_ code: String, at field: any FieldDeclaration, _ message: String, hint: String? = nil) {
      findings.append(settings.diagnostic(.error, code, at: field, message, hint: hint))
    }
    switch (settings.isSet(apiKey), settings.isSet(token)) {
    case (true, true):
      error("conflicting-keys", at: token, "removebg takes one of \"apiKey\" and \"token\", got both")
    case (false, false):
      error(
        "missing-key", at: apiKey, "removebg needs \"apiKey\"",
        hint: #"such as "apiKey": "${secret.REMOVE_BG_API_KEY}", with the key in the environment"#)
    default: break
    }
    let form = settings[ServiceFields.request]
    if form == .raw {
      error(
        "not-applicable", at: ServiceFields.request, "removebg takes no \"raw\" body", hint: "multipart sends a file")
    }
    if settings[ServiceFields.channels] == .alpha {
      for field in changing where settings.isSet(field) {
        error(
          "not-applicable", at: field,
          "\"\(field.name)\" has no meaning with \"channels\": \"alpha\", where the mask is laid on the picture itself",
          hint: "\"channels\": \"rgba\" takes the service's picture; or use the stages crop, trim and composite")
      }
    } else {
      checkPicture(settings, &findings)
    }
    if settings.isSet(cropMargin), !settings[crop], settings[ServiceFields.channels] == .rgba {
      error("not-applicable", at: cropMargin, "\"cropMargin\" has no meaning without \"crop\": true")
    }
    if settings[cropMargin].count == 3 {
      error("out-of-range", at: cropMargin, "\"cropMargin\" expects 1, 2 or 4 elements, got 3")
    }
    if settings[cropMargin].contains(where: { $0.percent ?? 0 > 50 }) {
      error("out-of-range", at: cropMargin, "\"cropMargin\" expects at most 50%")
    }
    checkRegion(settings, &findings)
    if settings[size].map({ $0.most > 10_000_000 }) ?? false, settings[format] == .png {
      findings.append(
        settings.diagnostic(
          .warning, "png-limit", at: format, "PNG of remove.bg has at most 10 megapixels, whatever \"size\" says",
          hint: "leave \"format\" out, or use zip or webp"))
    }
    return findings
  }

  private static func checkPicture(_ settings: Settings, _ findings: inout [Diagnostic]) {
    func error(_ code: String, at field: any FieldDeclaration, _ message: String, hint: String? = nil) {
      findings.append(settings.diagnostic(.error, code, at: field, message, hint: hint))
    }
    let given = backgrounds.filter { settings.isSet($0) }
    if given.count > 1 {
      error(
        "conflicting-keys", at: given[1],
        "removebg takes one background, got " + given.map { "\"\($0.name)\"" }.joined(separator: " and "))
    }
    if settings.isSet(backgroundFile), settings[ServiceFields.request].body != .multipart {
      error(
        "not-applicable", at: backgroundFile, "\"backgroundFile\" can only be sent in a multipart form",
        hint: "\"request\": \"multipart\"")
    }
    if settings.hasValue(for: backgroundURL), let text = settings[backgroundURL] {
      do throws(TransportError) { _ = try RequestURL(text) } catch {
        findings.append(
          settings.diagnostic(.error, "wrong-value", at: backgroundURL, "\"backgroundUrl\": \(error.message)"))
      }
    }
    if settings[format] == .jpg, given.isEmpty {
      error(
        "wrong-value", at: format, "a cut-out in JPEG has no transparency", hint: "leave \"format\" out, or use png")
    }
    if settings[format] == .zip, let background = given.first {
      error(
        "conflicting-keys", at: background, "in a zip archive remove.bg sends the picture without a background",
        hint: "leave \"format\" out, or lay it on a background in a \"composite\" stage")
    }
  }

  private static func checkRegion(_ settings: Settings, _ findings: inout [Diagnostic]) {
    let region = settings[roi]
    guard region.count == 4 else { return }
    func error(_ message: String) {
      findings.append(settings.diagnostic(.error, "out-of-range", at: roi, message))
    }
    if region.contains(where: { $0.percent ?? 0 > 100 }) {
      error("\"roi\" expects at most 100%")
      return
    }
    for (low, high, names) in [(region[0], region[2], "left and right"), (region[1], region[3], "top and bottom")] {
      let isEmpty: Bool
      switch (low, high) {
      case (.pixels(let a), .pixels(let b)): isEmpty = a >= b
      default: isEmpty = low.percent.flatMap { a in high.percent.map { a >= $0 } } ?? false
      }
      if isEmpty { error("\"roi\" is empty: there is nothing between its \(names)") }
    }
  }

  // MARK: The request

  /// The options as they are sent: what is as the service has it anyway is left out.
  ///
  /// - Parameters:
  ///   - picture: the sides of the stage's picture.
  ///   - sent: those that it is sent with.
  static func options(_ settings: Settings, picture: (Int, Int), sent: (Int, Int)) -> [(String, ServiceForm.Value)] {
    var options: [(String, ServiceForm.Value)] = []
    func add(_ name: String, _ text: String) { options.append((name, .text(text))) }
    let channels = settings[ServiceFields.channels]
    let wanted = size(settings)
    add("size", wanted.rawValue)
    add("format", format(settings, sent: sent).rawValue)
    if channels == .alpha { add("channels", channels.rawValue) }
    if settings[type] != .auto { add("type", settings[type].rawValue) }
    if settings[typeLevel] != .one { add("type_level", settings[typeLevel].rawValue) }
    let region = settings[roi]
    if region.count == 4 {
      let sides = [(picture.0, sent.0), (picture.1, sent.1), (picture.0, sent.0), (picture.1, sent.1)]
      add("roi", zip(region, sides).map { $0.text(of: $1.0, sentWith: $1.1) }.joined(separator: " "))
    }
    if !settings[semitransparency] { options.append(("semitransparency", .flag(false))) }
    guard channels == .rgba else { return options }
    if settings[crop] {
      options.append(("crop", .flag(true)))
      let margins = settings[cropMargin]
      if !margins.isEmpty { add("crop_margin", margins.map(\.text).joined(separator: " ")) }
    }
    if let scale = settings[scale] { add("scale", "\(scale)%") }
    if let position = settings[position] { add("position", position) }
    for option in settings[shadowType] + settings[shadowOpacity] { add(option.name, option.text) }
    if let colour = settings[backgroundColor] { add("bg_color", hex(colour)) }
    if let address = settings[backgroundURL] { add("bg_image_url", address) }
    return options
  }

  /// Without the # that the service's pages never show.
  private static func hex(_ colour: RGBA) -> String {
    let bytes = [colour.r, colour.g, colour.b] + (colour.isOpaque ? [] : [colour.a])
    return bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }

  /// PNG has at most 10 megapixels; more come in an archive.
  static func format(_ settings: Settings, sent: (Int, Int)) -> Format {
    if let format = settings[format] { return format }
    if hasBackground(settings) { return sent.0 * sent.1 > 10_000_000 ? .webp : .auto }
    return min(size(settings).most, sent.0 * sent.1) > 10_000_000 ? .zip : .png
  }
}

/// A field of a form with its text.
struct ServiceOption: Sendable, Hashable {
  var name: String
  var text: String
}
