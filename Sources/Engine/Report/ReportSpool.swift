import CSystem
import Glibc
import JobSyntax
import PipelineKit
import Synchronization

/// Keeps the report's items on disk while a run goes on, so that a million of them take no memory, and puts them back
/// into input order at the end.
///
/// Where the run has a journal, the file also holds what must be known after a crash: the outputs of items that have
/// ended, and the records that the summary is made of. Each entry is a header of 24 bytes (index, length of the paths,
/// length of the record, whether the summary needs it; 8, 4, 4 and 8 bytes), the paths of the outputs, each closed by a
/// zero, and the record as JSON.
final class ReportSpool: Sendable {
  private struct Place {
    /// Of the JSON.
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
    var journal: RunJournal?
  }
  private static let headerBytes = 24

  private let descriptor: Int32
  private let keepsAll: Bool
  private let state = Mutex(State())

  /// - Parameter keepsAll: whether there will be a report; without one, only what a crash must not lose is kept.
  init(keepsAll: Bool) {
    descriptor = Self.unnamedFile()
    self.keepsAll = keepsAll
  }

  /// Goes on with the file of a run that the program has crashed in.
  init(continuing journal: RunJournal, keepsAll: Bool) {
    descriptor = journal.spoolDescriptor
    self.keepsAll = keepsAll
    state.withLock { state in
      state.end = journal.spoolEnd
      state.journal = journal
    }
  }

  deinit { if descriptor >= 0 { close(descriptor) } }

  /// From now on the journal knows the file.
  ///
  /// - Returns: false where there is no file.
  func attach(_ journal: RunJournal) -> Bool {
    guard descriptor >= 0 else { return false }
    journal.spoolDescriptor = descriptor
    state.withLock { $0.journal = journal }
    return true
  }

  /// A temporary file without a name; in memory where no folder takes one; -1 where none can be had.
  static func unnamedFile() -> Int32 {
    for folder in ["/var/tmp", "/tmp"] {
      let descriptor = csystem_unnamed_file(folder)
      if descriptor >= 0 { return descriptor }
    }
    return csystem_memory_file()
  }

  /// - Parameter isAgain: the item's record stands there already, and this one takes its place.
  func append(_ record: ItemRecord, isAgain: Bool = false) {
    if isAgain, !keepsAll { return }
    let journal = state.withLock { $0.journal }
    var paths: [UInt8] = []
    if journal != nil {
      for case .path(let path) in record.outputs.map(\.place) { paths += path.bytes + [0] }
    }
    let isForSummary = record.isForSummary && !isAgain
    let json = keepsAll || isForSummary ? Array(record.json.rendered().utf8) : []
    guard !json.isEmpty || !paths.isEmpty else { return }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(Self.headerBytes + paths.count + json.count)
    withUnsafeBytes(of: Int64(record.index)) { bytes += $0 }
    withUnsafeBytes(of: Int32(paths.count)) { bytes += $0 }
    withUnsafeBytes(of: Int32(json.count)) { bytes += $0 }
    withUnsafeBytes(of: Int64(isForSummary ? 1 : 0)) { bytes += $0 }
    bytes += paths
    bytes += json
    state.withLock { state in
      // What a failed write left behind is overwritten by the next one.
      let isWritten = descriptor >= 0 && Self.writeAll(descriptor, bytes, at: state.end) == nil
      let place =
        isWritten
        ? Place(offset: state.end + bytes.count - json.count, length: Int32(json.count), isInMemory: false)
        : Place(offset: state.memory.count, length: Int32(json.count), isInMemory: true)
      if isWritten {
        state.end += bytes.count
        journal?.spoolEnd = state.end
      } else {
        if keepsAll { state.memory += json }
        // Memory does not outlive a crash.
        journal?.disarm()
      }
      if keepsAll, !json.isEmpty { Self.keep(place, at: record.index, &state.order) }
    }
  }

  private static func keep(_ place: Place, at index: Int, _ order: inout [Place?]) {
    while order.count <= index { order.append(nil) }
    order[index] = place
  }

