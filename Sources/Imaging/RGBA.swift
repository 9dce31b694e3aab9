/// An sRGB colour with straight alpha, 8 bits each.
public struct RGBA: Sendable, Hashable {
  public var r: UInt8
  public var g: UInt8
  public var b: UInt8
  /// 0 transparent … 255 opaque.
  public var a: UInt8

  public init(_ r: UInt8, _ g: UInt8, _ b: UInt8, _ a: UInt8 = 255) {
    self.r = r
    self.g = g
    self.b = b
    self.a = a
  }

  public static let white = RGBA(255, 255, 255)
  public static let black = RGBA(0, 0, 0)
  public static let transparent = RGBA(0, 0, 0, 0)

  /// Alpha as 0…1.
  public var alpha: Double { Double(a) / 255 }
  public var isOpaque: Bool { a == 255 }

  /// Reads a CSS colour: `#rgb`, `#rgba`, `#rrggbb`, `#rrggbbaa`, a CSS colour name, or `transparent`, in any case.
  public init?(css: String) {
    preconditionFailure("not yet written")
  }
}
