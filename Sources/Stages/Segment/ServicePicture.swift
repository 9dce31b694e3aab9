import Imaging
import PipelineKit
import Transport

/// A picture as it is sent to a service: upright, sRGB, without transparency and metadata, within the service's limits.
struct ServicePicture: Sendable {
  enum Format: String, FieldChoice {
    case jpeg, png

    var help: String {
      switch self {
      case .jpeg: "JPEG of quality 95 with full colour"
      case .png: "PNG, which loses nothing and is larger"
      }
    }

    var mediaType: String { self == .jpeg ? "image/jpeg" : "image/png" }
    var filename: String { self == .jpeg ? "picture.jpg" : "picture.png" }
  }

  struct Limits: Sendable, Hashable {
    /// What the service takes at all.
    var pixels = Int.max
    var bytes = Int.max
    /// What it is worth sending; a picture is shrunk to these without a word.
    var usefulPixels = Int.max
    var usefulSide = Int.max
  }

  let payload: Payload
  /// Pixels.
  let width: Int
  let height: Int
  let format: Format
  /// What was done to it to keep to the limits of the service; nil where nothing was.
  let note: String?

  var megapixels: Double { Double(width * height) / 1e6 }

  func file(_ name: String) -> ServiceForm.File {
    ServiceForm.File(name: name, payload: payload, filename: format.filename, type: format.mediaType)
  }

  /// - Throws: `geometry` for a mask where a picture is needed, and what encoding throws.
  init(_ picture: Image, as format: Format, within limits: Limits = Limits()) throws(StageError) {
    guard picture.bands >= 3 else {
      throw StageError(
        "geometry", "a mask came where the service needs a colour picture", kind: .job,
        hint: "use \"output\": \"cutout\" in the \"segment\" stage before")
    }
    do throws(ImagingError) {
      let size = (picture.width, picture.height)
      var notes: [String] = []
      if size.0 * size.1 > limits.pixels {
        notes.append("has more than the \(limits.pixels / 1_000_000) megapixels that the service takes")
      }
      var sides = Self.sides(size, within: limits)
      var image = try Self.scaled(picture, to: sides)
      var quality = 95
      var bytes = try Self.encoded(image, format, quality)
      var attempts = 0
      while bytes.count > limits.bytes {
        if attempts == 0 { notes.append("has more than the \(limits.bytes / 1_000_000) MB that the service takes") }
        attempts += 1
        guard attempts < 8 else {
          throw ImagingError(.tooLarge, "the picture cannot be brought below \(limits.bytes) bytes")
        }
        if format == .jpeg, quality > 85 {
          quality = 85
        } else {
          let factor = (Double(limits.bytes) / Double(bytes.count)).squareRoot() * 0.95
          sides = (max(1, Int(Double(sides.0) * factor)), max(1, Int(Double(sides.1) * factor)))
          image = try Self.scaled(picture, to: sides)
        }
        bytes = try Self.encoded(image, format, quality)
      }
      (width, height, self.format) = (sides.0, sides.1, format)
      payload = Payload(bytes)
      note =
        notes.isEmpty
        ? nil
        : "the picture \(notes.joined(separator: " and ")): it was sent with \(sides.0)×\(sides.1) pixels"
          + (quality < 95 ? ", as JPEG of quality \(quality)" : "")
    } catch {
      throw StageError(error)
    }
  }

  /// Sides of the same aspect within limits.
  static func sides(_ size: (Int, Int), within limits: Limits) -> (Int, Int) {
    let pixels = Double(min(limits.pixels, limits.usefulPixels))
    let factor = min(
      1, (pixels / (Double(size.0) * Double(size.1))).squareRoot(),
      Double(limits.usefulSide) / Double(max(size.0, size.1)))
    guard factor < 1 else { return size }
    // Rounded down, so that the product stays below.
    return (max(1, Int(Double(size.0) * factor)), max(1, Int(Double(size.1) * factor)))
  }

  private static func scaled(_ picture: Image, to sides: (Int, Int)) throws(ImagingError) -> Image {
    let plain = try picture.eightBitSRGB()
    guard sides != (picture.width, picture.height) else { return plain }
    return try plain.stretched(width: sides.0, height: sides.1).materialised()
  }

  private static func encoded(
    _ image: Image, _ format: Format, _ quality: Int
  ) throws(ImagingError) -> EncodedBytes {
    switch format {
    case .jpeg:
      var options = EncodeOptions.JPEG()
      (options.quality, options.chroma) = (quality, .full)
      return try image.encoded(.jpeg(options), metadata: .none)
    case .png: return try image.encoded(.png(EncodeOptions.PNG(compression: 1)), metadata: .none)
    }
  }
}
