import Glibc
import TestSupport
import Testing

@testable import Engine

/// Fixture trees as the systems named have them; the numbers are worked out by hand.
@Suite struct MachineLimitsTests {
  private let folder = TemporaryFolder()
  private static let gib = 1 << 30

  private func read(addresses: Int? = nil, processors: Int = 8) -> MachineLimits {
    MachineLimits.read(
      root: folder.path, own: .init(processors: processors, memory: 64 * Self.gib, addresses: addresses))
  }

  private func write(_ files: [(String, String)]) { for (path, text) in files { folder.write(text, to: path) } }

  private static let mountTwo = "30 25 0:26 / /sys/fs/cgroup rw,nosuid,noexec - cgroup2 cgroup2 rw,nsdelegate\n"

  @Test func nothingToBeReadLimitsNothing() {
    let limits = read()
    #expect(limits.processorCount == 8)
    #expect(limits.memoryBytes == 64 * Self.gib)
    #expect(limits.memory.map(\.source) == ["the machine"])
  }

  /// A service in a slice in a slice: each group above may be the narrowest.
  @Test func everyGroupAboveCounts() {
    let service = "sys/fs/cgroup/system.slice/jobs.slice/night.service"
    write([
      ("proc/self/cgroup", "0::/system.slice/jobs.slice/night.service\n"), ("proc/self/mountinfo", Self.mountTwo),
      (service + "/cpu.max", "max 100000\n"), (service + "/memory.max", "8589934592\n"),
      (service + "/memory.high", "max\n"), (service + "/memory.current", "1073741824\n"),
      (service + "/memory.stat", "anon 1\nfile 900\ninactive_file 73741824\n"),
      ("sys/fs/cgroup/system.slice/jobs.slice/cpu.max", "350000 100000\n"),
      ("sys/fs/cgroup/system.slice/jobs.slice/memory.max", "max\n"),
      ("sys/fs/cgroup/system.slice/jobs.slice/memory.high", "2147483648\n"),
      ("sys/fs/cgroup/system.slice/jobs.slice/memory.current", "2000000000\n"),
      ("sys/fs/cgroup/system.slice/cpu.max", "600000 100000\n"),
    ])
    let limits = read()
    #expect(limits.processors.map(\.count) == [8, 3.5, 6])
    // 3.5 is rounded up.
    #expect(limits.processorCount == 4)
    #expect(limits.memoryBytes == 2_147_483_648)
    #expect(
      limits.memory.map(\.source) == [
        "the machine", "memory.max of /sys/fs/cgroup/system.slice/jobs.slice/night.service",
        "memory.high of /sys/fs/cgroup/system.slice/jobs.slice",
      ])
    #expect(limits.memory[1].used == 1_000_000_000)
    #expect(limits.memoryLeft(forThreads: 100) == 147_483_648)
  }

  @Test(arguments: [
    ("10000 100000", 1), ("140000 100000", 1), ("149999 100000", 1), ("150000 100000", 2), ("200000 100000", 2),
    ("75000 50000", 2), ("2000000 100000", 8), ("max 100000", 8), ("0 100000", 8), ("nonsense", 8), ("", 8),
  ])
  func quotasAreRoundedHalvesUp(_ text: String, _ count: Int) {
    write([
      ("proc/self/cgroup", "0::/\n"), ("proc/self/mountinfo", Self.mountTwo), ("sys/fs/cgroup/cpu.max", text + "\n"),
    ])
    #expect(read().processorCount == count)
  }

  /// Version 2 with a name space of its own: the container's group is the top.
  @Test func dockerVersionTwo() {
    write([
      ("proc/self/cgroup", "0::/\n"),
      (
        "proc/self/mountinfo",
        "601 600 0:30 / /proc rw - proc proc rw\n733 732 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
      ),
      ("sys/fs/cgroup/cpu.max", "150000 100000\n"), ("sys/fs/cgroup/memory.max", "1610612736\n"),
      ("sys/fs/cgroup/memory.current", "100000000\n"),
    ])
    let limits = read()
    #expect(limits.processorCount == 2)
    #expect(limits.memoryBytes == 1_610_612_736)
    #expect(limits.memoryLeft(forThreads: 0) == 1_510_612_736)
  }

  private static let mountOne = """
    31 30 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro shared:9 master:3 - cgroup cgroup rw,cpu,cpuacct
    32 30 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory

    """

  /// Version 1: only the container's own group is mounted, and "none" is a huge number.
  @Test func dockerVersionOne() {
    write([
      ("proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n"),
      ("proc/self/mountinfo", Self.mountOne),
      ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n"),
      ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
      ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
      ("sys/fs/cgroup/memory/memory.usage_in_bytes", "600000000\n"),
      (
        "sys/fs/cgroup/memory/memory.stat",
        "cache 5\nhierarchical_memory_limit 1073741824\ntotal_inactive_file 100000000\n"
      ),
    ])
    let limits = read()
    #expect(limits.processorCount == 3)
    // A group above that the container cannot see.
    #expect(limits.memoryBytes == 1_073_741_824)
    #expect(limits.memory.count == 2)
    #expect(limits.memoryLeft(forThreads: 0) == 573_741_824)
  }

  /// The host's path in a container that has another group mounted at its top.
  @Test func aPathThatIsNotMountedIsTheTop() {
    write([
      ("proc/self/cgroup", "5:memory:/kubepods/pod1/xyz\n4:cpu,cpuacct:/../other\n"),
      ("proc/self/mountinfo", Self.mountOne),
      ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000\n"),
      ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
      ("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"),
    ])
    let limits = read()
    #expect(limits.processorCount == 1)
    #expect(limits.memoryBytes == 536_870_912)
  }

  /// Version 1 without a quota says -1.
  @Test func versionOneWithoutLimits() {
    write([
      ("proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n"),
      ("proc/self/mountinfo", Self.mountOne),
      ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
      ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
      ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
      ("sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 9223372036854771712\n"),
    ])
    let limits = read()
    #expect(limits.processorCount == 8)
    #expect(limits.memoryBytes == 64 * Self.gib)
  }

  /// Both versions mounted, the controllers with version 1; a mount point with a space in its name.
  @Test func hybrid() {
    write([
      ("proc/self/cgroup", "9:memory:/user/1000\n2:cpu:/user/1000\n0::/user.slice/session.scope\n"),
      (
        "proc/self/mountinfo",
        """
        41 40 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
        42 40 0:32 / /sys/fs/my\\040group/memory rw - cgroup cgroup rw,memory
        43 40 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu

        """
      ),
      ("sys/fs/cgroup/cpu/user/1000/cpu.cfs_quota_us", "-1\n"),
      ("sys/fs/cgroup/cpu/user/1000/cpu.cfs_period_us", "100000\n"),
      ("sys/fs/cgroup/cpu/user/cpu.cfs_quota_us", "50000\n"),
      ("sys/fs/cgroup/cpu/user/cpu.cfs_period_us", "100000\n"),
      ("sys/fs/my group/memory/user/1000/memory.limit_in_bytes", "3221225472\n"),
      ("sys/fs/my group/memory/user/memory.limit_in_bytes", "4294967296\n"),
      ("sys/fs/cgroup/unified/user.slice/session.scope/cgroup.procs", "1\n"),
    ])
    let limits = read()
    // Half a processor is one worker.
    #expect(limits.processors.map(\.count) == [8, 0.5])
    #expect(limits.processorCount == 1)
    #expect(limits.memory.map(\.bytes) == [64 * Self.gib, 3_221_225_472, 4_294_967_296])
    #expect(limits.memory[1].source == "memory.limit_in_bytes of /sys/fs/my group/memory/user/1000")
  }

  @Test func linesThatAreCutLimitNothing() {
    write([
      ("proc/self/cgroup", "0:\nmemory\n::\n"), ("proc/self/mountinfo", "30 25\n- cgroup2\n30 25 0:26 / /x rw - cgroup2\n"),
    ])
    #expect(read().processorCount == 8)
  }

  /// Addresses count without memory behind them, and every thread takes some.
  @Test func addressesAreCountedWithThreads() {
    write([
      ("proc/self/statm", "65536 5000 3000 1 0 9000 0\n"),
      ("proc/meminfo", "MemTotal: 67108864 kB\nMemFree: 1 kB\nMemAvailable: 33554432 kB\n"),
    ])
    let limits = read(addresses: 1536 << 20)
    #expect(limits.memoryBytes == 1536 << 20)
    let page = Int(sysconf(Int32(_SC_PAGESIZE)))
    #expect(limits.memoryLeft(forThreads: 10) == 1536 << 20 - 65536 * page - 80 << 20)
    #expect(limits.memory[0].used == 32 * Self.gib)
    #expect(read(addresses: 100 << 20).memoryLeft(forThreads: 50) == 0)
  }

  /// What this machine itself says is at least not out of the world.
  @Test func thisMachine() {
    let limits = MachineLimits.read()
    #expect(limits.processorCount >= 1)
    #expect(limits.processorCount <= Int(sysconf(Int32(_SC_NPROCESSORS_CONF))))
    #expect(limits.memoryBytes > 64 << 20)
    #expect(limits.memoryLeft(forThreads: 0) < limits.memoryBytes)
  }
}
