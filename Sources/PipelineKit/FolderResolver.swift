import Glibc

/// Follows symbolic links in folders, so that two spellings of one place are seen to be one. Remembers its answers.
public struct FolderResolver {
  private var known: [PathBytes: PathBytes] = [:]

  public init() {}

  /// The path with the links of its folder followed; its last name is left as it is, since that is what gets replaced.
  ///
  /// - Parameter path: absolute.
  public mutating func resolve(_ path: PathBytes) -> PathBytes {
    resolveFolder(path.parent).joining(path.lastComponent)
  }

  /// The folder with its links followed, also where its last parts do not exist yet.
  public mutating func resolveFolder(_ folder: PathBytes) -> PathBytes {
    if let answer = known[folder] { return answer }
    let answer: PathBytes
    if let real = folder.withCString({ realpath($0, nil) }) {
      answer = PathBytes(UnsafeRawBufferPointer(start: real, count: strlen(real)))
      free(real)
    } else if folder.components.isEmpty {
      answer = folder
    } else {
      // What does not exist yet is looked up above.
      answer = resolveFolder(folder.parent).joining(folder.lastComponent)
    }
    known[folder] = answer
    return answer
  }

  /// Every place that is read when `path` is opened: the path itself and, where it is a link, each place the links
  /// lead through, down to the file. Replacing any of them changes what the path gives.
  ///
  /// - Parameter path: absolute.
  public mutating func places(of path: PathBytes) -> [PathBytes] {
    var place = resolve(path)
    var places = [place]
    // As many links as the kernel follows.
    while places.count <= 40, let target = Self.target(of: place) {
      place = resolve(place.parent.joining(target))
      if places.contains(place) { break }
      places.append(place)
    }
    return places
  }

  /// What a symbolic link says; nil for anything else.
  public static func target(of path: PathBytes) -> PathBytes? {
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(PATH_MAX)) { buffer in
      guard let base = buffer.baseAddress else { return nil }
      let count = path.withCString { readlink($0, base, buffer.count) }
      return count > 0 ? PathBytes(buffer[..<count].lazy.map { UInt8(bitPattern: $0) }) : nil
    }
  }
}
