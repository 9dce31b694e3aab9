import Engine
import Glibc
import JobSyntax
import PipelineKit
import TestSupport
import Testing

/// What a Slurm of one machine needs, by the names of Debian's packages slurmctld, slurmd, slurm-client and munge.
private let slurmTools = [
  "/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/bin/sbatch", "/usr/bin/squeue",
  "/usr/bin/scontrol", "/usr/bin/scancel", "/usr/bin/sinfo",
]

/// A cluster of this one machine: authentication, controller and node as processes of the test, with everything they
/// write in one folder and ports that were free.
private final class SlurmCluster {
  let folder = TemporaryFolder()
  private var munge: RunProgram?
  private var controller: RunProgram?
  private var node: RunProgram?
  var settings = RunProgram.Settings()

  /// - Parameter processors: how many tasks run at once.
  init(processors: Int = 2) throws {
    var random = SystemRandomNumberGenerator()
    folder.write((0..<1_024).map { _ in UInt8.random(in: 0...255, using: &random) }, to: "key")
    chmod(folder["key"], 0o400)
    for name in ["munge", "state", "spool"] { folder.makeFolder(name) }
    var name = [CChar](repeating: 0, count: 256)
    gethostname(&name, name.count - 1)
    let full = String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    let host = String(full.prefix { $0 != "." })
    let ports = try Self.freePorts(2)
    folder.write(
      """
      ClusterName=test
      SlurmctldHost=\(host)(127.0.0.1)
      SlurmUser=root
      SlurmdUser=root
      AuthType=auth/munge
      # A task that starts again waits until its old credential has run out.
      AuthInfo=socket=\(folder["munge/socket"]),cred_expire=5
      SlurmctldPort=\(ports[0])
      SlurmdPort=\(ports[1])
      StateSaveLocation=\(folder["state"])
      SlurmdSpoolDir=\(folder["spool"])
      SlurmctldPidFile=\(folder["slurmctld.pid"])
      SlurmdPidFile=\(folder["slurmd.pid"])
      SlurmctldLogFile=\(folder["slurmctld.log"])
      SlurmdLogFile=\(folder["slurmd.log"])
      ProctrackType=proctrack/linuxproc
      TaskPlugin=task/none
      JobAcctGatherType=jobacct_gather/none
      SelectType=select/cons_tres
      SelectTypeParameters=CR_CPU
      SlurmdParameters=config_overrides
      MpiDefault=none
      SwitchType=switch/none
      ReturnToService=2
      MessageTimeout=60
      BatchStartTimeout=120
      KillWait=5
      SchedulerParameters=batch_sched_delay=1,sched_interval=5,bf_interval=5
      NodeName=\(host) NodeAddr=127.0.0.1 CPUs=\(processors) RealMemory=8000 State=UNKNOWN
      PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP

      """, to: "slurm.conf")
    settings.environment = [
      "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF": folder["slurm.conf"], "LC_ALL": "C", "HOME": folder.path,
    ]
    settings.folder = folder.path
    munge = RunProgram(
      [
        "--foreground", "--force", "--key-file=" + folder["key"], "--socket=" + folder["munge/socket"],
        "--pid-file=" + folder["munge/pid"], "--log-file=" + folder["munge/log"],
        "--seed-file=" + folder["munge/seed"],
      ], settings, program: "/usr/sbin/munged")
    try #require(munge?.wait(limit: 30) { access(folder["munge/socket"], F_OK) == 0 } == true, "munged does not start")
    controller = RunProgram(["-D"], settings, program: "/usr/sbin/slurmctld")
    node = RunProgram(["-D", "-N", host], settings, program: "/usr/sbin/slurmd")
    let isReady = wait(limit: 60) { tool("sinfo", "--noheader", "--format=%T") == "idle" }
    try #require(isReady, "the cluster is not ready: \(log)")
  }

  private static func freePorts(_ count: Int) throws -> [Int] {
    var sockets: [Int32] = []
    defer { for descriptor in sockets { close(descriptor) } }
    return try (0..<count).map { _ in
      let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
      sockets.append(descriptor)
      var address = sockaddr_in()
      address.sin_family = sa_family_t(AF_INET)
      address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
      var length = socklen_t(MemoryLayout<sockaddr_in>.size)
      let isBound = withUnsafeMutablePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
          bind(descriptor, pointer, length) == 0 && getsockname(descriptor, pointer, &length) == 0
        }
      }
      try #require(isBound, "no free port")
      return Int(UInt16(bigEndian: address.sin_port))
    }
  }

  /// Runs one of Slurm's commands; what it printed, without the closing line feed.
  @discardableResult
  func tool(_ name: String, _ arguments: String...) -> String {
    let result = RunProgram.run(arguments, settings, program: "/usr/bin/" + name, limit: 60)
    return String(result.output.reversed().drop { $0 == "\n" }.reversed())
  }

  /// Waits until something is so, while the controller lives.
  func wait(limit: Double, until condition: () -> Bool) -> Bool {
    controller?.wait(limit: limit, until: condition) ?? false
  }

  var log: String {
    ["slurmctld.log", "slurmd.log"].map { name in
      "\n\(name):\n" + String(decoding: (folder.read(name) ?? []).suffix(2_000), as: UTF8.self)
    }.joined()
  }

  /// Ends all tasks, then the cluster.
  func end() {
    tool("scancel", "--user=root")
    _ = wait(limit: 30) { tool("squeue", "--noheader").isEmpty }
    for program in [node, controller, munge] {
      program?.send(SIGTERM)
      _ = program?.finish(limit: 15)
    }
  }
}

