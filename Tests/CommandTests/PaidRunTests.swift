import Glibc
import Imaging
import JobSyntax
import TestSupport
import Testing

/// Runs that pay, killed and short of credits: nothing is ever paid for twice.
@Suite(.serialized, .enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
struct PaidRunTests {
  /// Pictures that differ, a job that has them cut out for money, and what the service has to say.
  private struct Paid {
    let scene: Scene
    let server: StandIn
    let key = "canary-key-4711-abcdef"
    let count: Int

    init(_ count: Int, credits: Double, budget: String = #"{ "credits": 1000 }"#) throws {
      self.count = count
      scene = try Scene(remembers: true)
      server = try StandIn()
      try server.addKey(.removebg, key, [("credits", .number(credits))])
      var random = SeededGenerator(state: 21)
      for index in 0..<count {
        let bytes = (0..<40 * 40 * 3).map { _ in UInt8.random(in: 0...255, using: &random) }
        let picture = try Image(width: 40, height: 40, bands: 3, bytes: bytes).encoded(.png(.init())).array
        scene.folder.write(picture, to: "in/p\(100 + index).png")
      }
      scene.folder.write(
        """
        {
          "version": 1, "name": "paid", "input": { "files": ["in/*.png"] }, "budget": \(budget),
          "stages": [
            { "stage": "decode" },
            { "stage": "segment", "provider": "removebg", "apiKey": "${secret.REMOVEBG_KEY}", "size": "full",
              "endpoint": "\(server.address)/v1.0", "onEmpty": "keep" },
            { "stage": "encode", "format": "png" },
            { "stage": "write", "to": "out/${item.stem}.${ext}" }
          ]
        }
        """, to: "job.json")
    }

    func start(_ arguments: String...) -> RunProgram {
      RunProgram(
        ["run", "job.json", "--report", "report.json", "--no-progress"] + arguments,
        scene.settings { settings in
          settings.environment = environment
          settings.isGroupLeader = true
        })
    }

    var environment: [String: String] {
      var environment = ["REMOVEBG_KEY": key, "no_proxy": "127.0.0.1,localhost"]
      for name in ["PATH", "HOME", "PIPELINE_HOME"] {
        if let value = getenv(name) { environment[name] = String(cString: value) }
      }
      return environment
    }

    func command(_ arguments: String...) -> ProgramResult {
      RunProgram.run(arguments, scene.settings { $0.environment = environment })
    }

    func statuses() throws -> [String: String] {
      let items = try #require(try scene.report()["items"]?.arrayValue)
      return Dictionary(
        uniqueKeysWithValues: items.map { ($0["input"]?.stringValue ?? "", $0["status"]?.stringValue ?? "") })
    }

    var charges: [String: StandIn.Charge] { get throws { try server.charges(key: key) } }
  }

  /// Killed at any moment and run again until nothing is left: every picture is done or nobody knows, and none was
  /// charged twice.
  @Test func killsNeverPayTwice() throws {
    let count = 40
    let paid = try Paid(count, credits: 1_000)
    // Long enough for most kills to hit a call under way.
    try paid.server.set(["removebg": ["latency": 0.05]])
    var random = SeededGenerator(state: ProofScene.seed)
    let kills = ProofScene.isSoak ? 50 : 6
    var shown: Set<String> = []
    for kill in 0..<kills {
      let program = paid.start("--jobs", "2")
      let moment = Double.random(in: 0.05...(ProofScene.isSoak ? 0.5 : 0.8), using: &random)
      if !program.ends(within: moment) { program.send(SIGKILL) }
      let result = program.finish()
      #expect(!result.timedOut)
      if result.signal == nil, result.exitCode == 0 || result.exitCode == 1 {
        // Nothing was left to do but what nobody knows: begin with new pictures, so that the next kills hit something.
        let done = try paid.statuses().values.filter { $0 == "done" || $0 == "skipped" }.count
        #expect(done + (try unknown(paid)).count == count, "seed \(ProofScene.seed), kill \(kill)")
      }
    }
    let last = paid.start().finish(limit: 120)
    let statuses = try paid.statuses()
    let unknown = try unknown(paid)
    shown.formUnion(statuses.filter { $0.value == "unknown" }.keys)
    let place = "seed \(ProofScene.seed): \(last.error)"
    #expect(last.exitCode == (unknown.isEmpty ? 0 : 1), "\(place)")
    #expect(
      statuses.count == count && statuses.values.allSatisfy { ["done", "skipped", "unknown"].contains($0) }, "\(place)")
    #expect(shown.count == unknown.count, "\(place)")
    let reasons = try #require(try paid.scene.report()["items"]?.arrayValue).compactMap { $0["reason"]?.stringValue }
    for receipt in unknown { #expect(reasons.contains { $0.contains("\(receipt)`") }, "\(place)") }
    #expect(unknown.isEmpty || last.error.contains("pipeline receipts resolve"), "\(place)")
    let charges = try paid.charges
    #expect(charges.values.allSatisfy { $0.count <= 1 }, "\(place)")
    #expect(charges.count <= count, "\(place)")
    // By itself no run asks again.
    _ = paid.start().finish(limit: 120)
    #expect(try paid.charges == charges)
    for receipt in unknown {
      let resolved = paid.command("receipts", "resolve", "job.json", receipt, "--retry")
      #expect(resolved.exitCode == 0, "\(resolved.error)")
    }
    let end = paid.start().finish(limit: 120)
    #expect(end.exitCode == 0, "\(end.error)")
    #expect(try paid.statuses().values.allSatisfy { $0 == "done" || $0 == "skipped" })
    #expect(paid.scene.folder.tree().filter { $0.hasPrefix("out/") && $0.hasSuffix(".png") }.count == count)
  }

  private func unknown(_ paid: Paid) throws -> [String] {
    let list = paid.command("receipts", "list", "job.json", "--unknown", "--format", "json")
    return try (json(list.output).arrayValue ?? []).compactMap { $0["id"]?.stringValue }
  }

  /// Pictures that crash the program have others worked on in children, which pay through the run that started them.
  @Test func childrenPayThroughTheirRun() throws {
    let paid = try Paid(24, credits: 1_000)
    let crashing = [101, 105, 109, 113]
    for index in crashing { rename(paid.scene.folder["in/p\(index).png"], paid.scene.folder["in/p\(index)-segv.png"]) }
    let job = String(decoding: paid.scene.folder.read("job.json") ?? [], as: UTF8.self)
    paid.scene.folder.write(
      job.replacing(#"{ "stage": "decode" },"#, with: #"{ "stage": "test.fault" }, { "stage": "decode" },"#),
      to: "job.json")
    let result = RunProgram.run(
      ["run", "job.json", "--report", "report.json", "--no-progress"],
      paid.scene.settings { settings in
        settings.environment = paid.environment
        settings.environment?["SWIFT_BACKTRACE"] = "enable=no"
      }, program: FaultyScene.program)
    #expect(result.exitCode == 1, "\(result.error)")
    let report = try paid.scene.report()
    // After three crashes everything is done in children.
    #expect(report["run"]?["crashes"]?.integer == 3, "\(result.error)")
    let statuses = try paid.statuses()
    #expect(statuses.values.count { $0 == "failed" } == crashing.count, "\(result.error)")
    // One that was being paid for when another crashed the program is not asked for again.
    #expect(statuses.values.allSatisfy { ["done", "failed", "unknown"].contains($0) })
    #expect(try paid.charges.values.allSatisfy { $0.count == 1 })
    // Whether that one's request had left when the program crashed is what nobody knows: all others were paid for.
    let unknown = statuses.values.count { $0 == "unknown" }
    #expect(statuses.values.count { $0 == "done" } == 20 - unknown)
    let charged = try paid.charges.count
    #expect((20 - unknown...20).contains(charged), "\(unknown) unknown, \(charged) charged")
  }

  /// The credits end after 10 of 100.
  @Test func whenCreditsEndTheRestIsLeftForTheNextRun() throws {
    let count = 100
    let paid = try Paid(count, credits: 10)
    let first = paid.start().finish(limit: 120)
    #expect(first.exitCode == 5, "\(first.error)")
    var statuses = try paid.statuses()
    #expect(statuses.values.count { $0 == "done" } == 10)
    #expect(statuses.values.count { $0 == "notAttempted" } == 90, "\(statuses)")
    let calls = try paid.server.log(.removebg, key: paid.key).filter { $0.path.hasSuffix("/removebg") }
    #expect(calls.filter { $0.charged > 0 }.count == 10)
    #expect(calls.count <= 10 + 8, "\(calls.count) calls")
    #expect(first.error.contains("a limit was reached"))
    let done = Set(statuses.filter { $0.value == "done" }.keys)
    try paid.server.addKey(.removebg, paid.key, [("credits", 1_000)])
    let second = paid.start().finish(limit: 120)
    #expect(second.exitCode == 0, "\(second.error)")
    statuses = try paid.statuses()
    #expect(Set(statuses.filter { $0.value == "skipped" }.keys) == done)
    #expect(statuses.values.count { $0 == "done" } == 90)
    #expect(try paid.charges.values.allSatisfy { $0.count == 1 })
  }

  @Test func theBudgetEndsARunToo() throws {
    let paid = try Paid(12, credits: 1_000, budget: #"{ "credits": 5 }"#)
    let plan = paid.command("plan", "job.json")
    #expect(plan.output.contains("at most 12 credits"), "\(plan.output)")
    let run = paid.start().finish(limit: 60)
    #expect(run.exitCode == 5, "\(run.error)")
    #expect(try paid.charges.count == 5)
    #expect(try paid.statuses().values.count { $0 == "notAttempted" } == 7)
  }

  /// The key is nowhere: not in what is printed, reported, kept or planned, in any form.
  @Test func aCredentialIsNowhere() throws {
    let paid = try Paid(4, credits: 2)
    // A service that repeats the key in its answer.
    try paid.server.script(
      .removebg, key: paid.key,
      [
        ("path", "/v1.0/removebg"), ("status", 400), ("type", "application/json"),
        ("body", .object([("errors", .array([.object([("title", .string("no use for \(paid.key)"))])]))])),
      ])
    var texts: [[UInt8]] = []
    for result in [
      paid.start("--verbose", "--log-format", "json").finish(limit: 60), paid.start("--verbose").finish(limit: 60),
      paid.command("plan", "job.json", "--format", "json"), paid.command("lint", "job.json"),
      paid.command("receipts", "list", "job.json"), paid.command("runs", "job.json"),
      paid.command("state", "show", "job.json"),
    ] {
      texts += [result.outputBytes, result.errorBytes]
    }
    for path in paid.scene.folder.tree() where !path.hasSuffix("/") && path != "job.json" {
      texts.append(paid.scene.folder.read(path) ?? [])
    }
    let forms = try secretForms(paid.key)
    #expect(forms.count >= 4)
    for text in texts {
      for form in forms { #expect(!text.contains(form)) }
    }
  }

  /// A value, and what encodings make of it.
  private func secretForms(_ value: String) throws -> [[UInt8]] {
    let script = """
      import sys, base64, urllib.parse
      v = sys.argv[1].encode()
      out = [v, urllib.parse.quote(v, safe="").encode(), base64.b64encode(v).rstrip(b"="), v.hex().encode()]
      for pad in (b"a", b"ab"):
        out.append(base64.b64encode(pad + v)[4:-4])
      print("\\n".join(o.decode() for o in out))
      """
    let result = RunProgram.run(["-c", script, value], program: try Peers.python("python"))
    return result.output.split(separator: "\n").map { Array($0.utf8) }
  }
}
