import Glibc
import Imaging
import JobSyntax
import PipelineKit
import Stages
import TestSupport
import Testing

@Suite struct ExecTests {
  let bench = StageBench()

  /// A stage object for a shell script; `$1` and so on are the further arguments.
  private func script(_ text: String, _ arguments: [String] = [], _ more: String = "") -> String {
    let command = JSONText.array((["sh", "-c", text, "sh"] + arguments).map { .string($0) }).rendered()
    return "{ \"stage\": \"exec\", \"command\": \(command)\(more.isEmpty ? "" : ", ")\(more) }"
  }

  private func picture() throws -> Image {
    try Pictures.image(40, 30, bands: 4) { x, y in [UInt8(x * 6), UInt8(y * 8), 99, UInt8(255 - x)] }
  }

  @Test("what cat gives back is the picture, by every way it can be handed over", arguments: ["png", "tiff", "pam"])
  func throughAPipe(format: String) throws {
    let item = bench.item(try picture())
    for arguments in [#"["cat"]"#, #"["cat", "${file.in}"]"#, #"["cp", "${file.in}", "${file.out}"]"#, #"["true"]"#] {
      let from = arguments.contains("true") ? #", "from": "stdout""# : ""
      let json = "{ \"stage\": \"exec\", \"command\": \(arguments), \"format\": \"\(format)\"\(from) }"
      guard !arguments.contains("true") else {
        #expect(try bench.failure(of: Exec.self, json, item).code == "exec-answer")
        continue
      }
      let result = try bench.process(Exec.self, json, item)
      #expect(try result.pixels() == item.pixels(), "\(arguments)")
    }
  }

  @Test("sixteen bits go there and come back", arguments: ["png", "tiff", "ppm", "pam"])
  func deep(format: String) throws {
    let samples = (0..<20 * 10 * 3).map { UInt16(truncatingIfNeeded: $0 * 997) }
    let image = try Image(width: 20, height: 10, bands: 3, samples: samples)
    let stage = try Exec(
      StageBench.settings(Exec.self, "{ \"stage\": \"exec\", \"command\": [\"cat\"], \"format\": \"\(format)\" }"),
      resources: StageResources(
        run: bench.run, computeWorkers: 1, facts: RunFacts(), workingSpace: WorkingSpace(depth: .sixteen)))
    guard case .next(let result) = try stage.process(bench.item(image), in: bench.context("exec")) else {
      Issue.record("the item did not go on")
      return
    }
    #expect(try result.image().depth == 16)
    #expect(try result.image().bytes() == image.bytes())
    try stage.finish()
  }

