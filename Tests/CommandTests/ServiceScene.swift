import Glibc
import Imaging
import JobSyntax
import TestSupport
import Testing

/// A folder with pictures that a service cuts out, and the program run on it.
struct ServiceScene {
  let scene: Scene
  let key: String

  /// Pictures of 160 × 120 pixels, each another, in which the stand-in sees an ellipse.
  init(pictures: Int, stem: String = "key") throws {
    scene = try Scene(remembers: true)
    key = Peers.freshName(stem)
    for index in 0..<pictures { scene.folder.write(try Self.picture(index), to: "in/p\(index / 10)\(index % 10).png") }
  }

  static func picture(_ index: Int, _ width: Int = 160, _ height: Int = 120) throws -> [UInt8] {
    try image(index, width, height).encoded(.png(.init())).array
  }

  static func image(_ index: Int, _ width: Int = 160, _ height: Int = 120) throws -> Image {
    var bytes: [UInt8] = []
    for y in 0..<height {
      for x in 0..<width {
        bytes += [UInt8(x * 255 / width), UInt8(y * 255 / height), UInt8((index * 37 + x / 8 + y / 8) & 255)]
      }
    }
    return try Image(width: width, height: height, bands: 3, bytes: bytes)
  }

  /// A job that decodes, segments and writes PNG.
  func job(_ segment: String, budget: String? = #"{ "credits": 100 }"#, network: String? = nil) {
    let more =
      (budget.map { "\"budget\": \($0), " } ?? "") + (network.map { "\"network\": \($0), " } ?? "")
    scene.folder.write(
      """
      {
        "version": 1, "name": "services", \(more)
        "input": { "files": ["in/*"] },
        "stages": [
          { "stage": "decode" },
          { "stage": "segment", \(segment) },
          { "stage": "encode", "format": "png" },
          { "stage": "write", "to": "out/${item.stem}.png" }
        ]
      }
      """, to: "job.json")
  }

  func run(_ arguments: String..., key: String? = nil) -> ProgramResult {
    var settings = scene.settings()
    var variables: [String: String] = [:]
    var pointer = environ
    while let entry = pointer.pointee {
      let parts = String(cString: entry).split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      if parts.count == 2 { variables[String(parts[0])] = String(parts[1]) }
      pointer += 1
    }
    variables["SERVICE_KEY"] = key ?? self.key
    settings.environment = variables
    return RunProgram.run(["run", "job.json", "--report", "report.json"] + arguments, settings)
  }

  func items() throws -> [JSONNode] { try #require(try scene.report()["items"]?.arrayValue) }

  func statuses() throws -> [String: Int] {
    var counts: [String: Int] = [:]
    for item in try items() { counts[item["status"]?.stringValue ?? "?", default: 0] += 1 }
    return counts
  }

  func output(_ name: String) throws -> Image {
    let bytes = try #require(scene.folder.read("out/\(name).png"), "\(name) was not written")
    return try EncodedPicture(bytes: EncodedBytes(bytes)).pixels()
  }

  /// The stand-in's mask: an ellipse of 0.4 of the sides (of `box`: left, top, right, bottom), 4 pixels of edge.
  static func ellipse(_ width: Int, _ height: Int, _ box: (Double, Double, Double, Double)? = nil) -> [UInt8] {
    let (x1, y1, x2, y2) = box ?? (0, 0, Double(width), Double(height))
    let (rx, ry) = (0.4 * (x2 - x1), 0.4 * (y2 - y1))
    var bytes: [UInt8] = []
    for y in 0..<height {
      for x in 0..<width {
        let (dx, dy) = ((Double(x) + 0.5 - (x1 + x2) / 2) / rx, (Double(y) + 0.5 - (y1 + y2) / 2) / ry)
        let alpha = (1 - (dx * dx + dy * dy).squareRoot()) * min(rx, ry) / 4 + 0.5
        bytes.append(UInt8((min(max(alpha, 0), 1) * 255).rounded()))
      }
    }
    return bytes
  }

  /// The mean of the absolute differences of two planes.
  static func difference(_ a: [UInt8], _ b: [UInt8]) -> Double {
    guard a.count == b.count, !a.isEmpty else { return 255 }
    return Double(zip(a, b).reduce(0) { $0 + abs(Int($1.0) - Int($1.1)) }) / Double(a.count)
  }
}
