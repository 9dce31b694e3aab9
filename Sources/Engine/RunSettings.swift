import CSystem
import Glibc

/// What this machine offers a run.
public enum Machine {
  /// Processors this process may use.
  public static var processors: Int {
    let allowed = Int(csystem_allowed_processors())
    return allowed > 0 ? allowed : max(1, Int(sysconf(Int32(_SC_NPROCESSORS_ONLN))))
  }

  /// Bytes of memory this process may use: the machine's, or what `ulimit -v` leaves of it.
  public static var memory: Int {
    let physical = Int(sysconf(Int32(_SC_PHYS_PAGES))) * Int(sysconf(Int32(_SC_PAGESIZE)))
    var limit = rlimit()
    guard getrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &limit) == 0, limit.rlim_cur < UInt(Int.max) else {
      return physical
    }
    return min(physical, Int(limit.rlim_cur))
  }

  /// Seconds of processor time used so far, those of children that have ended included, and the most bytes of memory
  /// that one process held at one time.
  static var usage: (cpuSeconds: Double, peakBytes: Int) {
    var usage = rusage()
    getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    let seconds = Double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
    let micros = Double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec)
    var children = rusage()
    getrusage(__rusage_who_t(RUSAGE_CHILDREN.rawValue), &children)
    let childSeconds = Double(children.ru_utime.tv_sec + children.ru_stime.tv_sec)
    let childMicros = Double(children.ru_utime.tv_usec + children.ru_stime.tv_usec)
    return (
      seconds + childSeconds + (micros + childMicros) / 1e6, max(usage.ru_maxrss, children.ru_maxrss) * 1024
    )
  }

  /// Keeps the allocator from giving every thread an arena of its own, which never shrinks again: memory would follow
  /// the number of threads instead of the work.
  public static func boundAllocator(workers: Int) {
    csystem_bound_allocator(Int32(max(2, workers)), 512 << 10)
  }
}

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
