/// What the command line adds to a job.
public struct RunOptions: Sendable {
  /// Compute workers; one for each processor when nil.
  public var jobs: Int?
  /// The part of the inputs to work on; all of them when nil.
  public var shard: Shard?
  /// Stop after the first failure, whatever the job says.
  public var failFast = false
  /// Whether the report's items are kept.
  public var keepsReport = false
  /// Whether the run outlives crashes of the program, and calls that do not return: for the one run of a command line
  /// program, which is started again with its own arguments. See `JobRun.keepJournal`.
  public var isJournaled = false
  /// The program's version, for the report.
  public var programVersion = ""

  public init() {}
}
