import CSystem
import Glibc

/// The limits that hold a process to a part of its machine, and where each comes from.
///
/// The quotas of control groups count in every group from the process's own up to the top that can be seen, for version
/// 1 and version 2 (Linux: `Documentation/admin-guide/cgroup-v1`, `cgroup-v2.rst`). In a container the top is the
/// container's own group.
public struct MachineLimits: Sendable, Hashable {
  public struct Processors: Sendable, Hashable {
    /// How many, in parts too: a quota of 150 ms in each 100 ms is 1.5.
    public var count: Double
    /// What sets the limit, for people.
    public var source: String
  }

  public struct Memory: Sendable, Hashable {
    /// What `bytes` counts.
    public enum Kind: Sendable, Hashable {
      /// The memory of the machine.
      case machine
      /// Addresses in use, those without memory behind them too.
      case addresses
      /// The memory of a control group, with those below it.
      case group
    }
    public var kind: Kind
    public var bytes: Int
    /// What is used of them now, by all whom the limit holds; what the system can take back at once is not counted.
    public var used: Int
    /// What sets the limit, for people.
    public var source: String
  }

  public var processors: [Processors]
  public var memory: [Memory]

  /// How many workers make sense: the least limit, rounded to the nearest number, halves up, and at least 1. With a
  /// quota of 1.5 two workers keep it used up where one would leave a third of it; with 1.4 the second would mostly
  /// wait.
  public var processorCount: Int {
    max(1, Int(clamping: Int64(((processors.map(\.count).min() ?? 1) + 0.5).rounded(.down))))
  }

  /// The least limit of memory, in bytes.
  public var memoryBytes: Int { memory.map(\.bytes).min() ?? 0 }

  /// Bytes that are still free under the limit that leaves least.
  ///
  /// - Parameter threads: how many threads are still to be started; they count where addresses are limited.
  func memoryLeft(forThreads threads: Int) -> Int {
    max(0, memory.map { left($0, forThreads: threads) }.min() ?? 0)
  }

  /// What pictures in flight may hold where a job says nothing: half of what is free under the limit that leaves least,
  /// at least 64 MiB.
  ///
  /// - Parameter threads: how many threads are still to be started. Under a limit of address space each takes room for
  ///   its stack, whether it uses it or not.
  func memoryForPictures(threads: Int) -> Int { max(64 << 20, memoryLeft(forThreads: threads) / 2) }

  private func left(_ limit: Memory, forThreads threads: Int) -> Int {
    limit.bytes - limit.used - (limit.kind == .addresses ? threads * Self.bytesPerThread : 0)
  }

  /// Glibc's default for a thread's stack.
  private static let bytesPerThread = 8 << 20

  /// The limit that leaves least and that ends the process, or its calls for memory, where it is passed: `bytes` is what
  /// it leaves. Nil where there is none.
  func bound(forThreads threads: Int) -> Memory? {
    memory.filter { $0.kind != .machine }.map { limit in
      var limit = limit
      limit.bytes = max(0, left(limit, forThreads: threads))
      return limit
    }.min { $0.bytes < $1.bytes }
  }

  // MARK: Reading

  /// What the process itself is told by calls, not by files.
  struct Own: Sendable {
    /// Processors of its affinity.
    var processors: Int
    /// The machine's memory in bytes.
    var memory: Int
    /// `RLIMIT_AS` in bytes; nil for none.
    var addresses: Int?

