import Digest
import PipelineKit

/// One output of an item, as it was when it was booked.
public struct LedgerOutput: Sendable, Hashable {
  public var record: OutputRecord
  /// Nil for what is no local file.
  public var stamp: FileStamp?

  /// The label of the stage that made it.
  public var stage: String { record.stage }

  public init(stage: String, record: OutputRecord, stamp: FileStamp? = nil) {
    self.record = record
    self.record.stage = stage
    self.stamp = stamp
  }
}

/// What is known about one input of one job: how its last attempt ended, from what, and what that made.
public struct LedgerItem: Sendable, Hashable {
  /// The input's identity.
  public var key: [UInt8]
  public var status: ItemStatus
  /// Fingerprint of the effective stages, 32 bytes.
  public var chain: [UInt8]
  /// Fingerprint of the item's own values that the stages name; may be empty.
  public var values: [UInt8]
  /// What programs made it.
  public var versions: String
  public var inputStamp: FileStamp?
  /// SHA-256 of the input, 32 bytes.
  public var inputHash: [UInt8]?
  public var inputPath: PathBytes
  /// The run that booked it.
  public var run: String
  /// Seconds since 1970.
  public var updated: Double
  /// The error or the reason.
  public var detail: String?
  public var outputs: [LedgerOutput]

  public init(
    key: [UInt8], status: ItemStatus, chain: [UInt8], values: [UInt8] = [], versions: String = "",
    inputStamp: FileStamp? = nil, inputHash: [UInt8]? = nil, inputPath: PathBytes, run: String, updated: Double,
    detail: String? = nil, outputs: [LedgerOutput] = []
  ) {
    self.key = key
    self.status = status
    self.chain = chain
    self.values = values
    self.versions = versions
    self.inputStamp = inputStamp
    self.inputHash = inputHash
    self.inputPath = inputPath
    self.run = run
    self.updated = updated
    self.detail = detail
    self.outputs = outputs
  }

  /// The sum of everything in it, so that a damaged row is never taken for a good one.
  var checksum: Int64 {
    var sum = Checksum()
    func add(_ stamp: FileStamp?) {
      sum.add(UInt64(stamp == nil ? 0 : 1))
      guard let stamp else { return }
      sum.add(stamp.size)
      sum.add(stamp.modified)
      sum.add(stamp.changed)
    }
    sum.add(key)
    sum.add(status.rawValue)
    sum.add(chain)
    sum.add(values)
    sum.add(versions)
    add(inputStamp)
    sum.add(UInt64(inputHash == nil ? 0 : 1))
    if let inputHash { sum.add(inputHash) }
    sum.add(inputPath.bytes)
    sum.add(run)
    sum.add(updated.bitPattern)
    sum.add(UInt64(detail == nil ? 0 : 1))
    if let detail { sum.add(detail) }
    sum.add(UInt64(outputs.count))
    for output in outputs {
      sum.add(output.stage)
      switch output.record.place {
      case .path(let path): sum.add(path.bytes)
      case .link(let link): sum.add(link)
      }
      sum.add(output.record.format)
      sum.add(Int64(output.record.width))
      sum.add(Int64(output.record.height))
      sum.add(Int64(output.record.bytes))
      sum.add(output.record.sha256)
      add(output.stamp)
    }
    return Int64(bitPattern: sum.value)
  }
}

/// One run of a job, under way or over.
public struct LedgerRun: Sendable, Hashable {
  /// How a run has stopped of which some of what it made may not be booked: killed; crashed and taken up again, when what
  /// was on its way to the disk was lost; or the ledger could not be written.
  static let killed = "killed", crashed = "crashed", unbooked = "not all booked"
  static let stopsWithoutBooking = [killed, crashed, unbooked]

  public var id: String
  /// What the job is known by.
  public var job: String
  public var jobName: String
  /// Seconds since 1970.
  public var started: Double
  /// Seconds since 1970; nil while it goes on, and for ever where it was cut short.
  public var ended: Double?
  public var exitCode: Int32?
  /// Why it ended before its work did, or one of `stopsWithoutBooking`.
  public var stop: String?
  /// `ItemCounts` as JSON.
  public var counts: String
  public var shard: String?
  public var host: String
  public var pid: Int32
  /// The program's version.
  public var version: String
  public var reportPath: PathBytes?

  public init(
    id: String, job: String, jobName: String, started: Double, ended: Double? = nil, exitCode: Int32? = nil,
    stop: String? = nil, counts: String = "{}", shard: String? = nil, host: String = Machine.hostName,
    pid: Int32 = Machine.processID, version: String, reportPath: PathBytes? = nil
  ) {
    self.id = id
    self.job = job
    self.jobName = jobName
    self.started = started
    self.ended = ended
    self.exitCode = exitCode
    self.stop = stop
    self.counts = counts
    self.shard = shard
    self.host = host
    self.pid = pid
    self.version = version
    self.reportPath = reportPath
  }
}

/// What an upload left behind, and how to take it back.
public struct Receipt: Sendable, Hashable {
  public enum State: String, Sendable, CaseIterable {
    case sent
    /// The answer never came: it may be there or not.
    case unknown
    case deleted
  }
  public var id: String
  public var run: String
  public var job: String
  /// The input's identity.
  public var key: [UInt8]
  public var stage: String
  public var provider: String
  public var link: String?
  /// A secret: whoever has it may delete what was sent.
  public var deleteLink: String?
  public var etag: String?
  /// 32 bytes.
  public var sha256: [UInt8]
  /// Seconds since 1970.
  public var sentAt: Double
  /// Seconds since 1970.
  public var expires: Double?
  public var state: State
  /// Fingerprint of the options it was sent with.
  public var options: [UInt8]

  public init(
    id: String, run: String, job: String, key: [UInt8], stage: String, provider: String, link: String? = nil,
    deleteLink: String? = nil, etag: String? = nil, sha256: [UInt8], sentAt: Double, expires: Double? = nil,
    state: State, options: [UInt8] = []
  ) {
    self.id = id
    self.run = run
    self.job = job
    self.key = key
    self.stage = stage
    self.provider = provider
    self.link = link
    self.deleteLink = deleteLink
    self.etag = etag
    self.sha256 = sha256
    self.sentAt = sentAt
    self.expires = expires
    self.state = state
    self.options = options
  }
}

/// A call that costs, noted before it is made.
public struct PaidCall: Sendable, Hashable {
  public var run: String
  public var job: String
  /// The input's identity.
  public var key: [UInt8]
  public var stage: String
  public var provider: String
  public var account: String
  /// Fingerprint of what is sent.
  public var request: [UInt8]
  /// What it is expected to cost, in the provider's credits.
  public var amount: Double
  /// Seconds since 1970.
  public var began: Double

  public init(
    run: String, job: String, key: [UInt8], stage: String, provider: String, account: String, request: [UInt8],
    amount: Double, began: Double
  ) {
    self.run = run
    self.job = job
    self.key = key
    self.stage = stage
    self.provider = provider
    self.account = account
    self.request = request
    self.amount = amount
    self.began = began
  }

  /// How a call ended.
  public enum Outcome: Sendable, Hashable {
    /// Credits that the provider says it took.
    case charged(Double)
    /// The provider says it took nothing, or was never reached.
    case free
    /// No answer came. Counts as spent what it was expected to cost.
    case unknown
  }
}
