import CSystem
import Glibc

/// What this machine offers a run.
public enum Machine {
  /// Processors this process may use: those of its affinity, or fewer where a control group holds it to a share of
  /// them.
  public static var processors: Int { MachineLimits.read().processorCount }

  /// Bytes of memory this process may use: the machine's, or what `ulimit -v` or a control group leaves of it.
  public static var memory: Int { MachineLimits.read().memoryBytes }

  /// Seconds of processor time used so far, those of children that have ended included.
  static var cpuSeconds: Double {
    [RUSAGE_SELF, RUSAGE_CHILDREN].reduce(0) { sum, whose in
      let usage = usage(of: whose)
      return sum + Double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
        + Double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6
    }
  }

  /// The most bytes of memory that one process, this or a child that has ended, held at one time.
  ///
  /// - Parameter tookUp: whether this program has taken the place of one that crashed in the same run, whose memory
  ///   counts too.
  static func peakBytes(tookUp: Bool) -> Int {
    // The kernel's count begins with the memory of whatever program this process was before, or was started by.
    let own = (tookUp ? nil : highWaterMark) ?? usage(of: RUSAGE_SELF).ru_maxrss
    return max(own, usage(of: RUSAGE_CHILDREN).ru_maxrss) * 1024
  }

  private static func usage(of whose: __rusage_who) -> rusage {
    var usage = rusage()
    getrusage(__rusage_who_t(whose.rawValue), &usage)
    return usage
  }

  /// The most that this process has held as this program, in KiB; nil where the kernel does not tell.
  private static var highWaterMark: Int? {
    MachineLimits.text("/proc/self/status").split(separator: "\n").first { $0.hasPrefix("VmHWM:") }
      .flatMap { Int($0.filter(\.isNumber)) }
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