    static var current: Own {
      let allowed = Int(csystem_allowed_processors())
      var limit = rlimit()
      let isLimited = getrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &limit) == 0 && limit.rlim_cur < UInt(Int.max)
      return Own(
        processors: allowed > 0 ? allowed : max(1, Int(sysconf(Int32(_SC_NPROCESSORS_ONLN)))),
        memory: Int(sysconf(Int32(_SC_PHYS_PAGES))) * Int(sysconf(Int32(_SC_PAGESIZE))),
        addresses: isLimited ? Int(limit.rlim_cur) : nil)
    }
  }

  /// The limits of this process.
  public static func read() -> MachineLimits { read(root: "") }

  /// - Parameter root: a folder that stands for `/`, without a slash at its end. Files that are missing limit nothing.
  static func read(root: String, own: Own = .current) -> MachineLimits {
    var limits = MachineLimits(
      processors: [Processors(count: Double(own.processors), source: "affinity")],
      memory: [
        Memory(kind: .machine, bytes: own.memory, used: used(ofMachine: own.memory, root), source: "the machine")
      ])
    if let addresses = own.addresses {
      let pages = text(root + "/proc/self/statm").split(separator: " ").first.flatMap { Int($0) } ?? 0
      limits.memory.append(
        Memory(
          kind: .addresses, bytes: addresses, used: pages * Int(sysconf(Int32(_SC_PAGESIZE))), source: "ulimit -v"))
    }
    for (group, version) in groups("cpu", root) { limits.processors += quota(group, version, root) }
    for (group, version) in groups("memory", root) {
      limits.memory += version == .two ? memoryTwo(group, root) : memoryOne(group, root, machine: own.memory)
    }
    return limits
  }

  private static func used(ofMachine total: Int, _ root: String) -> Int {
    let free = text(root + "/proc/meminfo").split(separator: "\n").first { $0.hasPrefix("MemAvailable:") }
    let kilobytes = free?.split(separator: " ").dropFirst().first.flatMap { Int($0) }
    return kilobytes.map { max(0, total - $0 << 10) } ?? 0
  }

  // MARK: Groups

  private enum Version { case one, two }

  /// The folders of the groups that the process is in, for one controller: its own first, then those above it.
  private static func groups(_ controller: Substring, _ root: String) -> [(folder: String, version: Version)] {
    // `4:cpu,cpuacct:/path` for version 1; `0::/path` for version 2.
    var paths: (one: String?, two: String?)
    for line in text(root + "/proc/self/cgroup").split(separator: "\n") {
      let parts = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
      guard parts.count == 3 else { continue }
      if parts[1].split(separator: ",").contains(controller) {
        paths.one = String(parts[2])
      } else if parts[0] == "0", parts[1].isEmpty {
        paths.two = String(parts[2])
      }
    }
    var result: [(String, Version)] = []
    // The first mount of a hierarchy is as good as any other.
    var found: (one: Bool, two: Bool) = (false, false)
    for line in text(root + "/proc/self/mountinfo").split(separator: "\n") {
      // `ID PARENT MAJOR:MINOR ROOT PLACE OPTIONS … - TYPE SOURCE SUPER-OPTIONS`.
      let fields = line.split(separator: " ")
      guard let dash = fields.firstIndex(of: "-"), dash >= 5, dash + 3 < fields.count else { continue }
      let (top, place) = (unescaped(fields[3]), unescaped(fields[4]))
      if fields[dash + 1] == "cgroup2", let path = paths.two, !found.two {
        found.two = true
        result += folders(of: path, top: top, at: place).map { ($0, .two) }
      } else if fields[dash + 1] == "cgroup", let path = paths.one, !found.one,
        fields[dash + 3].split(separator: ",").contains(controller)
      {
        found.one = true
        result += folders(of: path, top: top, at: place).map { ($0, .one) }
      }
    }
    return result
  }

  /// - Parameters:
  ///   - path: the group, as `/proc/self/cgroup` has it.
  ///   - top: the group that is mounted, and where.
  private static func folders(of path: String, top: String, at place: String) -> [String] {
    let names = path.split(separator: "/")
    let above = top.split(separator: "/")
    // In a container with the host's `/proc/self/cgroup`, or outside of its own name space, the group is what is mounted.
    guard names.starts(with: above), !names.contains("..") else { return [place] }
    let below = names.dropFirst(above.count)
    return (0...below.count).reversed().map { ([place] + below.prefix($0).map(String.init)).joined(separator: "/") }
  }

  /// Spaces and the like are written `\040`.
  private static func unescaped(_ field: Substring) -> String {
    var bytes: [UInt8] = []
    var rest = Array(field.utf8)[...]
    while let byte = rest.popFirst() {
      if byte == UInt8(ascii: "\\"), rest.count >= 3,
        let value = UInt8(String(decoding: rest.prefix(3), as: UTF8.self), radix: 8)
      {
        bytes.append(value)
        rest = rest.dropFirst(3)
      } else {
        bytes.append(byte)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  // MARK: Files of groups

  private static func quota(_ group: String, _ version: Version, _ root: String) -> [Processors] {
    let name: String
    let words: [Substring]
    switch version {
    case .two:
      name = "cpu.max"
      words = text(root + group + "/cpu.max").split(whereSeparator: \.isWhitespace)
    case .one:
      name = "cpu.cfs_quota_us"
      words =
        text(root + group + "/cpu.cfs_quota_us").split(whereSeparator: \.isWhitespace)
        + text(root + group + "/cpu.cfs_period_us").split(whereSeparator: \.isWhitespace)
    }
    // `max`, and -1 in version 1, for none.
    guard words.count == 2, let quota = Double(words[0]), let period = Double(words[1]), quota > 0, period > 0 else {
      return []
    }
    return [Processors(count: quota / period, source: "\(name) of \(group)")]
  }

  private static func memoryTwo(_ group: String, _ root: String) -> [Memory] {
    let limits = ["memory.max", "memory.high"].compactMap { name in
      number(root + group + "/" + name).map { (name, $0) }
    }
    guard !limits.isEmpty else { return [] }
    let used = used(number(root + group + "/memory.current"), "inactive_file", root + group)
    return limits.map { Memory(kind: .group, bytes: $1, used: used, source: "\($0) of \(group)") }
  }

  private static func memoryOne(_ group: String, _ root: String, machine: Int) -> [Memory] {
    let used = used(number(root + group + "/memory.usage_in_bytes"), "total_inactive_file", root + group)
    // Groups above that cannot be seen are in this one.
    let limits = [
      ("memory.limit_in_bytes", number(root + group + "/memory.limit_in_bytes")),
      ("hierarchical_memory_limit", statistic("hierarchical_memory_limit", root + group)),
    ]
    return limits.compactMap { name, bytes in
      // "None" is the largest number of whole pages.
      guard let bytes, bytes < machine else { return nil }
      return Memory(kind: .group, bytes: bytes, used: min(used, bytes), source: "\(name) of \(group)")
    }
  }

  /// The kernel drops file pages nobody looks at before it runs short.
  private static func used(_ all: Int?, _ droppable: String, _ group: String) -> Int {
    max(0, (all ?? 0) - (statistic(droppable, group) ?? 0))
  }

  private static func statistic(_ name: String, _ group: String) -> Int? {
    for line in text(group + "/memory.stat").split(separator: "\n") {
      let words = line.split(separator: " ")
      if words.count == 2, words[0] == name { return Int(words[1]) }
    }
    return nil
  }

  /// Nil for `max`, for what is no number, and where there is no such file.
  private static func number(_ path: String) -> Int? {
    text(path).split(whereSeparator: \.isWhitespace).first.flatMap { Int($0) }
  }

  /// What a small file holds; empty where it cannot be read.
  static func text(_ path: String) -> String {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return "" }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 1 << 14)
    while bytes.count < 1 << 22 {
      let count = Glibc.read(descriptor, &piece, piece.count)
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { break }
      bytes += piece[..<count]
    }
    return String(decoding: bytes, as: UTF8.self)
  }
}
