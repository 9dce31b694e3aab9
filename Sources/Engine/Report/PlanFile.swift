import CSystem
import Digest
import Glibc
import JobSyntax
import PipelineKit

/// What a run set out to do, kept in a file without a name that outlives a crash of the program.
///
/// Planning again would not do: outputs that were written meanwhile change its decisions, inputs may have come or gone,
/// and a list from standard input is used up. So all inputs are written down, about 100 bytes each: a million take less
/// time than finding them did.
struct PlanFile {
  var identity: RunIdentity
  var jobText: [UInt8]
  /// What messages call the job file.
  var jobFile: String
  var baseFolder: PathBytes
  /// Where the report goes; absolute.
  var reportPath: PathBytes?
  var inputs = InputList()
  var decisions: [Int: RunPlan.Decision] = [:]
  var list = InputsDigest()
  /// Inputs that no output may replace, those of other shards too, by their stable hashes.
  var protectedInputs: [UInt64] = []

  // MARK: Writing

  /// Writes the file.
  ///
  /// - Returns: its descriptor; nil where no disk takes it.
  func write() -> Int32? {
    let descriptor = ReportSpool.unnamedFile()
    guard descriptor >= 0 else { return nil }
    var writer = Writer(descriptor: descriptor)
    writer.put(identity.runID)
    writer.put(identity.started.bitPattern)
    writer.put(jobText)
    writer.put(jobFile)
    writer.put(baseFolder.bytes)
    writer.put(optional: reportPath?.display)
    writer.put(UInt64(inputs.count))
    for input in inputs {
      let path = input.path.bytes
      let name = input.name.bytes
      writer.put(path)
      // The name is most often the end of the path.
      let isEnd = path.count >= name.count && path.suffix(name.count).elementsEqual(name)
      writer.put(isEnd ? [] : name)
      writer.put(UInt64(isEnd ? name.count : 0))
      writer.put(input.relativeDirectory.bytes)
      writer.put(UInt64(input.index))
      writer.put(UInt64(input.declaration))
      writer.put(UInt64(input.line ?? 0))
      writer.put(UInt64(input.remote?.kind.rawValue ?? 0))
      if let remote = input.remote {
        writer.put(remote.location)
        let version = remote.version.map { [$0.size, $0.modified, $0.changed] } ?? []
        writer.put(UInt64(version.count))
        for number in version { writer.put(UInt64(bitPattern: number)) }
      }
      writer.put(UInt64(input.columns.count))
      for (key, value) in input.columns {
        writer.put(key)
        writer.put(value)
      }
    }
    writer.put(UInt64(decisions.count))
    for (index, decision) in decisions {
      writer.put(UInt64(index))
      switch decision {
      case .skip(let reason):
        writer.put(optional: nil)
        writer.put(reason)
      case .drop(let reason):
        // No stage has an empty label.
        writer.put(optional: "")
        writer.put(reason)
      case .fail(let error, let stage):
        writer.put(optional: stage)
        writer.put(error.json.rendered())
      }
    }
    writer.put(UInt64(list.count))
    writer.put(list.state)
    writer.put(UInt64(protectedInputs.count))
    for hash in protectedInputs { writer.put(hash) }
    guard writer.flush() else {
      close(descriptor)
      return nil
    }
    return descriptor
  }

  private struct Writer {
    let descriptor: Int32
    private var buffer: [UInt8] = []
    private var isFine = true

    init(descriptor: Int32) { self.descriptor = descriptor }

    mutating func put(_ number: UInt64) {
      withUnsafeBytes(of: number) { buffer += $0 }
      if buffer.count > 1 << 20 { flush() }
    }
    mutating func put(_ bytes: [UInt8]) {
      put(UInt64(bytes.count))
      buffer += bytes
    }
    mutating func put(_ text: String) { put(Array(text.utf8)) }
    mutating func put(optional text: String?) {
      put(UInt64(text == nil ? 0 : 1))
      if let text { put(text) }
    }

    @discardableResult
    mutating func flush() -> Bool {
      isFine = isFine && ReportSpool.writeAll(descriptor, buffer) == nil
      buffer.removeAll(keepingCapacity: true)
      return isFine
    }
  }

  // MARK: Reading

