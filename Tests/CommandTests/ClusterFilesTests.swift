import Glibc
import JobSyntax
import TestSupport
import Testing

private let shellcheck = "/usr/bin/shellcheck"

/// Whether Python reads YAML here.
private let hasYAML =
  access("/usr/bin/python3", X_OK) == 0
  && RunProgram.run(["-c", "import yaml"], program: "/usr/bin/python3").exitCode == 0

/// What stands in pipelines/cluster/ does what it says, as far as one machine can tell.
@Suite struct ClusterFilesTests {
  private static let folder = DocumentationTests.package + "/pipelines/cluster/"

  /// The commands of a file that run the program, each on one line.
  private func commands(_ name: String) throws -> [String] {
    let text = String(decoding: try #require(TemporaryFolder.read(Self.folder + name)), as: UTF8.self)
    var commands: [String] = []
    var isOpen = false
    for line in text.split(separator: "\n") {
      var line = line.drop { $0 == " " }
      if line.hasPrefix("- ") { line = line.dropFirst(2) }
      guard isOpen || line.hasPrefix("pipeline ") else { continue }
      let goesOn = line.hasSuffix("\\")
      let part = String(goesOn ? line.dropLast() : line)
      if isOpen { commands[commands.count - 1] += part } else { commands.append(part) }
      isOpen = goesOn
    }
    return commands
  }

  /// Every shard's command and then the merge, as the service would run them, on a job of our own.
  private func play(_ name: String, shards: Int, environment: (Int) -> [String: String]) throws {
    let scene = try Scene(pictures: 12)
    scene.job()
    scene.folder.makeFolder("reports")
    let commands = try commands(name)
    #expect(commands.count == 2, "\(commands)")
    let path = RunProgram.builtProgram.split(separator: "/").dropLast().joined(separator: "/")
    func run(_ command: String, _ variables: [String: String]) {
      let result = RunProgram.run(
        ["-euc", command],
        scene.settings { settings in
          settings.environment = ["PATH": "/\(path):/usr/bin:/bin"].merging(variables) { $1 }
        }, program: "/bin/sh")
      #expect(result.exitCode == 0, "\(command): \(result.error)")
    }
    for index in 1...shards {
      run(
        commands[0].replacing("${{ matrix.shard }}", with: "\(index)").replacing("|| code=$?", with: ""),
        environment(index))
    }
    run(commands[1], [:])
    try check(try scene.report(), exitCode: 0, in: scene)
    #expect(try scene.report()["items"]?.arrayValue?.count == 12)
  }

  @Test func gitHub() throws {
    try play("github.yaml", shards: 4) { _ in ["SHARDS": "4"] }
  }

  @Test func gitLab() throws {
    try play("gitlab.yaml", shards: 4) { ["CI_NODE_INDEX": "\($0)", "CI_NODE_TOTAL": "4"] }
  }

  @Test func kubernetes() throws {
    try play("kubernetes.yaml", shards: 8) { ["JOB_COMPLETION_INDEX": "\($0 - 1)"] }
  }

  /// The numbers of shards that stand twice in a file are the same.
  @Test(.enabled(if: hasYAML, "python3-yaml is not installed"))
  func yaml() throws {
    func documents(_ name: String) throws -> [JSONNode] {
      let program =
        "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1]))), default=str))"
      let result = RunProgram.run(["-c", program, Self.folder + name], program: "/usr/bin/python3")
      #expect(result.exitCode == 0, "\(result.error)")
      return try #require(try json(result.output).arrayValue)
    }
    let kubernetes = try documents("kubernetes.yaml")
    #expect(kubernetes.map { $0["kind"]?.stringValue } == ["Job", "Job"])
    let shards = try #require(kubernetes[0]["spec"]?["completions"]?.integer)
    #expect(kubernetes[0]["spec"]?["completionMode"]?.stringValue == "Indexed")
    #expect(try commands("kubernetes.yaml")[0].contains("--shard auto/\(shards) "))

    let gitHub = try documents("github.yaml")[0]
    let matrix = gitHub["jobs"]?["shard"]?["strategy"]?["matrix"]?["shard"]?.arrayValue?.compactMap(\.integer)
    #expect(matrix == Array(1...(gitHub["env"]?["SHARDS"]?.integer ?? 1)))
    #expect(gitHub["jobs"]?["merge"]?["needs"]?.stringValue == "shard")

    let gitLab = try documents("gitlab.yaml")[0]
    #expect((gitLab["pictures"]?["parallel"]?.integer ?? 0) > 1)
    #expect(gitLab["merge"]?["needs"]?.arrayValue?.first?.stringValue == "pictures")
  }

  @Test(.enabled(if: access(shellcheck, X_OK) == 0, "shellcheck is not installed"))
  func scriptsAreClean() {
    let result = RunProgram.run([Self.folder + "slurm.sh"], program: shellcheck)
    #expect(result.exitCode == 0, "\(result.output)")
  }

  @Test func theSlurmScriptSaysHowItIsUsed() {
    let script = Self.folder + "slurm.sh"
    #expect(RunProgram.run(["-n", script], program: "/bin/bash").exitCode == 0)
    var settings = RunProgram.Settings()
    settings.environment = ["PATH": "/usr/bin:/bin"]
    let result = RunProgram.run(["job.json"], settings, program: script)
    #expect(result.exitCode == 2)
    #expect(result.error.hasPrefix("usage: "))
  }
}
