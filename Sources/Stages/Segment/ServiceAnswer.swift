import Imaging
import Inference
import JobSyntax
import PipelineKit
import Transport

/// The answer of a service as it came, for keeping: one JSON object with the header fields that count on the first line,
/// and the body after it.
struct ServiceAnswer: Sendable {
  /// In the order of the answer.
  var headers: [(name: String, value: String)]
  var body: [UInt8]

  /// - Parameter names: the fields that are kept, besides `Content-Type`; a name that ends in `-` keeps all that begin so.
  init(_ response: Response, keeping names: [String]) {
    let wanted = (["Content-Type"] + names).map { $0.lowercased() }
    headers = response.headers.fields.filter { field in
      let name = field.name.lowercased()
      return wanted.contains { $0 == name || ($0.hasSuffix("-") && name.hasPrefix($0)) }
    }.map { ($0.name, Secrets.redacted($0.value)) }
    body = response.body
  }

  init(headers: [(name: String, value: String)], body: [UInt8]) {
    self.headers = headers
    self.body = body
  }

  /// Nil where the bytes are not what `packed` makes.
  init?(_ bytes: [UInt8]) {
    guard let end = bytes.firstIndex(of: UInt8(ascii: "\n")),
      let head = StrictJSON.parse(SourceFile(name: "answer", text: Array(bytes[..<end]))).root,
      head["answer"]?.numberValue?.integer == 1, let pairs = head["headers"]?.arrayValue
    else { return nil }
    headers = pairs.compactMap { pair in
      guard let words = pair.arrayValue, words.count == 2, let name = words[0].stringValue,
        let value = words[1].stringValue
      else { return nil }
      return (name, value)
    }
    body = Array(bytes[(end + 1)...])
  }

  var packed: [UInt8] {
    let head = JSONText.object([
      ("answer", .integer(1)),
      ("headers", .array(headers.map { .array([.string($0.name), .string($0.value)]) })),
    ])
    return Array(head.rendered().utf8) + [UInt8(ascii: "\n")] + body
  }

  subscript(_ name: String) -> String? { headers.first { $0.name.lowercased() == name.lowercased() }?.value }

  func number(_ name: String) -> Double? { self[name].flatMap(Double.init).flatMap { $0.isFinite ? $0 : nil } }

  /// Whether bytes begin as a picture that services answer with does, or a zip archive of such.
  static func looksLikePicture(_ bytes: [UInt8]) -> Bool {
    isZip(bytes) || bytes.starts(with: [0xFF, 0xD8, 0xFF])
      || bytes.starts(with: [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A])
      || (bytes.count >= 12 && bytes.starts(with: "RIFF".utf8) && bytes[8..<12].elementsEqual("WEBP".utf8))
  }

  static func isZip(_ bytes: [UInt8]) -> Bool { bytes.starts(with: [0x50, 0x4B, 0x03, 0x04]) }
}

/// What a service's picture says, at its own size.
struct ServiceMask: Sendable {
  /// Pixels.
  var width: Int
  var height: Int
  /// 255 on the subject, row by row.
  var bytes: [UInt8]

  /// What a picture means as a mask.
  enum Meaning: Sendable {
    /// Its transparency.
    case alpha
    /// Its brightness.
    case brightness
    /// Its transparency where it has any, else its brightness, which must then be all it has.
    case either
  }

  /// Nil where the picture has no transparency and that is what counts.
  init?(_ image: Image, _ meaning: Meaning) throws(ImagingError) {
    (width, height) = (image.width, image.height)
    let isAlpha: Bool
    switch meaning {
    case .alpha:
      guard image.hasAlpha else { return nil }
      isAlpha = true
    case .brightness: isAlpha = false
    case .either:
      isAlpha = try !image.isOpaque()
      if !isAlpha, !image.isGrey, image.bands >= 3, try !Self.isWithoutColour(image) { return nil }
    }
    let plain = try (isAlpha ? image.alphaBand() : image.withoutAlpha().withDepth(8)).materialised()
    let bands = plain.bands
    bytes = try plain.withPixels { pixels -> [UInt8] in
      guard bands >= 3 else { return Array(pixels) }
      return [UInt8](unsafeUninitializedCapacity: pixels.count / bands) { out, count in
        count = pixels.count / bands
        // The luma of ITU-R BT.601 in 16 bits; equal bands come out as they are.
        for index in 0..<count {
          let at = index * bands
          let sum = 19_595 * Int(pixels[at]) + 38_470 * Int(pixels[at + 1]) + 7471 * Int(pixels[at + 2])
          out[index] = UInt8((sum + 32_768) >> 16)
        }
      }
    }
  }

