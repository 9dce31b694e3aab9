import Glibc
import Imaging
import Inference
import JobSyntax
import TestSupport
import Testing

/// Runs as cron, CI and scripts start them.
@Suite struct UnattendedTests {
  /// All that cron can lack at once: environment, home, terminal, standard input, a folder to be in, a locale, and a
  /// folder for temporary files.
  @Test(arguments: [[:], ["LC_ALL": "C", "TMPDIR": "/proc/nowhere"]] as [[String: String]])
  func nothingButTheJob(_ environment: [String: String]) throws {
    let scene = try Scene(pictures: 2)
    scene.folder.write(scene.folder.read("in/p00.jpg") ?? [], to: "in/grün 猫.jpg")
    let job = scene.job()
    var settings = RunProgram.Settings()
    settings.folder = "/"
    settings.environment = environment
    settings.closed = [0]
    let result = RunProgram.run(["run", job, "--report", scene.folder["report.json"]], settings)
    #expect(result.exitCode == 0, "\(result.error)")
    try check(try scene.report(), exitCode: 0, in: scene)
    #expect(scene.folder.tree().contains("out/grün 猫.png"))
  }

  /// The job and its pictures belong to someone else; results go elsewhere.
  @Test func aJobsFolderThatCannotBeWrittenTo() throws {
    let scene = try Scene(pictures: 2)
    scene.folder.makeFolder("results")
    scene.job(to: scene.folder["results"] + "/${item.stem}.${ext}")
    scene.folder.makeFolder("in")
    // Permissions do not hold the superuser; a mount that is read-only does.
    let script = """
      mount --bind "$1" "$1" && mount --bind "$1/results" "$1/results" && mount -o remount,bind,ro "$1" || exit 99
      cd / && "$0" run "$1/job.json"; echo $?
      exec "$0" run "$1/job.json" --state "$1/results/state"
      """
    let result = RunProgram.run(
      ["--user", "--map-root-user", "--mount", "/bin/sh", "-c", script, RunProgram.builtProgram, scene.folder.path],
      program: "/usr/bin/unshare")
    guard result.exitCode != 99, !result.error.contains("unshare:") else {
      print("skipped: no name space for mounts can be had here: \(result.error)")
      return
    }
    // Without a place for its state it does not begin, and says what helps.
    #expect(result.output == "4\n")
    #expect(result.error.lowercased().contains("read-only file system") && result.error.contains("--state DIR"))
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(scene.folder.tree().filter { $0.hasPrefix("results/p") } == ["results/p00.png", "results/p01.png"])
  }

  @Test func aReaderThatLeavesHarmsNothing() throws {
    let scene = try Scene(pictures: 30, side: 8)
    scene.job()
    func shell(_ script: String) -> ProgramResult {
      RunProgram.run(["-c", script, RunProgram.builtProgram], scene.settings(), program: "/bin/bash")
    }
    let plan = shell("\"$0\" plan job.json | head -n 1; echo \"${PIPESTATUS[0]}\"")
    #expect(plan.output.split(separator: "\n").last == "0", "\(plan.output)\(plan.error)")
    let run = shell(
      "\"$0\" run job.json --verbose --report report.json 2>&1 >/dev/null | head -n 1; exit ${PIPESTATUS[0]}")
    #expect(run.exitCode == 0)
    try check(try scene.report(), exitCode: 0, in: scene)
  }

