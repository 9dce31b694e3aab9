import CSystem
import Glibc
import JobSyntax
import PipelineKit
import Synchronization

/// Keeps the report's items on disk while a run goes on, so that a million of them take no memory, and puts them back
/// into input order at the end.
final class ReportSpool: Sendable {
  private struct Place {
    var offset: Int
    var length: Int32
    var isInMemory: Bool
  }
  private struct State {
    var order: [Place?] = []
    /// Bytes in the file.
    var end = 0
    /// Records that the file did not take: there is none, or its disk is full.
    var memory: [UInt8] = []
  }
  private let descriptor: Int32
  private let state = Mutex(State())

  /// - Parameter folder: where the temporary file is made; it has no name there.
  init(folder: PathBytes) {
    var descriptor = folder.withCString { csystem_unnamed_file($0) }
    if descriptor < 0 { descriptor = csystem_unnamed_file("/tmp") }
    self.descriptor = descriptor
  }

  deinit { if descriptor >= 0 { close(descriptor) } }

  func append(_ record: ItemRecord) {
    var bytes = Array(record.json.rendered().utf8)
    state.withLock { state in
      while state.order.count <= record.index { state.order.append(nil) }
      let length = Int32(bytes.count)
      if descriptor >= 0, Self.writeAll(descriptor, &bytes) == nil {
        state.order[record.index] = Place(offset: state.end, length: length, isInMemory: false)
        state.end += bytes.count
      } else {
        // What a failed write left behind is overwritten by the next one.
        if descriptor >= 0 { lseek(descriptor, off_t(state.end), SEEK_SET) }
        state.order[record.index] = Place(offset: state.memory.count, length: length, isInMemory: true)
        state.memory += bytes
      }
    }
  }

  /// Writes the whole report to a path, atomically.
  func write(to path: PathBytes, run: JSONText, tag: String) throws(StageError) {
    let (order, memory) = state.withLock { ($0.order, $0.memory) }
    try AtomicFile.makeFolders(path.parent)
    let temporary = path.parent.joining(".pipeline-\(tag)-report.tmp")
    let output = temporary.withCString { open($0, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o666) }
    guard output >= 0 else { throw Self.failure(path, errno) }
    var isKept = false
    defer {
      close(output)
      if !isKept { _ = temporary.withCString { unlink($0) } }
    }
    var buffer = Array("{\n\"run\": \(run.rendered(pretty: true)),\n\"items\": [".utf8)
    var isFirst = true
    for case let place? in order {
      buffer += Array((isFirst ? "\n" : ",\n").utf8)
      isFirst = false
      let length = Int(place.length)
      if place.isInMemory {
        buffer += memory[place.offset..<place.offset + length]
      } else {
        var piece = [UInt8](repeating: 0, count: length)
        var done = 0
        while done < length {
          let count = piece.withUnsafeMutableBytes {
            pread(descriptor, $0.baseAddress! + done, length - done, off_t(place.offset + done))
          }
          if count < 0, errno == EINTR { continue }
          guard count > 0 else { throw Self.failure(path, errno) }
          done += count
        }
        buffer += piece
      }
      if buffer.count > 1 << 20 {
        if let number = Self.writeAll(output, &buffer) { throw Self.failure(path, number) }
        buffer.removeAll(keepingCapacity: true)
      }
    }
    buffer += Array("\n]\n}\n".utf8)
    if let number = Self.writeAll(output, &buffer) { throw Self.failure(path, number) }
    guard fsync(output) == 0 || errno == EINVAL else { throw Self.failure(path, errno) }
    guard temporary.withCString({ from in path.withCString { rename(from, $0) } }) == 0 else {
      throw Self.failure(path, errno)
    }
    isKept = true
    try AtomicFile.flush(folder: path.parent)
  }

  private static func failure(_ path: PathBytes, _ number: Int32) -> StageError {
    StageError(
      "report-failed", "the report \(path.printable) could not be written", kind: .environment,
      cause: String(cString: strerror(number)))
  }

  /// The error number, or nil when all was written.
  private static func writeAll(_ descriptor: Int32, _ bytes: inout [UInt8]) -> Int32? {
    bytes.withUnsafeBytes { all in
      var rest = all
      while !rest.isEmpty {
        let count = Glibc.write(descriptor, rest.baseAddress, rest.count)
        if count < 0 {
          if errno == EINTR { continue }
          return errno
        }
        rest = UnsafeRawBufferPointer(rebasing: rest[count...])
      }
      return nil
    }
  }
}