  /// Goes through the entries of items that have ended, in the order they were written, after a crash.
  ///
  /// - Parameter body: given the outputs, and the record where the summary needs it.
  func replay(_ body: (_ outputs: [PathBytes], _ record: ItemRecord?) -> Void) {
    state.withLock { state in
      guard let journal = state.journal else { return }
      var buffer: [UInt8] = []
      var start = 0
      // Makes `count` bytes from `start` on stand in the buffer.
      func have(_ count: Int, from offset: Int) -> Bool {
        if buffer.count - start >= count { return true }
        buffer.removeFirst(start)
        start = 0
        let held = buffer.count
        let wanted = min(max(count - held, 1 << 20), state.end - offset - held)
        guard wanted > 0 else { return false }
        var piece = [UInt8](repeating: 0, count: wanted)
        guard Self.readAll(descriptor, &piece, at: offset + held) == nil else { return false }
        buffer += piece
        return buffer.count >= count
      }
      var offset = 0
      while offset < state.end, have(Self.headerBytes, from: offset) {
        let (index, pathCount, jsonCount, isForSummary) = buffer.withUnsafeBytes { bytes in
          (
            Int(bytes.loadUnaligned(fromByteOffset: start, as: Int64.self)),
            Int(bytes.loadUnaligned(fromByteOffset: start + 8, as: Int32.self)),
            Int(bytes.loadUnaligned(fromByteOffset: start + 12, as: Int32.self)),
            bytes.loadUnaligned(fromByteOffset: start + 16, as: Int64.self) != 0
          )
        }
        let length = Self.headerBytes + pathCount + jsonCount
        guard have(length, from: offset) else { break }
        let paths = buffer[(start + Self.headerBytes)...].prefix(pathCount)
        let json = buffer[(start + Self.headerBytes + pathCount)...].prefix(jsonCount)
        // The program may have crashed after a record was written and before its item had ended: it is done again.
        if case .ended = journal[index] {
          var record: ItemRecord?
          if isForSummary, let node = StrictJSON.parse(SourceFile(name: "record", text: Array(json))).root {
            record = ItemRecord(index: index, report: node)
          }
          body(paths.split(separator: 0).map { PathBytes($0) }, record)
          if keepsAll, jsonCount > 0 {
            let place = Place(offset: offset + length - jsonCount, length: Int32(jsonCount), isInMemory: false)
            Self.keep(place, at: index, &state.order)
          }
        }
        start += length
        offset += length
      }
    }
  }

  /// Gives the records of the items that have ended, in input order, one at a time.
  ///
  /// - Throws: `report-failed` of class environment where the file cannot be read.
  func forEachRecord(_ body: (ItemRecord) -> Void) throws(StageError) {
    let (order, memory) = state.withLock { ($0.order, $0.memory) }
    for case (let index, let place?) in order.enumerated() {
      let length = Int(place.length)
      var piece: [UInt8]
      if place.isInMemory {
        piece = Array(memory[place.offset..<place.offset + length])
      } else {
        piece = [UInt8](repeating: 0, count: length)
        if let number = Self.readAll(descriptor, &piece, at: place.offset) {
          throw StageError(
            "report-failed", "what was kept for the report cannot be read", kind: .environment,
            cause: String(cString: strerror(number)))
        }
      }
      guard let node = StrictJSON.parse(SourceFile(name: "record", text: piece)).root,
        let record = ItemRecord(index: index, report: node)
      else {
        throw StageError(
          "report-failed", "what was kept of picture \(index) for the report cannot be read", kind: .environment)
      }
      body(record)
    }
  }

  /// Writes the whole report to a path, atomically.
  func write(to path: PathBytes, run: JSONText, tag: String) throws(StageError) {
    let (order, memory) = state.withLock { ($0.order, $0.memory) }
    try AtomicFile.makeFolders(path.parent)
    try Self.replace(path, tag: "\(tag)-report") { output in put(order, memory, run, output) }
  }