  @Test func timeoutEndsARunInOrder() throws {
    let scene = try Scene(pictures: 60, side: 250)
    scene.job(encode: Scene.slowEncode, run: #"{ "graceTime": 60 }"#)
    let result = RunProgram.run(
      ["--kill-after", "100", "2", RunProgram.builtProgram, "run", "job.json", "--report", "report.json"],
      scene.settings(), program: "/usr/bin/timeout")
    // What timeout answers where the time was over.
    #expect(result.exitCode == 124, "\(result.error)")
    let report = try scene.report()
    #expect(report["run"]?["exitCode"]?.integer == 143)
    #expect(report["run"]?["counts"]?["notAttempted"]?.integer ?? 0 > 0)
    try check(report, exitCode: 143, in: scene)
    #expect(scene.temporaries.isEmpty)
  }

  /// A quota of 1.5 processors in a control group below the one the tests run in, where the system lets them make one.
  @Test func aRealControlGroupIsFollowed() throws {
    let own = String(decoding: TemporaryFolder.read("/proc/self/cgroup") ?? [], as: UTF8.self)
    let path = own.split(separator: "\n").lazy.map { $0.split(separator: ":", omittingEmptySubsequences: false) }
      .first { $0.count == 3 && $0[1].split(separator: ",").contains("cpu") }.map { String($0[2]) }
    // Version 1; a group of version 2 that holds processes can't have others below it.
    guard let path, path == "/" else {
      print("skipped: no group of version 1 to make one in")
      return
    }
    let group = "/sys/fs/cgroup/cpu/pipeline-test-\(getpid())"
    guard mkdir(group, 0o755) == 0 else {
      print("skipped: \(group) cannot be made")
      return
    }
    defer { rmdir(group) }
    let script =
      "echo 150000 >\"$1/cpu.cfs_quota_us\" && echo $$ >\"$1/cgroup.procs\" && exec \"$0\" doctor --format json"
    let result = RunProgram.run(["-c", script, RunProgram.builtProgram, group], program: "/bin/sh")
    let checks = try json(result.outputBytes)["checks"]?.arrayValue ?? []
    let processors = checks.first { $0["name"]?.stringValue == "processors" }?["detail"]?.stringValue ?? ""
    #expect(processors.contains("1.5 by cpu.cfs_quota_us of \(group)"), "\(processors)")
    #expect(processors.hasPrefix("\(min(2, Int(sysconf(Int32(_SC_NPROCESSORS_ONLN)))))"))
  }

  /// The deadline also ends a run that is still waiting for its model.
  @Test func theDeadlineBoundsAModelsDownload() throws {
    // Takes connections and never answers.
    let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    defer { close(listener) }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let isListening = withUnsafeMutablePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(listener, $0, length) == 0 && listen(listener, 4) == 0 && getsockname(listener, $0, &length) == 0
      }
    }
    #expect(isListening)
    let scene = try Scene(pictures: 3)
    scene.job(
      encode:
        #"{ "stage": "segment", "model": "u2net", "allowDownload": true }, { "stage": "encode", "format": "png" }"#,
      run: #"{ "deadline": 2 }"#)
    let runtime = try? PipelineHome.current.locateRuntime()
    let begin = ContinuousClock.now
    let result = scene.run("run", "job.json", "--report", "report.json") { settings in
      settings.environment = [
        "PIPELINE_HOME": scene.folder["home"], "PIPELINE_OPENVINO": runtime ?? "",
        "PIPELINE_MODEL_MIRROR": "http://127.0.0.1:\(UInt16(bigEndian: address.sin_port))",
      ]
    }
    #expect(result.exitCode == 5, "\(result.error)")
    #expect(ContinuousClock.now - begin < .seconds(40))
    let report = try scene.report()
    #expect(report["run"]?["stop"]?.stringValue == "deadline")
    #expect(report["run"]?["counts"]?["notAttempted"]?.integer == 3)
    try check(report, exitCode: 5, in: scene)
  }

  // MARK: Logs

  /// Runs that append to one file write whole lines.
  @Test(arguments: ["text", "json"]) func linesOfRunsThatShareALogStayWhole(_ format: String) throws {
    let scene = try Scene(pictures: 40, side: 8)
    scene.folder.write("no picture", to: "in/bad.jpg")
    let log = scene.folder["log"]
    scene.job(to: "${vars.out}/${item.stem}.${ext}", vars: #"{ "out": "out" }"#)
    let script = """
      for n in 1 2 3 4; do
        "$0" run job.json --set out="out$n" --state "state$n" --verbose --log-format \(format) 2>>"$1" & pids="$pids $!"
      done
      for pid in $pids; do wait "$pid"; echo $?; done
      """
    let result = RunProgram.run(["-c", script, RunProgram.builtProgram, log], scene.settings(), program: "/bin/sh")
    #expect(result.output == "1\n1\n1\n1\n", "\(result.error)")
    let text = String(decoding: TemporaryFolder.read(log) ?? [], as: UTF8.self)
    let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
    #expect(lines.last == "")
    if format == "json" {
      var items = 0
      for line in lines.dropLast() { items += try json(line)["event"]?.stringValue == "item" ? 1 : 0 }
      #expect(items == 4 * 41)
    } else {
      for index in 0..<40 {
        let name = "in/p\(index / 10)\(index % 10).jpg: done"
        #expect(lines.count { $0.hasPrefix(name) && $0.contains(" -> ") } == 4)
      }
      #expect(lines.count { $0.hasPrefix("in/bad.jpg: failed") } == 4)
    }
  }

  @Test(arguments: ["text", "json"]) func namesBringNoControlCharactersIntoLogs(_ format: String) throws {
    let scene = try Scene(pictures: 1, side: 8)
    let bytes = scene.folder.read("in/p00.jpg") ?? []
    for name in ["a\nb", "a\u{1B}[2Jb", "a\rb", "a\tb", "a\u{7F}b", "a\u{9B}31mb", "a\u{2028}b"] {
      scene.folder.write(bytes, to: "in/\(name).jpg")
      scene.folder.write("no picture", to: "in/bad \(name).jpg")
    }
    scene.job()
    let result = scene.run("run", "job.json", "--verbose", "--log-format", format)
    #expect(result.exitCode == 1)
    for line in result.error.split(separator: "\n", omittingEmptySubsequences: false).dropLast() {
      #expect(
        !line.unicodeScalars.contains { $0.value < 0x20 || (0x7F...0x9F).contains($0.value) || $0.value == 0x2028 },
        "\(line.debugDescription)")
      if format == "json" { _ = try json(line) }
    }
  }

  // MARK: Descriptors

