import Glibc

/// A colour in CIE L*a*b*, D65.
public struct LabColour: Sendable, Hashable {
  public var l: Double
  public var a: Double
  public var b: Double

  public init(l: Double, a: Double, b: Double) {
    (self.l, self.a, self.b) = (l, a, b)
  }

  /// From linear sRGB, 0…1.
  init(red: Double, green: Double, blue: Double) {
    func curve(_ t: Double) -> Double { t > 216.0 / 24389 ? cbrt(t) : (24389.0 / 27 * t + 16) / 116 }
    let x = curve((0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047)
    let y = curve(0.2126729 * red + 0.7151522 * green + 0.0721750 * blue)
    let z = curve((0.0193339 * red + 0.1191920 * green + 0.9503041 * blue) / 1.08883)
    self.init(l: 116 * y - 16, a: 500 * (x - y), b: 200 * (y - z))
  }

  /// CIEDE2000: how different two colours look, 1 being about what is just seen side by side.
  ///
  /// ISO/CIE 11664-6; written after G. Sharma, W. Wu, E. N. Dalal, "The CIEDE2000 color-difference formula:
  /// implementation notes, supplementary test data, and mathematical observations", Color Research & Application 30(1),
  /// 2005, with all weights 1.
  public func difference(from other: LabColour) -> Double {
    func power7(_ x: Double) -> Double { x * x * x * x * x * x * x }
    func radians(_ degrees: Double) -> Double { degrees * .pi / 180 }
    func hue(_ a: Double, _ b: Double) -> Double {
      guard a != 0 || b != 0 else { return 0 }
      let angle = atan2(b, a) * 180 / .pi
      return angle < 0 ? angle + 360 : angle
    }
    let meanChroma = (hypot(a, b) + hypot(other.a, other.b)) / 2
    let g = 0.5 * (1 - sqrt(power7(meanChroma) / (power7(meanChroma) + power7(25))))
    let (a1, a2) = (a * (1 + g), other.a * (1 + g))
    let (c1, c2) = (hypot(a1, b), hypot(a2, other.b))
    let (h1, h2) = (hue(a1, b), hue(a2, other.b))
    var turn = 0.0
    var h = h1 + h2
    if c1 * c2 != 0 {
      turn = h2 - h1
      if turn > 180 { turn -= 360 } else if turn < -180 { turn += 360 }
      if abs(h1 - h2) <= 180 {
        h /= 2
      } else {
        h = (h < 360 ? h + 360 : h - 360) / 2
      }
    }
    let (deltaL, deltaC) = (other.l - l, c2 - c1)
    let deltaH = 2 * sqrt(c1 * c2) * sin(radians(turn) / 2)
    let (meanL, meanC) = ((l + other.l) / 2, (c1 + c2) / 2)
    let t =
      1 - 0.17 * cos(radians(h - 30)) + 0.24 * cos(radians(2 * h)) + 0.32 * cos(radians(3 * h + 6))
      - 0.20 * cos(radians(4 * h - 63))
    let offset = (meanL - 50) * (meanL - 50)
    let weightL = 1 + 0.015 * offset / sqrt(20 + offset)
    let weightC = 1 + 0.045 * meanC
    let weightH = 1 + 0.015 * meanC * t
    let bend = (h - 275) / 25
    let rotation =
      -2 * sqrt(power7(meanC) / (power7(meanC) + power7(25))) * sin(radians(60 * exp(-bend * bend)))
    let (partL, partC, partH) = (deltaL / weightL, deltaC / weightC, deltaH / weightH)
    return sqrt(max(0, partL * partL + partC * partC + partH * partH + rotation * partC * partH))
  }
}
