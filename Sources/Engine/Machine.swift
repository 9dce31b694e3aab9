import CSystem
import Glibc

/// What this machine offers a run.
public enum Machine {
  /// Processors this process may use: those of its affinity, or fewer where a control group holds it to a share of
  /// them.
  public static var processors: Int { MachineLimits.read().processorCount }

  /// Bytes of memory this process may use: the machine's, or what `ulimit -v` or a control group leaves of it.
  public static var memory: Int { MachineLimits.read().memoryBytes }

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

extension Machine {
  /// The name this machine has in its network; empty where it has none.
  public static var hostName: String {
    var buffer = [CChar](repeating: 0, count: 256)
    guard gethostname(&buffer, buffer.count - 1) == 0 else { return "" }
    return String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  public static var processID: Int32 { getpid() }
}
