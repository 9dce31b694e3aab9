import Imaging
import Synchronization

/// The last few images made, by what they were made from: the pictures of a batch are often alike.
final class RecentImages<Key: Hashable & Sendable>: Sendable {
  private struct Entry: Sendable {
    var key: Key
    var image: Image
  }
  private static var mostEntries: Int { 16 }
  private static var mostBytes: Int { 64 << 20 }

  private let entries = Mutex<[Entry]>([])

  /// The image for `key`; nil where `make` has none, which is not kept. Made outside the lock: two workers may make the same one, neither waits.
  func image(_ key: Key, make: () throws(ImagingError) -> Image?) throws(ImagingError) -> Image? {
    let known = entries.withLock { entries -> Image? in
      guard let index = entries.firstIndex(where: { $0.key == key }) else { return nil }
      let entry = entries.remove(at: index)
      entries.append(entry)
      return entry.image
    }
    if let known { return known }
    guard let image = try make() else { return nil }
    entries.withLock { entries in
      guard !entries.contains(where: { $0.key == key }) else { return }
      entries.append(Entry(key: key, image: image))
      while entries.count > Self.mostEntries || entries.reduce(0, { $0 + $1.image.byteCount }) > Self.mostBytes {
        entries.removeFirst()
      }
    }
    return image
  }
}