  /// Writes the whole report to a file without a name; its descriptor, which the caller closes.
  ///
  /// - Throws: `report-failed` of class environment.
  func unnamedReport(run: JSONText) throws(StageError) -> Int32 {
    let (order, memory) = state.withLock { ($0.order, $0.memory) }
    let output = Self.unnamedFile()
    let number = output < 0 ? errno : put(order, memory, run, output)
    guard let number else { return output }
    if output >= 0 { close(output) }
    throw StageError(
      "report-failed", "the report could not be written to a temporary file", kind: .environment,
      cause: String(cString: strerror(number)))
  }

  /// Writes the report to an open file; answers an error number, or nil.
  private func put(_ order: [Place?], _ memory: [UInt8], _ run: JSONText, _ output: Int32) -> Int32? {
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
        if let number = Self.readAll(descriptor, &piece, at: place.offset) { return number }
        buffer += piece
      }
      if buffer.count > 1 << 20 {
        if let number = Self.writeAll(output, buffer) { return number }
        buffer.removeAll(keepingCapacity: true)
      }
    }
    buffer += Array("\n]\n}\n".utf8)
    return Self.writeAll(output, buffer)
  }

  /// Puts a report in the place of what is at a path, whole or not at all. A file system that cannot flush is taken as
  /// it is.
  ///
  /// - Parameters:
  ///   - tag: goes into the temporary name.
  ///   - body: writes it to the open file; answers an error number, or nil.
  /// - Throws: `report-failed` of class environment.
  static func replace(_ path: PathBytes, tag: String, _ body: (Int32) -> Int32?) throws(StageError) {
    let temporary = path.parent.joining(".pipeline-\(tag).tmp")
    // What an earlier life of this process may have left there; never what somebody has linked there.
    _ = temporary.withCString { unlink($0) }
    let output = temporary.withCString { open($0, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o666) }
    guard output >= 0 else { throw failure(path, errno) }
    var isKept = false
    defer {
      close(output)
      if !isKept { _ = temporary.withCString { unlink($0) } }
    }
    if let number = body(output) { throw failure(path, number) }
    guard fsync(output) == 0 || errno == EINVAL else { throw failure(path, errno) }
    guard temporary.withCString({ from in path.withCString { rename(from, $0) } }) == 0 else {
      throw failure(path, errno)
    }
    isKept = true
    try AtomicFile.flush(folder: path.parent)
  }

  private static func failure(_ path: PathBytes, _ number: Int32) -> StageError {
    StageError(
      "report-failed", "the report \(path.printable) could not be written", kind: .environment,
      cause: String(cString: strerror(number)))
  }

  /// The error number, or nil when all was written: at an offset, or where the last write ended.
  static func writeAll(_ descriptor: Int32, _ bytes: [UInt8], at offset: Int? = nil) -> Int32? {
    bytes.withUnsafeBytes { writeAll(descriptor, $0, at: offset) }
  }

  static func writeAll(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer, at offset: Int? = nil) -> Int32? {
    var done = 0
    while done < bytes.count {
      let rest = UnsafeRawBufferPointer(rebasing: bytes[done...])
      let count =
        offset.map { pwrite(descriptor, rest.baseAddress, rest.count, off_t($0 + done)) }
        ?? Glibc.write(descriptor, rest.baseAddress, rest.count)
      if count < 0 {
        if errno == EINTR { continue }
        return errno
      }
      done += count
    }
    return nil
  }

  /// The error number, or nil when all was read.
  private static func readAll(_ descriptor: Int32, _ bytes: inout [UInt8], at offset: Int) -> Int32? {
    bytes.withUnsafeMutableBytes { all in
      var done = 0
      while done < all.count {
        let rest = UnsafeMutableRawBufferPointer(rebasing: all[done...])
        let count = pread(descriptor, rest.baseAddress, rest.count, off_t(offset + done))
        if count < 0, errno == EINTR { continue }
        guard count > 0 else { return count == 0 ? EIO : errno }
        done += count
      }
      return nil
    }
  }
}

extension ItemRecord {
  /// Whether the summary at the end says something about this item besides counting it.
  fileprivate var isForSummary: Bool {
    switch status {
    case .failed, .unknown, .deferred, .review: true
    case .done, .skipped, .dropped, .notAttempted: !warnings.isEmpty
    }
  }
}
