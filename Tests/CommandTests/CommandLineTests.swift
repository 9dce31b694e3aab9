import TestSupport
import Testing

@Suite struct CommandLineTests {
  @Test func versionIsOneLine() {
    let result = RunProgram.run(["--version"])
    #expect(result.exitCode == 0)
    #expect(result.output == "pipeline 0.1.0\n")
    #expect(result.error.isEmpty)
  }

  @Test func withoutArgumentsHelpGoesToStandardError() {
    let result = RunProgram.run([])
    #expect(result.exitCode == 2)
    #expect(result.output.isEmpty)
    #expect(result.error.hasPrefix("usage: pipeline COMMAND"))
  }

  static let commands = ["run", "plan", "lint", "stages", "schema", "models", "doctor"]

  @Test(arguments: commands) func everyCommandHasAHelpPage(_ name: String) {
    let pages = [[name, "--help"], [name, "-h"], ["help", name]].map { RunProgram.run($0) }
    for page in pages {
      #expect(page.exitCode == 0)
      #expect(page.output.hasPrefix("usage: pipeline \(name)"))
      #expect(page.error.isEmpty)
      #expect(page.output == pages[0].output)
      #expect(page.output.split(separator: "\n").allSatisfy { $0.count <= 80 })
    }
  }

  @Test func helpListsEveryCommand() {
    let result = RunProgram.run(["--help"])
    for name in Self.commands { #expect(result.output.contains("\n  \(name) ")) }
  }

  /// What is wrong, and what one line on standard error has to say about it.
  static let wrong: [([String], [String])] = [
    (["lnt", "job.json"], ["unknown command \"lnt\"", "did you mean \"lint\"?", "pipeline help"]),
    (["run", "job.json", "--reprot", "x"], ["unknown option \"--reprot\"", "\"--report\"", "pipeline help run"]),
    (["run", "job.json", "--shard", "0/2"], ["--shard expects I/N", "\"0/2\""]),
    (["models", "pul"], ["unknown argument \"pul\"", "pull"]),
    (["run"], ["missing argument JOB", "pipeline help run"]),
    (["run", "a.json", "b.json"], ["unexpected argument \"b.json\""]),
    (["schema", "x"], ["there is no schema of \"x\""]),
    (["run", "job.json", "--jobs"], ["--jobs needs a value"]),
    (["run", "job.json", "--report", "--quiet"], ["--report needs a value"]),
    (["run", "job.json", "--jobs", "0"], ["--jobs expects a whole number from 1 to 1024, got \"0\""]),
    (["run", "job.json", "--jobs=two"], ["got \"two\""]),
    (["run", "job.json", "--jobs", "-1"], ["got \"-1\""]),
    (["run", "job.json", "--jobs", "1", "--jobs=1"], ["--jobs was given twice"]),
    (["run", "job.json", "--quiet", "--quiet"], ["--quiet was given twice"]),
    (["run", "job.json", "--quiet", "--verbose"], ["--quiet and --verbose"]),
    (["run", "job.json", "--quiet=yes"], ["--quiet takes no value"]),
    (["run", "job.json", "--log-format", "xml"], ["text or json", "\"xml\""]),
    (["run", "job.json", "--set", "size"], ["NAME=VALUE"]),
    (["run", "job.json", "--set", "a=1", "--set", "a=2"], ["--set a was given twice"]),
    (["run", ""], ["is empty"]),
    (["run", "--", "--jobs", "2"], ["unexpected argument \"2\""]),
    (["stages", "resise"], ["unknown stage \"resise\"", "did you mean \"resize\"?"]),
    (["help", "rum"], ["unknown command \"rum\"", "\"run\""]),
    (["--versio"], ["unknown option \"--versio\"", "--version"]),
  ]

  @Test(arguments: wrong.indices) func aWrongCommandLineIsOneLineAndExit2(_ index: Int) {
    let (arguments, expected) = Self.wrong[index]
    let result = RunProgram.run(arguments)
    #expect(result.exitCode == 2)
    #expect(result.output.isEmpty)
    #expect(result.errorLines.count == 1)
    for text in expected { #expect(result.error.contains(text)) }
  }

  @Test func optionsStandAnywhere() throws {
    let scene = try Scene(pictures: 1)
    scene.job(vars: #"{ "a": 1 }"#)
    for arguments in [
      ["run", "--jobs", "1", "job.json", "--quiet"], ["run", "--quiet", "--jobs=1", "--", "job.json"],
      ["run", "job.json", "--set=a=2", "--quiet"],
    ] {
      let result = RunProgram.run(arguments, scene.settings())
      #expect(result.exitCode == 0, "\(arguments) \(result.error)")
    }
  }

  @Test func stagesAndSchemaComeFromTheSpecs() throws {
    let list = RunProgram.run(["stages"])
    #expect(list.exitCode == 0)
    for name in ["decode", "resize", "composite", "encode", "write"] {
      #expect(list.output.split(separator: "\n").contains { $0.hasPrefix(name + " ") })
      let page = RunProgram.run(["stages", name])
      #expect(page.exitCode == 0)
      #expect(page.output.hasPrefix(name + " "))
    }
    #expect(RunProgram.run(["stages", "resize", "--format", "markdown"]).output.hasPrefix("### `resize`"))
    let pages = try json(RunProgram.run(["stages", "--format", "json"]).outputBytes)
    #expect(pages.arrayValue?.count == list.output.split(separator: "\n").count)
    let schema = try json(RunProgram.run(["schema"]).outputBytes)
    #expect(schema["$schema"]?.stringValue == "https://json-schema.org/draft/2020-12/schema")
    #expect(schema["$defs"]?["resize"] != nil)
  }

  @Test func modelsAreListed() throws {
    let list = try json(RunProgram.run(["models", "list", "--format", "json"]).outputBytes)
    #expect(list.arrayValue?.contains { $0["name"]?.stringValue == "u2netp" } == true)
    var settings = RunProgram.Settings()
    settings.environment = ["PIPELINE_HOME": "/nonexistent"]
    let verified = RunProgram.run(["models", "verify", "u2netp"], settings)
    #expect(verified.exitCode == 4)
    #expect(verified.error.contains("/nonexistent/models"))
  }

  @Test func doctorNamesWhatIsLackingAndHowToMendIt() throws {
    var settings = RunProgram.Settings()
    settings.environment = ["PIPELINE_HOME": "/nonexistent"]
    let result = RunProgram.run(["doctor", "--format", "json"], settings)
    #expect(result.exitCode == 4)
    let checks = try #require(try json(result.outputBytes)["checks"]?.arrayValue)
    for name in ["OpenVINO", "u2netp"] {
      let check = try #require(checks.first { $0["name"]?.stringValue == name })
      #expect(check["state"]?.stringValue == "lack")
      #expect(check["remedy"]?.stringValue?.contains("make demo") == true)
    }
    for name in ["JPEG", "PNG", "WebP"] {
      #expect(checks.first { $0["name"]?.stringValue == name }?["detail"]?.stringValue == "read, write")
    }
    #expect(RunProgram.run(["doctor"], settings).exitCode == 4)
  }
}
