import Glibc
import TestSupport
import Testing

/// What shells are told, and what the real ones make of it.
@Suite struct CompletionTests {
  static let shells = ["bash", "zsh", "fish"]

  /// Words and explanations that the program proposes after these.
  private func proposals(_ line: String..., in scene: Scene? = nil) -> [String: String] {
    var settings = RunProgram.Settings()
    settings.folder = scene?.folder.path
    let result = RunProgram.run(["--complete"] + line, settings)
    #expect(result.exitCode == 0 && result.error.isEmpty, "\(result.error)")
    var words: [String: String] = [:]
    for line in result.output.split(separator: "\n") {
      let parts = line.split(separator: "\t", maxSplits: 1)
      words[String(parts[0])] = parts.count > 1 ? String(parts[1]) : ""
    }
    return words
  }

  /// Commands with the options that their help pages show.
  private static func helpPages() -> [(command: String, page: String, options: [String])] {
    let overview = RunProgram.run(["help"]).output.split(separator: "\n")
    let names = overview.filter { $0.hasPrefix("  ") && !$0.hasPrefix("   ") }
      .compactMap { $0.split(separator: " ").first.map(String.init) }
      .filter { $0 != "help" && !$0.hasPrefix("-") }
    return names.map { name in
      let page = RunProgram.run(["help", name]).output
      let options = page.split(separator: "\n").filter { $0.hasPrefix("  --") }.compactMap {
        $0.dropFirst(4).split(whereSeparator: { " =[".contains($0) }).first.map(String.init)
      }
      return (name, page, options)
    }
  }

  @Test func `every command and option of the help pages is proposed, and in the manual`() throws {
    let pages = Self.helpPages()
    #expect(pages.count > 12)
    #expect(Set(proposals("").keys) == Set(pages.map(\.command) + ["help"]))
    let manual = RunProgram.run(["man"]).output
    for (command, _, options) in pages {
      let proposed = Set(proposals(command, "-").keys)
      #expect(proposed == Set(options.map { "--" + $0 } + ["--help"]), "\(command)")
      #expect(manual.contains(".SS \"pipeline \(command)"), "\(command)")
      for option in options {
        #expect(manual.contains("\\-\\-" + option.replacing("-", with: "\\-")), "\(command) --\(option)")
      }
    }
  }

  @Test func `values come from the declarations, the catalogue, the stages and the job`() throws {
    let scene = try Scene(pictures: 1)
    scene.job(vars: #"{ "size": 800, "side": 3 }"#)
    #expect(Set(proposals("run", "job.json", "--log-format", "").keys) == ["text", "json"])
    #expect(Set(proposals("run", "job.json", "--log-format=j").keys) == ["--log-format=json"])
    #expect(Set(proposals("run", "job.json", "--set", "s", in: scene).keys) == ["size=", "side="])
    #expect(
      Set(proposals("run", "job.json", "--force=", in: scene).keys) == [
        "--force=decode", "--force=encode", "--force=write",
      ])
    #expect(proposals("stages", "res")["resize"]?.isEmpty == false)
    #expect(proposals("stages", "wh")["when"] != nil)
    #expect(Set(proposals("models", "").keys) == ["list", "pull", "verify", "add"])
    #expect(proposals("models", "pull", "")["u2netp"] != nil)
    #expect(proposals("models", "pull", "u2netp", "isnet")["isnet-general-use"] != nil)
    #expect(Set(proposals("init", "").keys) == Set(InitTests.templates))
    #expect(Set(proposals("run", "--report", "").keys) == [":files "])
    #expect(Set(proposals("run", "--report=").keys) == [":files --report="])
    #expect(Set(proposals("run", "--state", "").keys) == [":folders "])
    #expect(Set(proposals("lint", "a.json", "").keys) == [":jobs "])
    #expect(proposals("run", "a.json", "").isEmpty)
    #expect(proposals("run", "--jobs", "").isEmpty)
    // What was given is not proposed again, unless it may be.
    let after = proposals("run", "--quiet", "--set", "a=1", "--")
    #expect(after["--quiet"] == nil && after["--set"] != nil)
    #expect(proposals("nonsense", "").isEmpty)
    // After this there are only operands.
    #expect(Set(proposals("run", "--", "--qu").keys) == [":jobs "])
  }

