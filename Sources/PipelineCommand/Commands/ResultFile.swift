import Glibc
import PipelineKit

/// A file that a command was asked to write its result to.
enum ResultFile {
  /// Puts text in the place of what is at a path, whole or not at all.
  ///
  /// - Parameter path: from the current folder.
  /// - Throws: `output-…` codes with the system's words.
  static func write(_ text: String, to path: String) throws(StageError) {
    try write(Array(text.utf8), to: (PathBytes.currentFolder ?? "/").joining(PathBytes(path)))
  }

  static func write(_ bytes: [UInt8], to path: PathBytes) throws(StageError) {
    try AtomicFile.makeFolders(path.parent)
    let answer: Result<Void, StageError> = bytes.withUnsafeBytes { buffer in
      do throws(StageError) {
        _ = try AtomicFile.write(buffer, to: path, tag: "\(getpid())")
        return .success(())
      } catch {
        return .failure(error)
      }
    }
    try answer.get()
  }
}
