import Imaging
import PipelineKit

/// A picture file as watermark.
struct PictureMark: Mark {
  private struct Key: Hashable, Sendable {
    var width: Int
    var height: Int
  }

  private let image: Image
  private let scale: Double?
  private let look: MarkLook
  private let made = RecentImages<Key>(most: 16, mostBytes: 64 << 20)

  /// - Throws: `io`, `unsupported`, `damaged` and the other codes of decoding.
  init(_ settings: Settings, _ look: MarkLook, _ resources: StageResources) throws(ImagingError) {
    let path = resources.run.baseFolder.joining(settings[Watermark.path]).normalised
    do throws(ImagingError) {
      image = try EncodedPicture(
        bytes: EncodedPicture.read(path: path.bytes),
        options: DecodeOptions(limits: resources.decodeLimits, space: resources.workingSpace)
      ).pixels()
    } catch {
      throw ImagingError(
        error.code, "the watermark \(path.printable) cannot be used: \(error.message)", detail: error.detail,
        hint: error.code == .unsupported ? "use a PNG, or another picture of pixels" : error.hint)
    }
    self.scale = settings[Watermark.scale]
    self.look = look
  }

  func words(for item: Item, in context: StageContext) throws(StageError) -> String { "" }

  func drawn(
    _ words: String, for picture: Image, within room: (width: Int, height: Int)?
  ) throws(ImagingError) -> (image: Image, isShrunk: Bool)? {
    let rotation = Rotation(degrees: look.angle)
    let wanted = scale.map { max(1, Int((Double(picture.width) * $0).rounded())) } ?? image.width
    var width = wanted
    if let room {
      func fits(_ width: Int) -> Bool {
        let turned = rotation.size(for: width, height(of: width))
        return turned.width <= room.width && turned.height <= room.height
      }
      // Sides grow with the width, so the largest that fits is found by halving.
      if !fits(width) {
        var (low, high) = (1, width)
        while low + 1 < high {
          let middle = (low + high) / 2
          if fits(middle) { low = middle } else { high = middle }
        }
        width = low
        guard fits(width) else {
          throw ImagingError(.geometry, "there is no room for a watermark in \(room.width)×\(room.height) pixels")
        }
      }
    }
    let key = Key(width: width, height: height(of: width))
    let mark = try made.image(key) { () throws(ImagingError) in
      try image.stretched(width: key.width, height: key.height).fadedAlpha(look.opacity).rotated(rotation)
        .materialised()
    }
    return mark.map { ($0, width < wanted) }
  }

  /// The height that goes with a width, rounded half up and at least 1.
  private func height(of width: Int) -> Int {
    max(1, (2 * image.height * width + image.width) / (2 * image.width))
  }
}