  private static let many = getenv("PIPELINE_SOAK") == nil ? 2_000 : 20_000

  /// The most descriptors that a run has open at once, looked at all the time.
  private func mostDescriptors(_ scene: Scene, _ count: Int) throws -> Int {
    let scene = scene
    let bytes = scene.folder.read("in/p00.jpg") ?? []
    let first = scene.folder.write(bytes, to: "many/000000.jpg")
    for index in 1..<count {
      let name = String(index)
      let path = scene.folder["many/" + String(repeating: "0", count: 6 - name.count) + name + ".jpg"]
      #expect(link(first, path) == 0)
    }
    scene.job(input: #"{ "directory": "many" }"#)
    let program = scene.start("run", "job.json")
    var most = 0
    _ = program.wait(limit: 600) {
      most = max(most, (try? Self.descriptors(of: program.process)) ?? 0)
      return false
    }
    let result = program.finish()
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(scene.folder.tree().count { $0.hasPrefix("out/") && $0.hasSuffix(".png") } == count)
    return most
  }

  private static func descriptors(of process: pid_t) throws -> Int {
    guard let folder = opendir("/proc/\(process)/fd") else { return 0 }
    defer { closedir(folder) }
    var count = 0
    while readdir(folder) != nil { count += 1 }
    return count - 2
  }

  @Test func descriptorsDoNotFollowTheNumberOfInputs() throws {
    let few = try mostDescriptors(try Scene(pictures: 1, side: 8), 20)
    let many = try mostDescriptors(try Scene(pictures: 1, side: 8), Self.many)
    // A run of 20 may be over before it was seen at its widest.
    #expect(many <= few + 12, "\(many), \(few)")
    #expect(many < 50)
  }

  @Test func sixtyFourDescriptorsAreEnough() throws {
    let scene = try Scene(pictures: 90, side: 8)
    scene.job()
    let result = RunProgram.run(
      ["-c", "ulimit -n 64; exec \"$0\" run job.json --report report.json", RunProgram.builtProgram], scene.settings(),
      program: "/bin/sh")
    #expect(result.exitCode == 0, "\(result.error)")
    try check(try scene.report(), exitCode: 0, in: scene)
  }

  // MARK: Permissions of outputs

  @Test(arguments: [
    ("022", "", "644", "755"), ("077", "", "600", "700"), ("002", "", "664", "775"),
    ("077", #", "mode": "0640""#, "640", "750"), ("022", #", "mode": "666""#, "666", "777"),
    ("027", #", "mode": "0600""#, "600", "700"),
  ])
  func permissionsFollowTheUmaskOrTheJob(_ umask: String, _ write: String, _ file: String, _ folder: String) throws {
    let scene = try Scene(pictures: 1, side: 8)
    scene.job(to: "out/deep/${item.stem}/${item.stem}.${ext}", write: write)
    let script = """
      umask \(umask); "$0" run job.json || exit
      # A file that is replaced keeps nothing.
      chmod 604 out/deep/p00/p00.png; "$0" run job.json --force || exit
      stat -c %a out/deep/p00/p00.png out/deep/p00
      """
    let result = RunProgram.run(["-c", script, RunProgram.builtProgram], scene.settings(), program: "/bin/sh")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(result.output == "\(file)\n\(folder)\n")
  }

  @Test(arguments: ["0400", "644x", "9644", "4755", "64", "00644", ""]) func aModeThatIsNoneIsRefused(_ mode: String)
    throws
  {
    let scene = try Scene(pictures: 1, side: 8)
    scene.job(write: ", \"mode\": \"\(mode)\"")
    let result = scene.run("lint", "job.json")
    #expect(result.exitCode == 3)
    #expect((result.output + result.error).contains("mode"))
  }

  // MARK: Sources that change

  /// A writer appends all the time: what is read is never whole, and the item is put off.
  @Test func aSourceThatGrowsIsPutOff() throws {
    let scene = try Scene(pictures: 1, side: 64)
    // A film's worth of a picture, so that reading takes a while: pixels first, then what no decoder looks at.
    let picture = scene.folder.read("in/p00.jpg") ?? []
    let path = scene.folder.write(picture + [UInt8](repeating: 0, count: 64 << 20), to: "in/p01.jpg")
    scene.job()
    let script = """
      while :; do printf x >>"$1"; done & writer=$!
      "$0" run job.json --report report.json; code=$?
      kill $writer; exit $code
      """
    let result = RunProgram.run(
      ["-c", script, RunProgram.builtProgram, path], scene.settings(), program: "/bin/sh")
    #expect(result.exitCode == 1, "\(result.error)")
    let items = try scene.report()["items"]?.arrayValue ?? []
    #expect(items.map { $0["status"]?.stringValue } == ["done", "deferred"])
    #expect(items.last?["reason"]?.stringValue?.contains("while it was read") == true)
    try check(try scene.report(), exitCode: 1, in: scene)
    // Once the writer is done, the picture is whole.
    #expect(scene.run("run", "job.json").exitCode == 0)
  }
}
