import Digest
import Glibc
import PipelineKit
import TestSupport
import Testing

@testable import Engine

/// A state folder of a test's own, and items to put into its ledger.
struct LedgerScene {
  let temporary: TemporaryFolder
  let folder: StateFolder

  init() throws {
    temporary = TemporaryFolder()
    folder = StateFolder.locate(PathBytes(temporary["state"]))
    try folder.make()
  }

  func open(_ access: Ledger.Access = .readWrite, isOnNetwork: Bool = false) throws -> Ledger {
    try #require(try Ledger.open(folder, access, isOnNetwork: isOnNetwork, steps: LedgerSchema.steps))
  }

  /// What `body` throws.
  func error(_ body: () throws -> Void) -> StageError? {
    do {
      try body()
      return nil
    } catch {
      return error as? StageError
    }
  }

  static func key(_ index: Int) -> [UInt8] { Array("/pictures/folder-\(index % 7)/IMG_\(100_000 + index).jpg".utf8) }

  /// An item that differs from its neighbours in everything; with every kind of value in one of a few.
  static func item(_ index: Int, run: String = "20260501-020304-a1b2c3") -> LedgerItem {
    let key = key(index)
    func digest(_ salt: Int) -> [UInt8] { (0..<32).map { UInt8(truncatingIfNeeded: index &* 31 &+ $0 &* 7 &+ salt) } }
    let number = Int64(index)
    var item = LedgerItem(
      key: key, status: index % 5 == 4 ? .failed : .done, chain: digest(index % 3 == 0 ? 1 - index : 2 - index),
      values: index % 2 == 0 ? digest(3) : [], versions: "pipeline 0.1, libvips 8.14.\(index % 2)",
      inputStamp: FileStamp(size: 4_000_000 + number, modified: 1_700_000_000_123_456_789 + number, changed: number),
      inputHash: digest(4), inputPath: PathBytes(bytes: key), run: run, updated: 1_700_000_000.25 + Double(index))
    item.chain = (0..<32).map { UInt8(truncatingIfNeeded: index % 3 + $0) }
    switch index % 5 {
    case 4:
      item.detail = "no picture: \"é\" \(index)"
      item.inputStamp = nil
      item.inputHash = nil
      item.inputPath = PathBytes(bytes: [0x2f, 0xff, 0xfe])
    default:
      item.outputs = [output(index, digest(5), "webp")]
      if index % 5 == 3 { item.outputs.append(output(index, digest(6), "jpeg")) }
      if index % 5 == 2 {
        item.outputs.append(
          LedgerOutput(
            stage: "upload",
            record: OutputRecord(
              place: .link("https://example.org/\(index)"), format: "webp", width: 0, height: 0, bytes: 1,
              sha256: "not known")))
      }
    }
    return item
  }

  private static func output(_ index: Int, _ digest: [UInt8], _ format: String) -> LedgerOutput {
    LedgerOutput(
      stage: "write",
      record: OutputRecord(
        place: .path(PathBytes("/out/folder-\(index % 7)/IMG_\(100_000 + index).\(format)")), format: format,
        width: 1600, height: 1200, bytes: 123_456 + index, sha256: Hex.text(digest)),
      stamp: FileStamp(size: Int64(123_456 + index), modified: 1_700_000_001_000_000_000, changed: Int64(index)))
  }
}

extension LedgerScene {
  init(temporary: TemporaryFolder, folder: StateFolder) {
    self.temporary = temporary
    self.folder = folder
  }
}