  /// Whether no pixel has a colour but for the losses of an encoder: a mask that was stored as a colour picture.
  private static func isWithoutColour(_ image: Image) throws(ImagingError) -> Bool {
    let plain = try image.withDepth(8).materialised()
    let bands = plain.bands
    return try plain.withPixels { pixels in
      stride(from: 0, to: pixels.count, by: bands).allSatisfy { at in
        let (red, green, blue) = (Int(pixels[at]), Int(pixels[at + 1]), Int(pixels[at + 2]))
        return max(red, green, blue) - min(red, green, blue) <= 8
      }
    }
  }

  var isBlack: Bool { bytes.allSatisfy { $0 == 0 } }

  /// Whether it has the aspect of a picture of these sides, but for rounding.
  func fits(width: Int, height: Int) -> Bool {
    abs(self.width * height - width * self.height) <= 2 * max(width, height)
  }

  /// What is to be seen in it; the longest side that it is judged at is 320 pixels, as the models' masks are.
  func record(provider: String, model: String?) -> MatteRecord {
    let factor = min(1, 320 / Double(max(width, height)))
    let sides = (max(1, Int(Double(width) * factor)), max(1, Int(Double(height) * factor)))
    let small = bytes.withUnsafeBufferPointer {
      LanczosResampler.resize(
        $0, width: width, height: height, bands: 1, toWidth: sides.0, toHeight: sides.1, filter: .area)
    }
    let score = MatteScore(of: small.map { Float($0) / 255 }, width: sides.0, height: sides.1)
    return MatteRecord(
      provider: provider, model: model, score: score.score, coverage: score.coverage, softness: score.softness,
      islands: score.islands, border: score.border)
  }
}

extension FoundMatte {
  /// Of a picture that a service answered with.
  ///
  /// - Parameters:
  ///   - channels: whether its colours are used too.
  ///   - isWhole: whether it shows all of the picture that was sent, in the same place.
  ///   - mayBeOpaque: whether a picture without transparency is one that the subject fills.
  /// - Returns: nil for a mask without any subject.
  /// - Throws: `service-answer` for a picture that is none of those.
  static func answered(
    _ image: Image, _ channels: ServiceFields.Channels, _ meaning: ServiceMask.Meaning, for picture: Image,
    isWhole: Bool = true, mayBeOpaque: Bool = false, provider: String, model: String?
  ) throws(StageError) -> FoundMatte? {
    let mask: ServiceMask?
    do throws(ImagingError) {
      mask = try ServiceMask(image, meaning) ?? (mayBeOpaque ? ServiceMask(white: image) : nil)
    } catch {
      throw StageError(error)
    }
    guard let mask else {
      throw StageError("service-answer", "\(provider) answered with a picture that has no transparency")
    }
    guard !isWhole || mask.fits(width: picture.width, height: picture.height) else {
      throw StageError(
        "service-answer",
        "\(provider) answered with \(mask.width)×\(mask.height) pixels for a picture of \(picture.width)×\(picture.height)"
      )
    }
    guard !mask.isBlack else { return nil }
    var found = FoundMatte(pixels: .mask(mask), record: mask.record(provider: provider, model: model))
    if mayBeOpaque, !image.hasAlpha { found.record.score = 1 }
    guard channels == .rgba else { return found }
    do throws(ImagingError) {
      let colours = try image.withoutAlpha()
      found.replacement = try colours.converted(to: picture.space).withDepth(picture.depth).materialised()
        .withMetadata(of: picture)
      let isSameSize = (image.width, image.height) == (picture.width, picture.height)
      if isWhole {
        found.original =
          try isSameSize ? picture : picture.stretched(width: image.width, height: image.height).materialised()
      }
    } catch {
      throw StageError(error)
    }
    return found
  }

  /// Bytes of a service as a picture.
  ///
  /// - Throws: `service-answer` where they are none.
  static func decoded(_ bytes: [UInt8], from service: String) throws(StageError) -> Image {
    do throws(ImagingError) {
      let picture = try EncodedPicture(bytes: EncodedBytes(bytes), limits: DecodeLimits())
      return try picture.pixels()
    } catch {
      throw StageError(
        "service-answer", "\(service) answered with a picture that cannot be read: \(error.message)",
        cause: error.detail.isEmpty ? nil : error.detail)
    }
  }
}

extension ServiceMask {
  /// All subject.
  init(white image: Image) {
    self.init(
      width: image.width, height: image.height, bytes: [UInt8](repeating: 255, count: image.width * image.height))
  }

  init(width: Int, height: Int, bytes: [UInt8]) {
    (self.width, self.height, self.bytes) = (width, height, bytes)
  }
}
