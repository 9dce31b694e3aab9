import Glibc
import Imaging
import TestSupport
import Testing

private let photos =
  (getenv("PIPELINE_TEST_DATA").map { String(cString: $0) } ?? "../shared/data") + "/matte/ecssd/images"

@Suite struct QualitySearchTests {
  private struct Failed: Error, Equatable { var quality: Int }

  /// Sizes that rise, as different encoders' do.
  private static let curves: [@Sendable (Int) -> Int] = [
    { Int(20_000 * exp(Double($0) / 30)) },
    { 1_000 + 50 * $0 },
    { $0 < 50 ? 5_000 : 5_000 + ($0 - 50) * 3_000 },
    { $0 < 97 ? 4_000 + $0 : 4_000_000 + $0 },
    { Int(30_000 * pow($0 < 50 ? 50 / Double($0) : max(0.01, 2 - Double($0) / 50), -0.65)) },
    // Up and down by some hundreds.
    { 10_000 + 300 * $0 + StructuralSimilarityTests.noise($0, 7, 1) * 4 },
  ]

  @Test("the size found fits and the next does not, whatever the curve", arguments: 0..<6)
  func fitting(_ index: Int) {
    let curve = Self.curves[index]
    var most = 0
    var total = 0
    var searches = 0
    for limit in stride(from: 500, through: 700_000, by: 1_777) {
      for range in [1...100, 20...90, 50...50] {
        let fit = QualitySearch.fitting(maxBytes: limit, range: range, start: 80, size: curve) { $0 }
        switch fit {
        case .fits(let quality, let output, let encodes):
          #expect(quality == output && curve(quality) <= limit && range.contains(quality))
          #expect(quality == range.upperBound || curve(quality + 1) > limit)
          most = max(most, encodes)
          total += encodes
        case .doesNotFit(let smallest, let bytes, let encodes):
          #expect(smallest == range.lowerBound && bytes == curve(range.lowerBound) && bytes > limit)
          most = max(most, encodes)
          total += encodes
        }
        searches += 1
      }
    }
    #expect(most <= 14, "curve \(index)")
    #expect(Double(total) / Double(searches) <= 8, "curve \(index): \(Double(total) / Double(searches)) encodes")
  }

  @Test(
    "the lowest quality that reaches a likeness, or the highest where none does", arguments: [0.5, 0.9, 0.97, 0.999])
  func reaching(_ target: Double) {
    let score = { (quality: Int) in 1 - 0.06 * exp(-Double(quality - 50) / 25) }
    for range in [30...95, 1...100, 60...61, 95...95] {
      let found = QualitySearch.reaching(similarity: target, range: range, encode: { $0 }, score: score)
      let expected = range.first { score($0) >= target }
      #expect(found.isReached == (expected != nil))
      #expect(found.quality == expected ?? range.upperBound)
      #expect(found.output == found.quality && found.similarity == score(found.quality))
      #expect(found.encodes <= 9)
    }
  }

  @Test("what the encoder throws ends the search")
  func throwing() {
    #expect(throws: Failed(quality: 80)) {
      _ = try QualitySearch.fitting(maxBytes: 9, start: 80, size: { (size: Int) in size }) { (quality) throws(Failed) in
        throw Failed(quality: quality)
      }
    }
  }

  // MARK: Real encoders

  static let lossy: [EncodeOptions] = [
    .jpeg(.init()), .webp(.init(effort: 2)), .avif(.init(effort: 1)), .jxl(.init(effort: 3)),
  ]

  private static func grain() throws -> Image { try StructuralSimilarityTests.picture(160, 120) }

  @Test("maxBytes with each encoder", arguments: lossy)
  func maxBytes(_ options: EncodeOptions) throws {
    let image = try Self.grain()
    let size = { (quality: Int) in try image.encoded(options.searching(at: quality)).count }
    for limit in [try size(35) + 10, try size(77)] {
      guard case .fits(let quality, let output, let encodes) = try image.fitting(maxBytes: limit, options) else {
        Issue.record("nothing fits \(limit) bytes")
        continue
      }
      #expect(output.bytes.count <= limit && encodes <= 9, "\(options.format): \(encodes) encodes")
      #expect(try size(quality) == output.bytes.count)
      #expect(try size(quality + 1) > limit)
    }
    guard case .doesNotFit(_, let bytes, 1...3) = try image.fitting(maxBytes: 20, options, range: 10...100) else {
      Issue.record("20 bytes are enough")
      return
    }
    #expect(try bytes == size(10))
  }

  @Test("a likeness with each encoder", arguments: lossy)
  func similarity(_ options: EncodeOptions) throws {
    let image = try Self.grain()
    let found = try image.reaching(similarity: 0.95, options, range: 1...100)
    let decoded = try EncodedPicture(bytes: found.output.bytes).decode()
    #expect(try StructuralSimilarity.mean(image, decoded) == found.similarity)
    #expect(found.isReached && found.similarity >= 0.95 && found.encodes <= 9)
    let below = try image.encoded(options.searching(at: found.quality - 1))
    #expect(try StructuralSimilarity.mean(image, EncodedPicture(bytes: below).decode()) < 0.95)
  }

  @Test("nothing is searched for in formats that lose nothing")
  func lossless() throws {
    let image = try Made.waves(16, 16)
    for options in [EncodeOptions.png(.init()), .webp(.init(lossless: true)), .tiff(.init()), .gif(.init())] {
      #expect(failure { _ = try image.fitting(maxBytes: 100, options) }?.code == .encoder)
      #expect(failure { _ = try image.reaching(similarity: 0.9, options) }?.code == .encoder)
    }
  }

  @Test(
    "real photos: sizes fit, likenesses are met within 0.005, qualities differ",
    .enabled(if: access(photos, R_OK) == 0, "the photos are not here (PIPELINE_TEST_DATA)"))
  func photographs() throws {
    var state: UInt64 = 5
    var qualities: [Int] = []
    var encodes: [Int] = []
    let numbers = (0..<1_000).map { String(10_000 + $0).dropFirst() }.filter {
      access("\(photos)/\($0).jpg", R_OK) == 0
    }
    for _ in 0..<5 {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      let number = try #require(numbers.isEmpty ? nil : numbers[Int(state >> 33) % numbers.count])
      let image = try EncodedPicture(path: Array("\(photos)/\(number).jpg".utf8)).decode().materialised()
      let found = try image.reaching(similarity: 0.95, .jpeg(.init()), range: 1...100)
      #expect(found.similarity >= 0.95 && found.similarity <= 0.955, "\(number): \(found.similarity)")
      qualities.append(found.quality)
      encodes.append(found.encodes)
      let limit = 14_000
      guard case .fits(let quality, let output, let count) = try image.fitting(maxBytes: limit, .jpeg(.init())) else {
        Issue.record("\(number) does not fit")
        continue
      }
      encodes.append(count)
      #expect(output.bytes.count <= limit)
      #expect(try image.encoded(EncodeOptions.jpeg(.init()).searching(at: quality + 1)).count > limit)
    }
    #expect(Set(qualities).count > 2)
    #expect(encodes.reduce(0, +) <= 7 * encodes.count, "\(encodes)")
  }
}
