import Glibc
import JobSyntax
import PipelineKit

/// Finds what may have been meant by a path that does not exist.
enum NearName {
  /// More names than this are not compared.
  private static let mostNames = 20_000

  /// A hint for the first part of `path` (absolute) that does not exist; nil where nothing is near.
  static func hint(for path: PathBytes) -> String? {
    var folder = PathBytes("/")
    for component in path.components {
      let next = folder.joining(PathBytes(component))
      if case .success = FileStatus.of(next.bytes, followingLinks: true) {
        folder = next
        continue
      }
      if case .success = FileStatus.of(next.bytes, followingLinks: false) {
        return "\(next.printable) is a link to something that does not exist"
      }
      let isLast = next.components.count == path.components.count
      if let near = nearest(to: Array(component), in: folder) {
        return "did you mean \(folder.joining(near).printable)?"
      }
      return isLast ? nil : "the folder \(next.printable) does not exist"
    }
    return nil
  }

  private static func nearest(to name: [UInt8], in folder: PathBytes) -> String? {
    guard let text = String(validating: name, as: UTF8.self), let stream = withCPath(folder.bytes, { opendir($0) }),
      let nameOffset = MemoryLayout<dirent>.offset(of: \.d_name)
    else { return nil }
    defer { closedir(stream) }
    var known: [String] = []
    while known.count < mostNames, let entry = readdir(stream) {
      let start = (UnsafeRawPointer(entry) + nameOffset).assumingMemoryBound(to: CChar.self)
      let bytes = UnsafeRawBufferPointer(start: start, count: strlen(start))
      if let other = String(validating: bytes, as: UTF8.self), other != ".", other != ".." { known.append(other) }
    }
    known.sort()
    let key = NameFolding.folded(name)
    if let folded = known.first(where: { NameFolding.folded(Array($0.utf8)) == key }) { return folded }
    return NearestName.suggestion(for: text, among: known)
  }
}
