import Imaging
import Pages

/// Small copies of pictures, carried by pages.
enum Thumbnail {
  /// - Parameter side: the longest, in pixels; smaller pictures keep their size.
  /// - Throws: what reading or encoding the pixels throws.
  static func picture(of image: Image, side: Int) throws(ImagingError) -> PagePicture {
    let longest = max(image.width, image.height)
    var small = image
    if longest > side {
      func scaled(_ length: Int) -> Int { max(1, (length * side + longest / 2) / longest) }
      small = try image.stretched(width: scaled(image.width), height: scaled(image.height))
    }
    small = try small.converted(to: .srgb).withDepth(8)
    // Few pixels are to be seen as they are.
    let options: EncodeOptions =
      longest <= 64 ? .png(.init(compression: 9)) : .webp(.init(quality: 82, effort: 2))
    let bytes = try small.encoded(options, metadata: .none)
    return PagePicture(
      bytes, type: longest <= 64 ? "image/png" : "image/webp", width: small.width, height: small.height)
  }
}
