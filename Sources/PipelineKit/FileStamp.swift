import Digest
import Glibc

extension FileStamp {
  /// The stamp of the file at a path; follows links; nil where nothing regular is.
  public static func of(_ path: PathBytes) -> FileStamp? {
    var status = stat()
    guard path.withCString({ stat($0, &status) }) == 0 else { return nil }
    return FileStamp(status)
  }
}