  @Test func `another word than a shell is refused`() {
    let result = RunProgram.run(["completion", "tcsh"])
    #expect(result.exitCode == 2 && result.error.contains("bash"))
    #expect(RunProgram.run(["completion"]).exitCode == 2)
  }

  // MARK: Shells

  /// A folder with job files of awkward names and a `pipeline` on the path.
  private func place() throws -> Scene {
    let scene = try Scene(pictures: 1)
    scene.job(vars: #"{ "size": 800 }"#)
    scene.folder.write("{}", to: "with space.json")
    scene.folder.write("x", to: "notes.txt")
    scene.folder.makeFolder("bin")
    symlink(RunProgram.builtProgram, scene.folder["bin/pipeline"])
    for shell in Self.shells {
      scene.folder.write(RunProgram.run(["completion", shell]).outputBytes, to: "script.\(shell)")
    }
    return scene
  }

  private func run(_ scene: Scene, _ program: String, _ arguments: [String]) -> [String] {
    var settings = scene.settings()
    settings.environment = [
      "PATH": scene.folder["bin"] + ":/usr/bin:/bin", "HOME": scene.folder.path, "LC_ALL": "C.UTF-8", "TERM": "dumb",
    ]
    let result = RunProgram.run(arguments, settings, program: program, limit: 60)
    #expect(result.exitCode == 0 && result.error.isEmpty, "\(result.error)")
    return result.output.split(separator: "\n").map(String.init)
  }

  /// What a line completes to; the last word is the one that is being typed.
  static let lines: [(line: [String], expected: [String])] = [
    (["pipeline", "do"], ["doctor"]),
    (["pipeline", "run", "jo"], ["job.json"]),
    (["pipeline", "run", "job.json", "--retry"], ["--retry-failed"]),
    (["pipeline", "run", "job.json", "--log-format", "j"], ["json"]),
    (["pipeline", "stages", "sharp"], ["sharpen"]),
    (["pipeline", "init", "mark"], ["marketplace"]),
    (["pipeline", "models", "pull", "siluet"], ["silueta"]),
    (["pipeline", "lint", "no"], []),
    (["pipeline", "run", "job.json", "--report", "no"], ["notes.txt"]),
  ]

  @Test(.enabled(if: access("/usr/bin/bash", X_OK) == 0, "bash is not installed"))
  func `bash completes`() throws {
    let scene = try place()
    func complete(_ words: [String], breaks: Bool = true) -> [String] {
      let quoted = words.map { "'" + $0 + "'" }.joined(separator: " ")
      // As readline leaves it to the function; its own splitting is done here.
      return run(
        scene, "/usr/bin/bash",
        [
          "-uc",
          "compopt() { :; }; source script.bash; COMP_WORDS=(\(quoted)); COMP_CWORD=\(words.count - 1); "
            + "COMP_WORDBREAKS=\(breaks ? "$' =:'" : "$' '"); _pipeline pipeline; "
            + "for word in ${COMPREPLY[@]+\"${COMPREPLY[@]}\"}; do echo \"$word\"; done",
        ])
    }
    for (line, expected) in Self.lines { #expect(complete(line) == expected, "\(line)") }
    #expect(complete(["pipeline", "run", "with"]) == ["with space.json"])
    // Words that bash breaks at "=": only what comes after it is put in.
    #expect(complete(["pipeline", "run", "job.json", "--log-format", "=", "te"]) == ["text"])
    #expect(complete(["pipeline", "run", "job.json", "--force", "="]) == ["decode", "encode", "write"])
    #expect(complete(["pipeline", "run", "job.json", "--log-format=te"], breaks: false) == ["--log-format=text"])
    #expect(complete(["pipeline", "run", "job.json", "--report", "=", "no"]) == ["notes.txt"])
    #expect(complete(["pipeline", "run", "job.json", "--set", "si"]) == ["size="])
    #expect(complete(["pipeline", "run", "--state", "b"]) == ["bin"])
  }

  @Test(.enabled(if: access("/usr/bin/fish", X_OK) == 0, "fish is not installed: apt-get install fish"))
  func `fish completes`() throws {
    let scene = try place()
    func complete(_ line: String) -> [String] {
      run(scene, "/usr/bin/fish", ["--no-config", "-c", "source script.fish; complete -C '\(line)'"])
        .map { String($0.split(separator: "\t", omittingEmptySubsequences: false)[0]) }
    }
    for (line, expected) in Self.lines { #expect(complete(line.joined(separator: " ")) == expected, "\(line)") }
    #expect(complete("pipeline run job.json --log-format=te") == ["--log-format=text"])
    #expect(complete("pipeline run job.json --report=no") == ["--report=notes.txt"])
    #expect(complete("pipeline run --state b") == ["bin/"])
    let described = run(
      scene, "/usr/bin/fish", ["--no-config", "-c", "source script.fish; complete -C 'pipeline run job.json --fail'"])
    #expect(described == ["--fail-fast\tstops after the first failure, whatever the job says"])
  }

  @Test(.enabled(if: access("/usr/bin/zsh", X_OK) == 0, "zsh is not installed: apt-get install zsh"))
  func `zsh completes`() throws {
    let scene = try place()
    // A shell in a terminal of its own; what its completion adds is caught instead of shown.
    scene.folder.write(
      #"""
      zmodload zsh/zpty
      zpty shell zsh -f -i
      zpty -w shell "PROMPT= ; setopt zle; autoload -Uz compinit; compinit -u -D; source $PWD/script.zsh"
      zpty -w shell 'compadd() {
        if [[ -z ${argv[(r)-[OAD]]} ]]; then
          typeset -a __hits; builtin compadd -A __hits "$@"
          local w; for w in "${(@)__hits}"; do print -r -- "HIT:$w" >> $HITS; done
        fi
        builtin compadd "$@" }'
      zpty -w shell 'bindkey "^I" complete-word; echo READY-$((40+2))'
      zpty -r -m shell out '*READY-42*'
      zpty -w -n shell "$1"$'\t'
      zpty -w -n shell $'\C-U'
      zpty -w shell 'echo DONE-$((40+2))'
      zpty -r -m shell out '*DONE-42*'
      zpty -d shell
      """#, to: "drive.zsh")
    func complete(_ line: String) -> [String] {
      scene.folder.remove("hits")
      var settings = scene.settings()
      settings.environment = [
        "PATH": scene.folder["bin"] + ":/usr/bin:/bin", "HOME": scene.folder.path, "LC_ALL": "C.UTF-8",
        "TERM": "xterm", "HITS": scene.folder["hits"],
      ]
      let result = RunProgram.run(["-f", "drive.zsh", line], settings, program: "/usr/bin/zsh", limit: 60)
      #expect(result.exitCode == 0, "\(result.output) \(result.error)")
      let hits = String(decoding: scene.folder.read("hits") ?? [], as: UTF8.self).split(separator: "\n")
      return Set(hits.map { String($0.dropFirst(4)) }).sorted()
    }
    // Where nothing of the kind is there, zsh shows all files.
    for (line, expected) in Self.lines where !expected.isEmpty {
      #expect(complete(line.joined(separator: " ")) == expected, "\(line)")
    }
    #expect(complete("pipeline run job.json --log-format=te") == ["--log-format=text"])
    #expect(complete("pipeline run job.json --report=no") == ["notes.txt"])
  }

  // MARK: The manual page

  @Test(.enabled(if: access("/usr/bin/mandoc", X_OK) == 0, "mandoc is not installed: apt-get install mandoc"))
  func `mandoc finds nothing wrong with the manual page`() throws {
    let folder = TemporaryFolder()
    folder.write(RunProgram.run(["man"]).outputBytes, to: "pipeline.1")
    let lint = RunProgram.run(["-Tlint", "-W", "style", folder["pipeline.1"]], program: "/usr/bin/mandoc")
    #expect(lint.exitCode == 0 && lint.output.isEmpty, "\(lint.output)")
  }

  @Test(.enabled(if: access("/usr/bin/man", X_OK) == 0, "man is not installed: apt-get install man-db"))
  func `man shows the manual page without a warning`() throws {
    let folder = TemporaryFolder()
    folder.write(RunProgram.run(["man"]).outputBytes, to: "pipeline.1")
    var settings = RunProgram.Settings()
    settings.environment = ["PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "100", "TERM": "dumb"]
    let page = RunProgram.run(
      ["--warnings", "-E", "UTF-8", "-l", "-Tutf8", folder["pipeline.1"]], settings, program: "/usr/bin/man")
    #expect(page.exitCode == 0 && page.error.isEmpty, "\(page.error)")
    for (command, _, _) in Self.helpPages() { #expect(page.output.contains("pipeline \(command)")) }
  }
}
