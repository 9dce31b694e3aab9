import PipelineKit

/// Names that are one name on file systems that fold case or Unicode form (macOS, Windows, many shares).
public enum NameFolding {
  /// A name as such file systems compare it: equal for names that differ only in case or in Unicode form.
  ///
  /// Case goes through Unicode's full mappings both ways (`ß` is `SS`, `ς` is `Σ`), and Swift compares strings by
  /// canonical equivalence, which makes composed and decomposed forms equal. Names that are not UTF-8 are equal only
  /// byte by byte.
  public struct Key: Sendable, Hashable {
    private enum Storage: Sendable, Hashable {
      case text(String)
      case bytes([UInt8])
    }

    private let storage: Storage

    fileprivate init(_ bytes: [UInt8]) {
      if bytes.allSatisfy({ $0 < 0x80 }) {
        let upper = bytes.map { (0x61...0x7a).contains($0) ? $0 - 0x20 : $0 }
        storage = .text(String(decoding: upper, as: UTF8.self))
      } else if let text = String(validating: bytes, as: UTF8.self) {
        storage = .text(text.lowercased().uppercased())
      } else {
        storage = .bytes(bytes)
      }
    }
  }

  public static func folded(_ bytes: [UInt8]) -> Key { Key(bytes) }

  public static func folded(_ path: PathBytes) -> Key { Key(path.bytes) }
}