  @Test("an argument stays one, whatever is in it")
  func arguments() throws {
    let name = "a b;$(touch hacked) '\"*.jpg"
    let journal = ItemJournal()
    let item = bench.item(try picture(), name: name)
    _ = try bench.process(
      Exec.self, script("printf '<%s>' \"$@\"", ["${item.name}", "", "${image.width}"], #""take": "nothing""#), item,
      journal: journal)
    #expect(journal.snapshot.facts["exec"]?.rendered().contains(#"<a b;$(touch hacked) '\"*.jpg><><40>"#) ?? false)
  }

  @Test("nothing is inherited: no descriptor, no variable, no folder")
  func clean() throws {
    let journal = ItemJournal()
    let descriptor = open("/dev/null", O_RDONLY)
    defer { close(descriptor) }
    setenv("EXEC_TEST_LEAK", "leak", 1)
    _ = try bench.process(
      Exec.self,
      script(
        "ls /proc/self/fd | tr '\\n' ,; env | cut -d= -f1 | sort | tr '\\n' ,; ls -A | wc -l; pwd", [],
        #""take": "nothing", "give": "nothing", "env": { "OWN": "${job.dir}" }"#), bench.item("x.jpg"), journal: journal
    )
    let said = try #require(journal.snapshot.facts["exec"]?.rendered())
    // `ls` has the folder open that it lists.
    #expect(said.contains("\"stdout\":\"0,1,2,3,HOME,LANG,OWN,PATH,PIPELINE_EXEC,PWD,"), "\(said)")
    #expect(!said.contains("EXEC_TEST_LEAK"))
    #expect(said.contains(",0\\n\(PrivateFolder.parent.printable)/pipeline-exec-"))
  }

  @Test("a secret in the environment reaches the program and no report")
  func secrets() throws {
    setenv("EXEC_TEST_SECRET", "tops3cret", 1)
    let error = try bench.failure(
      of: Exec.self,
      script("echo \"key $KEY $${#KEY}\" >&2; exit 7", [], #""env": { "KEY": "${secret.EXEC_TEST_SECRET}" }"#),
      bench.item(try picture()))
    #expect(error.code == "exec-failed")
    #expect(error.message == "sh ended with exit code 7: key *** 9")
    #expect(
      try StageBench.findings(Exec.self, #""command": ["x", "${secret.EXEC_TEST_SECRET}"]"#) == ["secret-not-allowed"])
  }

  @Test("exit codes mean what the job says")
  func codes() throws {
    let item = bench.item(try picture())
    let more = #""okCodes": [0, 2], "dropCodes": [3], "take": "nothing""#
    let stage = try bench.make(Exec.self, script("echo no logo >&2; exit $1", ["3"], more))
    guard case .dropped(let reason) = try stage.process(item, in: bench.context("exec")) else {
      Issue.record("it was not dropped")
      return
    }
    #expect(reason == "sh ended with exit code 3: no logo")
    _ = try bench.process(Exec.self, script("exit 2", [], more), item)
    #expect(try bench.failure(of: Exec.self, script("exit 4", [], more), item).code == "exec-failed")
    #expect(try bench.failure(of: Exec.self, script("kill -SEGV $$", [], more), item).code == "exec-signal")
  }

  @Test("at its time limit it ends with all it has started, also what has left the group")
  func timeLimit() throws {
    let pids = bench.folder["pids"]
    let text = """
      trap '' TERM
      setsid sh -c 'echo $$ >> "$1"; sleep 600' sh "$1" &
      sh -c 'echo $$ >> "$1"; sleep 600' sh "$1" &
      echo $$ >> "$1"
      while [ "$(wc -l < "$1")" -lt 3 ]; do :; done
      echo begun >&2
      sleep 600
      """
    let begin = ContinuousClock.now
    let error = try bench.failure(
      of: Exec.self, script(text, [pids], #""timeLimit": 1, "take": "nothing""#), bench.item(try picture()))
    #expect(error.code == "exec-timeout")
    #expect(error.cause == "begun")
    #expect(ContinuousClock.now - begin < .seconds(10))
    let started = String(decoding: bench.folder.read("pids") ?? [], as: UTF8.self).split(separator: "\n")
    #expect(started.count == 3)
    for text in started {
      let process = try #require(Int32(text))
      // What is no child of ours may wait for its own parent to take notice of its end.
      #expect(kill(process, 0) != 0 || state(process) == "Z", "\(process) is still there")
    }
  }

  private func state(_ process: Int32) -> String? {
    let text = String(decoding: TemporaryFolder.read("/proc/\(process)/stat") ?? [], as: UTF8.self)
    return text.split(separator: ")").last?.split(separator: " ").first.map(String.init)
  }

  @Test("an item that was given up ends its program")
  func cancelled() throws {
    let stage = try bench.make(Exec.self, script("sleep 600", [], #""take": "nothing""#))
    let begin = ContinuousClock.now
    do throws(StageError) {
      _ = try stage.process(bench.item(try! picture()), in: bench.context("exec", cancelled: { true }))
      Issue.record("it went on")
    } catch {
      #expect(error.code == "deadline")
    }
    #expect(ContinuousClock.now - begin < .seconds(5))
  }

  @Test("one that writes without end is stopped", arguments: ["", " >&2", " > \"$1\""])
  func outputLimit(redirection: String) throws {
    let error = try bench.failure(
      of: Exec.self, script("yes\(redirection)", ["${file.out}"], #""outputLimit": 100000"#), bench.item(try picture()))
    #expect(error.code == "exec-output")
  }

  @Test("memory beyond the limit is not given")
  func memoryLimit() throws {
    guard (try? ExternalProgram.find("/usr/bin/python3", from: "/")) != nil else {
      print("memoryLimit: skipped, there is no /usr/bin/python3")
      return
    }
    func json(_ limit: Int) -> String {
      """
      { "stage": "exec", "command": ["/usr/bin/python3", "-c", "x = bytearray(200 << 20)"], "take": "nothing", \
      "memoryLimit": \(limit) }
      """
    }
    let item = bench.item(try picture())
    let error = try bench.failure(of: Exec.self, json(100 << 20), item)
    #expect(error.message == "python3 ended with exit code 1: MemoryError")
    #expect(error.hint?.contains("memoryLimit") ?? false)
    _ = try bench.process(Exec.self, json(400 << 20), item)
  }

  @Test("what comes back is looked at as an input is")
  func answers() throws {
    let item = bench.item(try picture())
    func failure(_ text: String, _ more: String = "") throws -> StageError {
      try bench.failure(of: Exec.self, script(text, ["${file.out}"], more), item)
    }
    let stdout = #""from": "stdout""#
    #expect(try failure("echo hello", stdout).message.contains("what sh gave back cannot be used"))
    #expect(try failure("head -c 60", stdout).code == "exec-answer")
    #expect(try failure("ln -s /etc/hostname \"$1\"").code == "exec-answer")
    #expect(try failure("mkfifo \"$1\"").code == "exec-answer")
    #expect(try failure("printf 'P6 99999 99999 255\\n'", stdout).code == "limit")
    #expect(try failure("printf 'P6 10 10 255\\nabc'", stdout).code == "exec-answer")
    #expect(
      try failure("cat", #""take": "encoded", "ending": "webp", "from": "stdout""#).message
        == "sh gave back PNG where a file that ends in .webp is expected")
  }

  @Test("a mask that comes back cuts the picture out")
  func mask() throws {
    let image = try Pictures.image(4, 2) { x, y in [UInt8(x * 10), UInt8(y * 10), 5] }
    let result = try bench.process(
      Exec.self,
      script("printf 'P5 4 2 255\\n\\377\\377\\0\\0\\377\\377\\0\\0'", [], #""take": "matte", "format": "ppm""#),
      bench.item(image))
    #expect(try result.matte?.bytes() == [255, 255, 0, 0, 255, 255, 0, 0])
    #expect(try result.image().pixel(0, 0) == [0, 0, 5, 255])
    #expect(try result.image().pixel(3, 1).last == 0)
    #expect(
      try bench.failure(
        of: Exec.self, script("printf 'P5 4 2 255\\n\\0\\0\\0\\0\\0\\0\\0\\0'", [], #""take": "matte""#),
        bench.item(image)
      ).code == "nothing-found")
  }

  @Test("a missing program is found before work starts")
  func missing() throws {
    do throws(StageError) {
      _ = try Exec(
        try! StageBench.settings(Exec.self, #"{ "stage": "exec", "command": ["no-such-program"] }"#),
        resources: StageResources(run: bench.run, computeWorkers: 1, facts: RunFacts()))
      Issue.record("it was found")
    } catch {
      #expect(error.code == "program-missing")
      #expect(error.kind == .environment)
    }
    bench.folder.write("no script", to: "tool")
    chmod(bench.folder["tool"], 0o755)
    let error = try bench.failure(
      of: Exec.self, #"{ "stage": "exec", "command": ["./tool"] }"#, bench.item(try picture()))
    #expect(error.code == "program-start")
    #expect(error.hint == "a script must begin with #! and its interpreter")
  }

  @Test("its folder goes, with whatever it left there")
  func folders() throws {
    let stage = try bench.make(
      Exec.self, script("pwd; mkdir -p a/b; echo x > a/b/c; chmod 0 a", [], #""take": "nothing""#))
    let journal = ItemJournal()
    _ = try stage.process(bench.item(try picture()), in: bench.context("exec", journal: journal))
    let said = try #require(journal.snapshot.facts["exec"]?.rendered())
    let folder = try #require(
      said.firstRange(of: "/pipeline-exec-").map { said[$0.lowerBound...].prefix { $0 != "\"" } })
    let path = PrivateFolder.parent.printable + folder
    #expect(access(path, F_OK) != 0)
    try stage.finish()
    #expect(access(String(path[..<(path.lastIndex(of: "/") ?? path.endIndex)]), F_OK) != 0)
  }

  @Test("folders of processes that are gone are removed, and nothing that only has such a name")
  func staleFolders() throws {
    let parent = PathBytes(bench.folder["temporary"])
    for name in ["pipeline-exec-results/kept", "pipeline-exec-abcdef/kept", "pipeline-exec-Old123/1/in.png"] {
      bench.folder.write("x", to: "temporary/" + name)
    }
    for name in ["pipeline-exec-abcdef", "pipeline-exec-Old123"] { chmod(bench.folder["temporary/" + name], 0o700) }
    bench.folder.write("", to: "temporary/pipeline-exec-Old123/.pipeline")
    let first = try PrivateFolder("pipeline-exec", in: parent)
    let second = try PrivateFolder("pipeline-exec", in: parent)
    func isThere(_ path: PathBytes) -> Bool { path.withCString { access($0, F_OK) } == 0 }
    #expect(isThere(first.path) && isThere(second.path))
    #expect(!isThere(parent.joining("pipeline-exec-Old123")))
    second.close()
    first.close()
    #expect(!isThere(first.path) && !isThere(second.path))
    #expect(
      bench.folder.tree().filter { $0.hasPrefix("temporary/") && !$0.hasSuffix("/") }.sorted() == [
        "temporary/pipeline-exec-abcdef/kept", "temporary/pipeline-exec-results/kept",
      ])
  }

  @Test("a file of just the size that is allowed is taken, a larger one is not, in place too")
  func outputLimit() throws {
    func said(_ text: String) throws -> StageError {
      try bench.failure(
        of: Exec.self, script(text, [], #""take": "nothing", "outputLimit": 1000"#), bench.item(try picture()))
    }
    _ = try bench.process(
      Exec.self, script("head -c 1000 /dev/zero", [], #""take": "nothing", "outputLimit": 1000"#),
      bench.item(try picture()))
    #expect(try said("head -c 1001 /dev/zero").code == "exec-output")
    #expect(try said("head -c 1001 /dev/zero >&2").code == "exec-output")
    let inPlace = try bench.failure(
      of: Exec.self,
      script("head -c 200000 /dev/zero >> \"$1\"; exit 0", ["${file.in}"], #""from": "in", "outputLimit": 100000"#),
      bench.item(try picture()))
    #expect(inPlace.code == "exec-output", "\(inPlace)")
  }

  @Test("fields that do not go together are refused")
  func lint() throws {
    func findings(_ text: String) throws -> [String] { try StageBench.findings(Exec.self, text) }
    #expect(try findings(#""command": []"#) == ["out-of-range"])
    #expect(try findings(#""command": ["${item.stem}"]"#) == ["wrong-value"])
    #expect(try findings(#""command": ["a", "${file.in}"], "give": "nothing""#) == ["not-applicable"])
    #expect(try findings(#""command": ["a"], "from": "out""#) == ["missing-key"])
    #expect(try findings(#""command": ["a"], "from": "in""#) == ["missing-key"])
    #expect(try findings(#""command": ["a"], "take": "encoded""#) == ["missing-key"])
    #expect(try findings(#""command": ["a"], "take": "matte", "give": "encoded""#) == ["conflicting-keys"])
    #expect(try findings(#""command": ["a"], "okCodes": [0, 1], "dropCodes": [1]"#) == ["conflicting-keys"])
    #expect(try findings(#""command": ["sh", "-c", "echo ${item.name}"]"#) == ["shell-injection"])
    #expect(try findings(#""command": ["sh", "-ec", "echo \"$1\"", "sh", "${item.name}"]"#).isEmpty)
    #expect(try findings(#""command": ["a"], "env": { "A B": "x" }"#) == ["wrong-value"])
    #expect(try StageBench.findings(Write.self, #""to": "out/${file.in}.jpg""#) == ["variable-not-allowed"])
  }

  @Test("the words of a program are fit for a terminal")
  func words() {
    let text = "\u{1B}[31mred\u{1B}[0m \u{1B}]0;title\u{07}a\u{0}b\r\n10%\r50%\rdone\nlast \u{202E}line\n\n"
    #expect(ProgramWords.tail(Array(text.utf8), most: 100) == "red ab\ndone\nlast line")
    #expect(ProgramWords.tail(Array("one\ntwo\nthree".utf8), most: 8) == "… three")
    #expect(ProgramWords.lastLine("a\n  b c \n \n") == "b c ")
  }
}
