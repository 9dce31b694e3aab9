import Testing

@testable import Imaging

@Suite struct LanczosTests {
  struct Example: Sendable, CustomTestStringConvertible {
    let width, height, bands, toWidth, toHeight: Int
    let result: [UInt8]
    var testDescription: String { "\(width)×\(height)×\(bands) to \(toWidth)×\(toHeight)" }
  }

  /// What Pillow 12.3 makes of the picture below with `resize((w, h), Image.LANCZOS)`.
  static let examples: [Example] = [
    Example(
      width: 7, height: 5, bands: 1, toWidth: 4, toHeight: 9,
      result: [
        5, 89, 213, 59, 30, 118, 216, 80, 75, 170, 202, 104, 93, 214, 146, 78, 111, 200, 100, 59, 183, 135, 104, 117,
        197, 99, 162, 156, 120, 135, 219, 118, 61, 170, 248, 82,
      ]),
    Example(
      width: 9, height: 8, bands: 3, toWidth: 5, toHeight: 3,
      result: [
        122, 135, 117, 143, 132, 132, 126, 124, 123, 141, 151, 116, 147, 186, 126, 160, 193, 87, 134, 112, 123, 71, 120,
        137, 166, 123, 91, 174, 127, 118, 124, 166, 94, 133, 156, 106, 152, 137, 141, 116, 109, 136, 129, 140, 44,
      ]),
    Example(
      width: 4, height: 6, bands: 1, toWidth: 4, toHeight: 2, result: [106, 120, 97, 153, 116, 177, 129, 124]),
    Example(
      width: 3, height: 2, bands: 3, toWidth: 5, toHeight: 4,
      result: [
        0, 0, 64, 49, 99, 115, 161, 255, 147, 59, 200, 54, 0, 110, 0, 47, 69, 103, 91, 131, 119, 149, 205, 128, 85, 179,
        96, 36, 138, 71, 156, 199, 154, 146, 173, 125, 133, 133, 103, 119, 151, 149, 117, 176, 189, 239, 255, 193, 188,
        205, 129, 121, 78, 84, 145, 130, 191, 180, 204, 255,
      ]),
    Example(width: 1, height: 1, bands: 1, toWidth: 3, toHeight: 2, result: [0, 0, 0, 0, 0, 0]),
  ]

  /// Rough on purpose, so that overshoot is cut between the passes.
  private func picture(_ count: Int) -> [UInt8] {
    (0..<count).map { index in
      let curve: Int = index * index * 7 + index * 31
      let steps: Int = (index / 5) * (index % 11) * 13
      return UInt8((curve + steps) % 256)
    }
  }

  /// Tolerance: one level, where a half is rounded the other way.
  @Test(arguments: examples)
  func `results are Pillow's`(_ example: Example) {
    let result = LanczosResampler.resize(
      picture(example.width * example.height * example.bands), width: example.width, height: example.height,
      bands: example.bands, toWidth: example.toWidth, toHeight: example.toHeight)
    #expect(result.count == example.result.count)
    #expect(zip(result, example.result).allSatisfy { abs(Int($0) - Int($1)) <= 1 })
    // And nearly all exactly.
    #expect(zip(result, example.result).count { $0 != $1 } * 20 <= result.count)
  }

  @Test(arguments: 1...5)
  func `a plain picture stays plain, whatever its bands, also at the borders`(_ bands: Int) {
    for (width, height) in [(1, 300), (97, 3), (40, 40)] {
      let plain = (0..<width * height).flatMap { _ in (0..<bands).map { UInt8(250 - $0 * 40) } }
      let result = LanczosResampler.resize(
        plain, width: width, height: height, bands: bands, toWidth: 33, toHeight: 41)
      #expect(result == (0..<33 * 41).flatMap { _ in (0..<bands).map { UInt8(250 - $0 * 40) } })
    }
  }

  @Test func `the same size is the same picture`() {
    let bytes = picture(60)
    #expect(LanczosResampler.resize(bytes, width: 5, height: 4, bands: 3, toWidth: 5, toHeight: 4) == bytes)
  }

  /// Rows longer than the block that sums are kept for: each column is resampled alike.
  @Test func `long rows are whole`() {
    let row = picture(5_000)
    let bytes = [UInt8](repeating: 0, count: 5_000) + row + row + [UInt8](repeating: 0, count: 5_000)
    let result = LanczosResampler.resize(bytes, width: 5_000, height: 4, bands: 1, toWidth: 5_000, toHeight: 2)
    for column in [0, 1, 2_047, 2_048, 4_095, 4_096, 4_999] {
      let alone = LanczosResampler.resize(
        [0, row[column], row[column], 0], width: 1, height: 4, bands: 1, toWidth: 1, toHeight: 2)
      #expect([result[column], result[5_000 + column]] == alone)
    }
  }

  /// Worked out by hand: areas that pixels cover, and triangles of the ratio's width with weights that sum to 1.
  @Test(arguments: [
    (LanczosResampler.Filter.area, [0, 100, 200, 50], [UInt8(50), 125]), (.area, [0, 90, 150], [30, 130]),
    (.bilinear, [0, 100, 200, 50], [71, 121]), (.area, [0, 100], [0, 25, 75, 100]),
    (.bilinear, [0, 100], [0, 25, 75, 100]),
  ])
  func `other kernels`(_ filter: LanczosResampler.Filter, _ samples: [UInt8], _ wanted: [UInt8]) {
    let (row, column) = samples.withUnsafeBufferPointer { bytes in
      (
        LanczosResampler.resize(
          bytes, width: samples.count, height: 1, bands: 1, toWidth: wanted.count, toHeight: 1, filter: filter),
        LanczosResampler.resize(
          bytes, width: 1, height: samples.count, bands: 1, toWidth: 1, toHeight: wanted.count, filter: filter)
      )
    }
    #expect(row == wanted && column == wanted)
  }
}
