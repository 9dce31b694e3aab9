import JobSyntax
import PipelineKit

/// What the report says of a run.
struct RunRecord: Sendable {
  let run: JobRun
  let outcome: RunOutcome
  let versions: [(String, JSONText)]

  func json(and facts: [(String, JSONText)]) -> JSONText { Self.shape.text(of: self, and: facts) }

  static let shape = RecordShape<RunRecord>(
    [
      .init("id", .text, "The run's name in the ledger.") { .string($0.run.values.runID) },
      .init("job", .text, "The job's name.") { .string($0.run.job.name) },
      .init("file", .text, "The job file as it was given.") { .string($0.run.job.file) },
      .init("started", .timestamp, "When it began.") { .string(RunClock.timestamp(of: $0.run.started)) },
      .init("wallSeconds", .number, "From the start of the first picture to the end of the last.") {
        .number(rounded($0.outcome.wallSeconds))
      },
      .init("cpuSeconds", .number, "Processor time of the process.") { .number(rounded($0.outcome.cpuSeconds)) },
      .init("peakBytes", .integer, "The most memory that the process held.") { .integer($0.outcome.peakBytes) },
      .init("workers", .integer, "Compute workers.") { .integer($0.outcome.workers) },
      .init("crashes", .integer, "How often the program crashed and took up again.") { .integer($0.outcome.crashes) },
      .init("versions", .named(.text), "Of this program and of the libraries that made the pictures.") {
        .object($0.versions)
      },
      .init(optional: "shard", .object(shardShape.schema), "Which part of the inputs the run was given.") { record in
        record.run.options.shard.map { shardShape.text(of: ($0, record.outcome.list)) }
      },
      .init(
        nullable: "stop", .text, "Why it stopped before its last picture: signal N, deadline or failure."
      ) { $0.outcome.stop.map { .string($0.text) } },
      .init("errors", .list(.object(problemShape.schema)), "What went wrong when stages finished.") {
        .array($0.outcome.finishErrors.map { problemShape.text(of: $0) })
      },
      .init(nullable: "error", .object(problemShape.schema), "Why no picture could be started at all.") {
        $0.outcome.startError.map { problemShape.text(of: $0) }
      },
      .init("exitCode", .integer, "What the program ended with.") { .integer(Int($0.outcome.exitCode)) },
      .init("counts", .object(ItemCounts.shape.schema), "How many pictures ended how.") { $0.outcome.counts.json },
    ], others: .any)

  static let shardShape = RecordShape<(shard: Shard, list: InputsDigest)>([
    .init("index", .integer, "From 1.") { .integer($0.shard.index) },
    .init("count", .integer, "Shards in all.") { .integer($0.shard.count) },
    .init("inputs", .integer, "Pictures of all shards.") { .integer($0.list.count) },
    .init("inputsDigest", .text, "Stands for the names of all of them.") { .string($0.list.digest) },
  ])

  static let problemShape = RecordShape<StageError>([
    .init("code", .text, "A stable name for this kind of error.") { .string($0.code) },
    .init("message", .text, "What went wrong, with its cause and what to try.") { .string($0.description) },
  ])

  private static func rounded(_ seconds: Double) -> Double { (seconds * 1000).rounded() / 1000 }
}

/// What the report of joined shards says of them.
struct MergedRunRecord {
  var job: String
  var file: JSONText
  var started: String?
  var wallSeconds: Double
  var cpuSeconds: Double
  var peakBytes: Int
  var workers: Int
  var crashes: Int
  var versions: JSONText
  var shards: Int
  var inputs: Int
  var stop: JSONText
  var errors: [JSONText]
  var error: JSONText
  var exitCode: Int32
  var counts: ItemCounts
  var runs: [JSONText]

  var json: JSONText { Self.shape.text(of: self) }

  static let shape = RecordShape<MergedRunRecord>([
    .init("job", .text, "The job's name.") { .string($0.job) },
    .init(nullable: "file", .text, "The job file as the first shard was given it.") { $0.file },
    .init(nullable: "started", .timestamp, "When the first shard began.") { $0.started.map { .string($0) } },
    .init("wallSeconds", .number, "Of the longest shard.") { .number($0.wallSeconds) },
    .init("cpuSeconds", .number, "Of all shards.") { .number($0.cpuSeconds) },
    .init("peakBytes", .integer, "Of the shard that held most.") { .integer($0.peakBytes) },
    .init("workers", .integer, "Of all shards.") { .integer($0.workers) },
    .init("crashes", .integer, "Of all shards.") { .integer($0.crashes) },
    .init(nullable: "versions", .named(.text), "Of the first shard.") { $0.versions },
    .init("shards", .integer, "How many reports were joined.") { .integer($0.shards) },
    .init("inputs", .integer, "Pictures of all shards.") { .integer($0.inputs) },
    .init(nullable: "stop", .text, "Why the shard that gave the exit code stopped early.") { $0.stop },
    .init("errors", .list(.object(RunRecord.problemShape.schema)), "What went wrong when stages finished.") {
      .array($0.errors)
    },
    .init(
      nullable: "error", .object(RunRecord.problemShape.schema), "Why the first shard that could not start could not."
    ) { $0.error },
    .init("exitCode", .integer, "What one run of all shards would have ended with.") { .integer(Int($0.exitCode)) },
    .init("counts", .object(ItemCounts.shape.schema), "How many pictures ended how.") { $0.counts.json },
    .init("runs", .list(.object(.object([("$ref", "#/$defs/run")]))), "What each shard says of itself.") {
      .array($0.runs)
    },
  ])
}

/// The JSON Schema of reports.
public enum ReportSchema {
  public static var schema: JSONText {
    .object([
      ("$schema", "https://json-schema.org/draft/2020-12/schema"),
      ("title", "pipeline report"),
      ("description", "What `pipeline run --report` and `pipeline report merge` write."),
      ("type", "object"),
      (
        "properties",
        .object([
          (
            "run",
            .object([
              ("description", "The run, or the runs of a job's shards, joined."),
              (
                "anyOf",
                .array([.object([("$ref", "#/$defs/run")]), .object([("$ref", "#/$defs/mergedRun")])])
              ),
            ])
          ),
          (
            "items",
            .object([
              ("description", "The pictures, in input order."), ("type", "array"),
              ("items", .object([("$ref", "#/$defs/item")])),
            ])
          ),
        ])
      ),
      ("required", .array(["run", "items"])),
      ("additionalProperties", false),
      (
        "$defs",
        .object([
          ("run", RunRecord.shape.schema), ("mergedRun", MergedRunRecord.shape.schema),
          ("item", ItemRecord.shape.schema),
        ])
      ),
    ])
  }
}
