import Imaging
import Synchronization

/// The last few images made, by what they were made from: the pictures of a batch are often alike.
final class RecentImages<Key: Hashable & Sendable>: Sendable {
  private struct Entry: Sendable {
    var key: Key
    var image: Image
  }
  private let most: Int
  private let mostBytes: Int
  private let entries = Mutex<[Entry]>([])

  /// - Parameters:
  ///   - most: images kept.
  ///   - mostBytes: what they hold together; a larger one is made anew each time.
  init(most: Int, mostBytes: Int) {
    self.most = most
    self.mostBytes = mostBytes
  }

  /// The image for `key`; nil where `make` has none, which is not kept.
  ///
  /// Made outside the lock: two workers may make the same one, neither waits.
  func image(_ key: Key, make: () throws(ImagingError) -> Image?) throws(ImagingError) -> Image? {
    let known = entries.withLock { entries -> Image? in
      guard let index = entries.firstIndex(where: { $0.key == key }) else { return nil }
      let entry = entries.remove(at: index)
      entries.append(entry)
      return entry.image
    }
    if let known { return known }
    guard let image = try make() else { return nil }
    // One that is too large by itself must not push out the others.
    guard image.byteCount <= mostBytes else { return image }
    entries.withLock { entries in
      guard !entries.contains(where: { $0.key == key }) else { return }
      entries.append(Entry(key: key, image: image))
      while entries.count > most || entries.reduce(0, { $0 + $1.image.byteCount }) > mostBytes {
        entries.removeFirst()
      }
    }
    return image
  }
}
