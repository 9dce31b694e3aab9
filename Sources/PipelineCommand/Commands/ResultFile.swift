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

/// What kind a file is that a command writes. A file of another kind in its place is somebody's: a typing error must not
/// cost a picture or a job.
enum ResultKind {
  case report, page, junit, metrics, codeQuality

  /// For messages.
  var name: String {
    switch self {
    case .report: "report"
    case .page: "page"
    case .junit: "JUnit file"
    case .metrics: "metrics file"
    case .codeQuality: "code quality file"
    }
  }

  /// Makes sure that nothing is lost when such a file takes a place.
  ///
  /// - Parameter text: the path as it was written.
  /// - Throws: `report-place` of class environment where a folder, a device or a file of another kind is there.
  func check(_ path: PathBytes, named text: String) throws(StageError) {
    if let reason = refusal(of: path) { throw failure(text, reason.why, hint: reason.hint) }
  }

  /// - Parameter text: the path as it was written.
  func failure(_ text: String, _ why: String, hint: String? = nil) -> StageError {
    StageError(
      "report-place", "the \(name) \(PathBytes(text).printable) cannot be written: \(why)", kind: .environment,
      hint: hint)
  }

  private func refusal(of path: PathBytes) -> (why: String, hint: String?)? {
    var status = stat()
    guard path.withCString({ stat($0, &status) }) == 0 else { return nil }
    guard status.st_mode & S_IFMT == S_IFREG else {
      return (status.st_mode & S_IFMT == S_IFDIR ? "it is a folder" : "it is not a regular file", nil)
    }
    guard status.st_size > 0 else { return nil }
    let descriptor = path.withCString { open($0, O_RDONLY | O_CLOEXEC) }
    var bytes = [UInt8](repeating: 0, count: 4096)
    let count = descriptor >= 0 ? read(descriptor, &bytes, bytes.count) : 0
    if descriptor >= 0 { close(descriptor) }
    guard count > 0, isBegun(by: bytes[..<count]) else {
      return ("another file is there, which is no such \(name)", "remove it first, or name another place")
    }
    return nil
  }

  private func isBegun(by bytes: ArraySlice<UInt8>) -> Bool {
    let text = String(decoding: bytes, as: UTF8.self).lowercased().drop(while: \.isWhitespace)
    switch self {
    case .report:
      // The report of a run, and of several that were merged.
      let plain = text.filter { !$0.isWhitespace }
      return plain.hasPrefix(#"{"run":{"id":"#) || plain.hasPrefix(#"{"run":{"job":"#)
    case .page: return text.hasPrefix("<!doctype html")
    case .junit: return text.hasPrefix("<?xml") && text.contains("<testsuite")
    case .metrics: return text.hasPrefix("# ")
    case .codeQuality: return text.hasPrefix("[")
    }
  }
}
