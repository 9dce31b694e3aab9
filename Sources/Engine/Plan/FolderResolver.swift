import Glibc
import PipelineKit

/// Follows symbolic links in folders, so that two spellings of one place are seen to be one. Remembers its answers.
struct FolderResolver {
  private var known: [PathBytes: PathBytes] = [:]

  /// The path with the links of its folder followed; its last name is left as it is, since that is what gets replaced.
  mutating func resolve(_ path: PathBytes) -> PathBytes {
    let folder = path.parent
    return resolveFolder(folder).joining(path.lastComponent)
  }

  mutating func resolveFolder(_ folder: PathBytes) -> PathBytes {
    if let answer = known[folder] { return answer }
    let answer: PathBytes
    if let real = folder.withCString({ realpath($0, nil) }) {
      answer = PathBytes(String.bytes(of: real))
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
}

extension String {
  /// The bytes of a C string, whatever their encoding.
  fileprivate static func bytes(of pointer: UnsafePointer<CChar>) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: pointer, count: strlen(pointer))
  }
}
