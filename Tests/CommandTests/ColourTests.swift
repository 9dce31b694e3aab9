import Glibc
import Imaging
import TestSupport
import Testing

/// LittleCMS' own calculator, which knows nothing of libvips.
private let calculator: String? = ["/usr/bin/transicc", "/usr/local/bin/transicc"].first { access($0, X_OK) == 0 }

private let torture: String? = {
  let root = getenv("PIPELINE_TEST_DATA").map { String(cString: $0) } ?? "../shared/data"
  let folder = root + "/torture"
  return access(folder + "/MANIFEST.tsv", R_OK) == 0 ? folder : nil
}()

/// 24 patches in five device spaces, through the program, against an independent conversion.
@Suite struct ColourTests {
  enum Device: String, CaseIterable {
    case srgb, displayP3, adobeRGB, fogra39, grey
  }

  @Test(
    "colours come out as LittleCMS' calculator has them",
    .enabled(if: calculator != nil, "transicc is not installed (liblcms2-utils)"),
    .enabled(if: torture != nil, "the torture collection with its profiles is not here (PIPELINE_TEST_DATA)"),
    arguments: Device.allCases, ["srgb", "p3"])
  func patches(_ device: Device, _ target: String) throws {
    let scene = try Scene()
    let profile = try profile(of: device)
    let patches = Self.patches(device)
    let channels = patches[0].count
    scene.folder.write(Self.tiff(patches, profile: profile), to: "in/patches.tif")
    scene.folder.write(try self.profile(of: .displayP3), to: "p3.icc")
    if !profile.isEmpty { scene.folder.write(profile, to: "device.icc") }
    scene.job(encode: ##"{ "stage": "encode", "format": "png", "colorSpace": "\##(target)" }"##)
    let run = scene.run("run", "job.json")
    #expect(run.exitCode == 0, "\(run.error)")

    let out = try EncodedPicture(
      bytes: EncodedBytes(try #require(scene.folder.read("out/patches.png"))),
      options: DecodeOptions(space: WorkingSpace(gamut: .source))
    ).pixels()
    #expect(out.space == .srgb || target == "p3")
    let pixels = try out.bytes()

    var arguments = ["-t1", "-b", "-n", "-s", "-v0"]
    if !profile.isEmpty { arguments.append("-i" + scene.folder["device.icc"]) }
    if target == "p3" { arguments.append("-o" + scene.folder["p3.icc"]) }
    var settings = RunProgram.Settings()
    // The calculator takes ink in per cent.
    let scale = channels == 4 ? 100.0 / 255 : 1
    settings.input = Array(
      patches.map { $0.map { String(Double($0) * scale) }.joined(separator: " ") }.joined(separator: "\n").utf8)
    let answer = RunProgram.run(arguments, settings, program: calculator)
    let expected = answer.output.split(separator: "\n").compactMap { line -> [Double]? in
      let numbers = line.split { !$0.isNumber && $0 != "." && $0 != "-" }.compactMap { Double($0) }
      return numbers.count == 3 ? numbers : nil
    }
    try #require(expected.count == patches.count, "\(answer.output) \(answer.error)")

    var differences: [Double] = []
    for (index, wanted) in expected.enumerated() {
      let at = ((8 * (index / 6) + 4) * out.width + 8 * (index % 6) + 4) * out.bands
      let got = (0..<3).map { Double(pixels[at + $0]) }
      let isP3 = target == "p3"
      differences.append(Lab(got, isP3: isP3).difference(from: Lab(wanted.map { min(255, max(0, $0)) }, isP3: isP3)))
    }
    let mean = differences.reduce(0, +) / Double(differences.count)
    let worst = differences.max() ?? 99
    if getenv("PIPELINE_TEST_FIGURES") != nil { print("\(device) to \(target): mean \(mean), worst \(worst)") }
    #expect(mean <= 1, "\(device) to \(target): mean \(mean), worst \(worst)")
    #expect(worst <= 2.5, "\(device) to \(target): mean \(mean), worst \(worst)")
  }

  @Test("the difference is that of the published pairs")
  func differenceFormula() {
    // Sharma, Wu, Dalal: The CIEDE2000 Color-Difference Formula, table 1, pairs 1, 7, 13, 17, 25 and 33.
    let pairs: [([Double], [Double], Double)] = [
      ([50, 2.6772, -79.7751], [50, 0, -82.7485], 2.0425), ([50, 0, 0], [50, -1, 2], 2.3669),
      ([50, -0.001, 2.49], [50, 0.0011, -2.49], 4.7461), ([50, 2.5, 0], [73, 25, -18], 27.1492),
      ([60.2574, -34.0099, 36.2677], [60.4626, -34.1751, 39.4387], 1.2644),
      ([6.7747, -0.2908, -2.4247], [5.8714, -0.0985, -2.2286], 0.6377),
    ]
    for (a, b, expected) in pairs {
      #expect(abs(Lab(l: a[0], a: a[1], b: a[2]).difference(from: Lab(l: b[0], a: b[1], b: b[2])) - expected) < 1e-4)
    }
  }

  // MARK: Patches

  private static func patches(_ device: Device) -> [[UInt8]] {
    // Skin, sky, foliage … and a row of greys: the usual target's colours, here as numbers of the device.
    let usual: [[UInt8]] = [
      [115, 82, 68], [194, 150, 130], [98, 122, 157], [87, 108, 67], [133, 128, 177], [103, 189, 170], [214, 126, 44],
      [80, 91, 166], [193, 90, 99], [94, 60, 108], [157, 188, 64], [224, 163, 46], [56, 61, 150], [70, 148, 73],
      [175, 54, 60], [231, 199, 31], [187, 86, 149], [8, 133, 161], [243, 243, 242], [200, 200, 200], [160, 160, 160],
      [122, 122, 121], [85, 85, 85], [52, 52, 52],
    ]
    switch device {
    case .srgb, .displayP3, .adobeRGB: return usual
    case .grey: return (0..<24).map { [UInt8($0 * 11)] }
    case .fogra39:
      // The usual colours by the plainest separation, and four inks alone.
      return usual.prefix(20).map { rgb in
        let key = 255 - (rgb.max() ?? 0)
        return rgb.map { 255 - $0 - key } + [key / 2]
      } + [[255, 0, 0, 0], [0, 255, 0, 0], [0, 0, 255, 0], [0, 0, 0, 255]]
    }
  }

  private func profile(of device: Device) throws -> [UInt8] {
    let folder = try #require(torture)
    func embedded(_ name: String) throws -> [UInt8] {
      let source = try EncodedPicture(
        path: Array((folder + "/" + name).utf8), options: DecodeOptions(space: WorkingSpace(gamut: .source)))
      guard case .embedded(let profile) = try source.decode().space else {
        Issue.record("\(name) has no profile")
        return []
      }
      return profile.bytes
    }
    switch device {
    case .srgb: return []
    case .displayP3: return try embedded("png/p3.png")
    case .adobeRGB: return try embedded("tiff/tifftag-photoshop.tiff")
    case .fogra39:
      let file = try EncodedPicture.read(path: Array((folder + "/tiff/fogra-0-100-100-0.tif").utf8)).array
      return try #require(Self.tag(34_675, in: file))
    case .grey: return Self.greyProfile(gamma: 2.2)
    }
  }

  /// The bytes of a tag in a TIFF's first directory.
  private static func tag(_ wanted: Int, in file: [UInt8]) -> [UInt8]? {
    let isLittle = file[0] == 0x49
    func number(_ at: Int, _ size: Int) -> Int {
      (0..<size).reduce(0) { $0 << 8 | Int(file[isLittle ? at + size - 1 - $1 : at + $1]) }
    }
    let start = number(4, 4)
    for i in 0..<number(start, 2) where number(start + 2 + 12 * i, 2) == wanted {
      let at = start + 2 + 12 * i
      let place = number(at + 8, 4)
      return Array(file[place..<place + number(at + 4, 4)])
    }
    return nil
  }

  /// Patches of 8 × 8 pixels, six in a row, uncompressed.
  private static func tiff(_ patches: [[UInt8]], profile: [UInt8]) -> [UInt8] {
    let channels = patches[0].count
    let (width, height) = (48, 8 * ((patches.count + 5) / 6))
    var pixels: [UInt8] = []
    for y in 0..<height { for x in 0..<width { pixels += patches[y / 8 * 6 + x / 8] } }
    func le16(_ v: Int) -> [UInt8] { [UInt8(v & 255), UInt8(v >> 8 & 255)] }
    func le32(_ v: Int) -> [UInt8] { le16(v & 0xFFFF) + le16(v >> 16) }
    var entries: [(Int, Int, Int, Int)] = [
      (256, 3, 1, width), (257, 3, 1, height), (259, 3, 1, 1), (262, 3, 1, channels == 4 ? 5 : channels == 3 ? 2 : 1),
      (277, 3, 1, channels), (278, 3, 1, height), (279, 4, 1, pixels.count),
    ]
    let count = entries.count + 2 + (profile.isEmpty ? 0 : 1)
    let bitsAt = 8 + 2 + 12 * count + 4
    let dataAt = bitsAt + 8
    entries.append((258, 3, channels, channels == 1 ? 8 : bitsAt))
    entries.append((273, 4, 1, dataAt))
    if !profile.isEmpty { entries.append((34_675, 7, profile.count, dataAt + pixels.count)) }
    entries.sort { $0.0 < $1.0 }
    var file: [UInt8] = [0x49, 0x49, 0x2A, 0] + le32(8) + le16(count)
    for (tag, type, count, value) in entries { file += le16(tag) + le16(type) + le32(count) + le32(value) }
    file += le32(0) + le16(8) + le16(8) + le16(8) + le16(8)
    return file + pixels + profile
  }

  /// Version 2 profile of grey with a plain gamma (ICC.1:2001-04, 6.3.2.1).
  private static func greyProfile(gamma: Double) -> [UInt8] {
    func big32(_ v: Int) -> [UInt8] { [24, 16, 8, 0].map { UInt8(v >> $0 & 255) } }
    func fixed(_ v: Double) -> [UInt8] { big32(Int((v * 65_536).rounded())) }
    let white = [0.9642, 1.0, 0.8249].flatMap(fixed)
    let step = Int((gamma * 256).rounded())
    let tags: [(String, [UInt8])] = [
      ("desc", Array("desc".utf8) + big32(0) + big32(5) + Array("grey\0".utf8) + [UInt8](repeating: 0, count: 79)),
      ("wtpt", Array("XYZ ".utf8) + big32(0) + white),
      ("kTRC", Array("curv".utf8) + big32(0) + big32(1) + [UInt8(step >> 8), UInt8(step & 255), 0, 0]),
    ]
    var table = big32(tags.count)
    var data: [UInt8] = []
    for (name, value) in tags {
      table += Array(name.utf8) + big32(128 + 4 + 12 * tags.count + data.count) + big32(value.count)
      data += value
      while data.count % 4 != 0 { data.append(0) }
    }
    var header = [UInt8](repeating: 0, count: 128)
    header.replaceSubrange(0..<4, with: big32(128 + table.count + data.count))
    header.replaceSubrange(8..<12, with: [2, 0x10, 0, 0])
    header.replaceSubrange(12..<24, with: Array("mntrGRAYXYZ ".utf8))
    header.replaceSubrange(36..<40, with: Array("acsp".utf8))
    header.replaceSubrange(68..<80, with: white)
    return header + table + data
  }
}

/// CIE 1976 L*a*b*, D50.
private struct Lab {
  var l: Double
  var a: Double
  var b: Double

  init(l: Double, a: Double, b: Double) { (self.l, self.a, self.b) = (l, a, b) }

  /// From 0…255 of sRGB or Display P3: matrices to XYZ adapted to D50 by Bradford (as in the registered profiles).
  init(_ rgb: [Double], isP3: Bool) {
    let light = rgb.map { v -> Double in
      let u = v / 255
      return u <= 0.04045 ? u / 12.92 : pow((u + 0.055) / 1.055, 2.4)
    }
    let matrix: [[Double]] =
      isP3
      ? [[0.51512, 0.29198, 0.15710], [0.24120, 0.69225, 0.06657], [-0.00105, 0.04189, 0.78407]]
      : [[0.43607, 0.38515, 0.14307], [0.22249, 0.71687, 0.06061], [0.01392, 0.09708, 0.71410]]
    let xyz = matrix.map { row in zip(row, light).reduce(0) { $0 + $1.0 * $1.1 } }
    let f = zip(xyz, [0.9642, 1, 0.8249]).map { value, white -> Double in
      let t = value / white
      return t > 216.0 / 24_389 ? cbrt(t) : (24_389.0 / 27 * t + 16) / 116
    }
    self.init(l: 116 * f[1] - 16, a: 500 * (f[0] - f[1]), b: 200 * (f[1] - f[2]))
  }

  /// CIEDE2000 with all weights 1 (CIE 142-2001).
  func difference(from other: Lab) -> Double {
    func seventh(_ c: Double) -> Double { sqrt(pow(c, 7) / (pow(c, 7) + pow(25.0, 7))) }
    let meanChroma = (hypot(a, b) + hypot(other.a, other.b)) / 2
    let g = 0.5 * (1 - seventh(meanChroma))
    let (a1, a2) = ((1 + g) * a, (1 + g) * other.a)
    let (c1, c2) = (hypot(a1, b), hypot(a2, other.b))
    func hue(_ a: Double, _ b: Double) -> Double {
      guard a != 0 || b != 0 else { return 0 }
      let degrees = atan2(b, a) * 180 / .pi
      return degrees < 0 ? degrees + 360 : degrees
    }
    let (h1, h2) = (hue(a1, b), hue(a2, other.b))
    var turn = h2 - h1
    if c1 * c2 == 0 { turn = 0 } else if turn > 180 { turn -= 360 } else if turn < -180 { turn += 360 }
    let dL = other.l - l
    let dC = c2 - c1
    let dH = 2 * sqrt(c1 * c2) * sin(turn / 2 * .pi / 180)
    let (l0, c0) = ((l + other.l) / 2, (c1 + c2) / 2)
    var h0 = (h1 + h2) / 2
    if c1 * c2 == 0 {
      h0 = h1 + h2
    } else if abs(h1 - h2) > 180 {
      h0 += h1 + h2 < 360 ? 180 : -180
    }
    func cosine(_ degrees: Double) -> Double { cos(degrees * .pi / 180) }
    let t =
      1 - 0.17 * cosine(h0 - 30) + 0.24 * cosine(2 * h0) + 0.32 * cosine(3 * h0 + 6) - 0.20 * cosine(4 * h0 - 63)
    let turning = 30 * exp(-pow((h0 - 275) / 25, 2))
    let rC = 2 * seventh(c0)
    let sL = 1 + 0.015 * pow(l0 - 50, 2) / sqrt(20 + pow(l0 - 50, 2))
    let sC = 1 + 0.045 * c0
    let sH = 1 + 0.015 * c0 * t
    let rT = -sin(2 * turning * .pi / 180) * rC
    let (x, y, z) = (dL / sL, dC / sC, dH / sH)
    return sqrt(x * x + y * y + z * z + rT * y * z)
  }
}
