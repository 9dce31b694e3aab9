import Glibc
import Imaging
import TestSupport
import Testing

/// Runs under limits of memory. `Tests/Benchmarks/memory.sh` does the same with ten times the pictures.
@Suite(.serialized) struct MemoryTests {
  /// 1.5 GiB of address space, in KiB as `ulimit` counts.
  private static let addresses = 1_572_864
  private static let count = getenv("PIPELINE_SOAK") == nil ? 500 : 5_000

  /// Smooth colours with some noise.
  private static func picture(_ width: Int, _ height: Int, _ random: inout SeededGenerator) throws -> Image {
    var bytes = [UInt8](repeating: 0, count: width * height * 3)
    var noise = random.next()
    for y in 0..<height {
      for x in 0..<width {
        noise = noise &* 6_364_136_223_846_793_005 &+ 1
        let place = (y * width + x) * 3
        let grain = UInt8(truncatingIfNeeded: noise >> 60)
        bytes[place] = UInt8(truncatingIfNeeded: x * 200 / width) + grain
        bytes[place + 1] = UInt8(truncatingIfNeeded: y * 200 / height) + grain
        bytes[place + 2] = 90 + grain
      }
    }
    return try Image(width: width, height: height, bands: 3, bytes: bytes)
  }

  private static let formats: [(EncodeOptions, String)] = [
    (.jpeg(.init()), "jpg"), (.jpeg(.init(progressive: true, chroma: .full)), "jpg"), (.png(.init(compression: 1)), "png"),
    (.webp(.init(effort: 0)), "webp"), (.tiff(.init()), "tif"),
  ]

  private func status(_ process: pid_t, _ name: String) -> Int? {
    let text = String(decoding: TemporaryFolder.read("/proc/\(process)/status") ?? [], as: UTF8.self)
    return text.split(separator: "\n").first { $0.hasPrefix(name + ":") }?
      .split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap { Int($0) }
  }

  @Test func mixedPicturesUnderALimit() throws {
    let scene = try Scene()
    var random = SeededGenerator(state: 5)
    var small: [String] = []
    for number in 0..<25 {
      let (options, ending) = Self.formats[number % Self.formats.count]
      let image = try Self.picture(
        Int.random(in: 100...500, using: &random), Int.random(in: 100...400, using: &random), &random)
      small.append(scene.folder.write(try image.encoded(options).array, to: "masters/s\(number).\(ending)"))
    }
    let giant = try Self.picture(6000, 4000, &random)
    let giants = try Self.formats.enumerated().map { number, format in
      scene.folder.write(try giant.encoded(format.0).array, to: "masters/g\(number).\(format.1)")
    }
    scene.folder.makeFolder("in")
    for number in 0..<Self.count {
      let source = number % 50 == 25 ? giants[number / 50 % giants.count] : small.randomElement(using: &random)!
      let name = String(100_000 + number)
      let ending = source.split(separator: ".").last.map(String.init) ?? ""
      #expect(link(source, scene.folder["in/\(name).\(ending)"]) == 0)
    }
    scene.job(
      encode:
        #"{ "stage": "resize", "width": 200, "height": 200 }, { "stage": "encode", "format": "webp", "effort": 0 }"#)
    let program = RunProgram(
      [
        "-c", "ulimit -v \(Self.addresses); exec \"$0\" run job.json --verbose --no-progress --report report.json",
        RunProgram.builtProgram,
      ], scene.settings(), program: "/bin/sh")
    var samples: [(done: Int, resident: Int)] = []
    var seen = 0
    var done = 0
    _ = program.wait(limit: 1200) {
      let bytes = program.errorBytes
      done += bytes[seen...].count { $0 == UInt8(ascii: "\n") }
      seen = bytes.count
      if let resident = status(program.process, "VmRSS") { samples.append((done, resident)) }
      return false
    }
    let result = program.finish()
    #expect(result.exitCode == 0, "\(result.error.suffix(2000))")
    let report = try scene.report()
    #expect(report["run"]?["counts"]?["done"]?.integer == Self.count)
    #expect(report["run"]?["crashes"]?.integer == 0)
    func mean(_ place: Int) -> Double {
      let near = samples.filter { abs($0.done - place) <= Self.count / 12 }.map(\.resident)
      return Double(near.reduce(0, +)) / Double(max(1, near.count))
    }
    let (early, late) = (mean(Self.count / 5), mean(Self.count * 9 / 10))
    #expect(early > 0 && late > 0)
    // The long run has to stay within a tenth; in the short one what happens to be in flight weighs more.
    let most = Self.count < 5_000 ? 1.5 : 1.1
    #expect(late <= early * most, "\(early) KiB, then \(late) KiB")
  }

  /// What cannot be had even alone fails that picture, with the reason, and no other.
  @Test func aPictureThatIsTooLargeFailsAlone() throws {
    let scene = try Scene(pictures: 3)
    var random = SeededGenerator(state: 6)
    scene.folder.write(
      try Self.picture(6000, 4000, &random).encoded(.jpeg(.init())).array, to: "in/giant.jpg")
    // 88 bytes a pixel: 2 GB for 24 megapixels.
    scene.job(encode: #"{ "stage": "encode", "format": "jxl", "effort": 7 }"#)
    let result = RunProgram.run(
      ["-c", "ulimit -v \(Self.addresses); exec \"$0\" run job.json --report report.json", RunProgram.builtProgram],
      scene.settings(), program: "/bin/sh")
    #expect(result.exitCode == 1, "\(result.error)")
    let report = try scene.report()
    try check(report, exitCode: 1, in: scene)
    #expect(report["run"]?["crashes"]?.integer == 0)
    let failed = try #require(report["items"]?.arrayValue?.filter { $0["status"]?.stringValue == "failed" })
    #expect(failed.map { $0["input"]?.stringValue } == ["in/giant.jpg"])
    #expect(failed[0]["error"]?["code"]?.stringValue == "memory")
    #expect(failed[0]["error"]?["message"]?.stringValue?.contains("ulimit -v") == true)
  }
}