@Suite(
  .serialized,
  .enabled(
    if: slurmTools.allSatisfy { access($0, X_OK) == 0 },
    "Slurm is not installed (slurmctld, slurmd, slurm-client, munge)"),
  .enabled(if: getuid() == 0, "a Slurm of its own needs root"))
struct SlurmTests {
  /// The processes of the program that work on one task of an array.
  private static func processes(task: Int) -> [pid_t] {
    guard let folder = opendir("/proc") else { return [] }
    defer { closedir(folder) }
    var found: [pid_t] = []
    while let entry = readdir(folder) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      guard let process = pid_t(name), let environment = TemporaryFolder.read("/proc/\(name)/environ"),
        environment.split(separator: 0).contains(where: { $0.elementsEqual("SLURM_ARRAY_TASK_ID=\(task)".utf8) }),
        let words = TemporaryFolder.read("/proc/\(name)/cmdline")?.split(separator: 0),
        words.first?.elementsEqual(RunProgram.builtProgram.utf8) == true
      else { continue }
      found.append(process)
    }
    return found
  }

  /// Four tasks, two at a time. One is killed when it has written its first picture, and Slurm starts it again.
  @Test func anArrayOfWhichOneTaskIsKilled() throws {
    let scene = try Scene(pictures: 80, side: 96)
    scene.job(encode: Scene.slowEncode, to: "out/${item.index}-${item.stem}.${ext}")
    let single = scene.run("run", "job.json", "--quiet")
    #expect(single.exitCode == 0, "\(single.error)")
    var expected: [String: [UInt8]] = [:]
    for name in scene.folder.tree() where name.hasPrefix("out/") && !name.hasSuffix("/") {
      expected[name] = scene.folder.read(name)
      unlink(scene.folder[name])
    }
    #expect(expected.count == 80)

    let cluster = try SlurmCluster()
    defer { cluster.end() }
    var settings = cluster.settings
    settings.folder = scene.folder.path
    settings.environment?["PIPELINE"] = RunProgram.builtProgram
    settings.environment?["PIPELINE_HOME"] = getenv("PIPELINE_HOME").map { String(cString: $0) }
    // Its own state: the run above has done everything already.
    unlink(scene.folder["job.json"])
    scene.job(encode: Scene.slowEncode, to: "out/${item.index}-${item.stem}.${ext}")
    rename(scene.folder[".pipeline"], scene.folder["state-of-single"])
    let submitted = RunProgram.run(
      ["job.json", "4%2"], settings, program: DocumentationTests.package + "/pipelines/cluster/slurm.sh")
    #expect(submitted.exitCode == 0, "\(submitted.error)")
    let array = try #require(submitted.output.split(separator: " ").dropFirst().first.flatMap { Int($0.dropLast()) })

    let victim = try #require(Shard(index: 2, count: 4))
    let own = (0..<80).filter { victim.contains(PathBytes("in/p\($0 / 10)\($0 % 10).jpg")) }
    let outputs = own.map { "out/\($0)-p\($0 / 10)\($0 % 10).avif" }
    var killed: pid_t?
    let wasKilled = cluster.wait(limit: 240) {
      guard outputs.contains(where: { access(scene.folder[$0], F_OK) == 0 }),
        let process = Self.processes(task: 2).first
      else { return false }
      kill(process, SIGKILL)
      killed = process
      return true
    }
    let left = outputs.count { access(scene.folder[$0], F_OK) != 0 }
    #expect(wasKilled && killed != nil, "\(cluster.log)")
    #expect(left > 0)

    let report = "reports/\(array)/report.json"
    let isOver = cluster.wait(limit: 240) { cluster.tool("squeue", "--noheader").isEmpty }
    let state = cluster.tool("scontrol", "--oneliner", "show", "job", "\(array)_2")
    let logs = scene.folder.tree().filter { $0.hasSuffix(".log") }.map { name in
      "\n\(name):\n" + String(decoding: scene.folder.read(name) ?? [], as: UTF8.self)
    }.joined()
    #expect(isOver, "\(logs)\(cluster.log)")
    #expect(state.contains("Restarts=1"), "\(state)\(logs)")

    for (name, bytes) in expected { #expect(scene.folder.read(name) == bytes, "\(name)") }
    try #require(scene.folder.read(report) != nil, "\(logs)")
    let merged = try scene.report(report)
    #expect(merged["run"]?["exitCode"]?.integer == 0)
    #expect(merged["run"]?["runs"]?.arrayValue?.count == 4)
    let items = try #require(merged["items"]?.arrayValue)
    #expect(items.compactMap { $0["index"]?.integer } == Array(0..<80))
    for item in items {
      let status = item["status"]?.stringValue ?? ""
      #expect(["done", "skipped"].contains(status), "\(status)")
    }
  }
}