  /// Reads a file that `write` made; nil where it is not whole.
  init?(_ descriptor: Int32) {
    var status = stat()
    guard fstat(descriptor, &status) == 0, status.st_size > 0 else { return nil }
    let size = Int(status.st_size)
    guard let map = mmap(nil, size, PROT_READ, MAP_PRIVATE, descriptor, 0), map != MAP_FAILED else { return nil }
    defer { munmap(map, size) }
    var reader = Reader(rest: UnsafeRawBufferPointer(start: map, count: size))
    guard let runID = reader.text(), let started = reader.number(), let jobText = reader.bytes(),
      let jobFile = reader.text(), let baseFolder = reader.bytes(), let report = reader.optionalText(),
      let count = reader.number()
    else { return nil }
    identity = RunIdentity(runID: runID, started: Double(bitPattern: started))
    self.jobText = jobText
    self.jobFile = jobFile
    self.baseFolder = PathBytes(bytes: baseFolder)
    reportPath = report.map { PathBytes(display: $0) }
    for _ in 0..<count {
      guard let path = reader.bytes(), let name = reader.bytes(), let suffix = reader.number(),
        let directory = reader.bytes(), let index = reader.number(), let declaration = reader.number(),
        let line = reader.number(), let remote = reader.remote(),
        let columnCount = reader.number(), suffix <= path.count
      else { return nil }
      var columns: [String: String] = [:]
      for _ in 0..<columnCount {
        guard let key = reader.text(), let value = reader.text() else { return nil }
        columns[key] = value
      }
      inputs.append(
        InputItem(
          path: PathBytes(bytes: path), name: PathBytes(bytes: name.isEmpty ? path.suffix(Int(suffix)) + [] : name),
          relativeDirectory: PathBytes(bytes: directory), index: Int(index), columns: columns,
          declaration: Int(declaration), line: line == 0 ? nil : Int(line), remote: remote))
    }
    inputs.finish()
    guard let decisionCount = reader.number() else { return nil }
    for _ in 0..<decisionCount {
      guard let index = reader.number(), let stage = reader.optionalText(), let text = reader.bytes() else {
        return nil
      }
      guard let stage else {
        decisions[Int(index)] = .skip(String(decoding: text, as: UTF8.self))
        continue
      }
      guard !stage.isEmpty else {
        decisions[Int(index)] = .drop(String(decoding: text, as: UTF8.self))
        continue
      }
      guard let node = StrictJSON.parse(SourceFile(name: "decision", text: text)).root, let error = StageError(node)
      else { return nil }
      decisions[Int(index)] = .fail(error, stage: stage)
    }
    guard let listed = reader.number(), let state = reader.number(), let hashCount = reader.number() else { return nil }
    list = InputsDigest(count: Int(listed), state: state)
    for _ in 0..<hashCount {
      guard let hash = reader.number() else { return nil }
      protectedInputs.append(hash)
    }
  }

  init(identity: RunIdentity, jobText: [UInt8], jobFile: String, baseFolder: PathBytes, reportPath: PathBytes?) {
    self.identity = identity
    self.jobText = jobText
    self.jobFile = jobFile
    self.baseFolder = baseFolder
    self.reportPath = reportPath
  }

  init(
    identity: RunIdentity, jobText: [UInt8], job: Job, reportPath: PathBytes?, plan: RunPlan
  ) {
    self.init(
      identity: identity, jobText: jobText, jobFile: job.file, baseFolder: job.baseFolder, reportPath: reportPath)
    inputs = plan.inputs
    decisions = plan.decisions
    list = plan.list
    protectedInputs = plan.protected.inputHashes
  }

  private struct Reader {
    var rest: UnsafeRawBufferPointer

    mutating func number() -> UInt64? {
      guard rest.count >= 8 else { return nil }
      defer { rest = UnsafeRawBufferPointer(rebasing: rest[8...]) }
      return rest.loadUnaligned(as: UInt64.self)
    }
    mutating func bytes() -> [UInt8]? {
      guard let count = number(), count <= rest.count else { return nil }
      defer { rest = UnsafeRawBufferPointer(rebasing: rest[Int(count)...]) }
      return Array(rest[..<Int(count)])
    }
    mutating func text() -> String? { bytes().map { String(decoding: $0, as: UTF8.self) } }
    /// The outer nil for an end that came too early.
    mutating func remote() -> RemoteSource?? {
      guard let number = number(), let small = UInt8(exactly: number) else { return nil }
      guard small != 0 else { return .some(nil) }
      guard let kind = RemoteSource.Kind(rawValue: small), let location = text(), let count = self.number(), count <= 3
      else { return nil }
      var numbers: [Int64] = []
      for _ in 0..<count {
        guard let next = self.number() else { return nil }
        numbers.append(Int64(bitPattern: next))
      }
      return RemoteSource(
        kind, location,
        version: count == 3 ? FileStamp(size: numbers[0], modified: numbers[1], changed: numbers[2]) : nil)
    }
    /// The outer nil for an end that came too early.
    mutating func optionalText() -> String?? {
      guard let isThere = number() else { return nil }
      guard isThere != 0 else { return .some(nil) }
      guard let text = text() else { return nil }
      return .some(text)
    }
  }
}
