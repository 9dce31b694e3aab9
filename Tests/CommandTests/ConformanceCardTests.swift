import Conformance
import Glibc
import JobSyntax
import TestSupport
import Testing

private let isWhole = getenv("PIPELINE_SOAK").map { String(cString: $0) == "1" } ?? false

/// `pipeline plugin test`, from outside: plugins that are wrong in one way each fail on the line that is about it, and
/// on no other.
@Suite(.enabled(if: TestPlugins.canBuild, "a C compiler is missing: apt-get install gcc"))
struct ConformanceCardTests {
  private static func card(_ arguments: String...) throws -> (
    failed: [String], result: ProgramResult, card: JSONNode
  ) {
    try card(arguments)
  }

  private static func card(_ arguments: [String]) throws -> (failed: [String], result: ProgramResult, card: JSONNode) {
    let folder = TemporaryFolder()
    var settings = RunProgram.Settings()
    settings.folder = folder.path
    let result = RunProgram.run(
      ["plugin", "test"] + arguments + ["--format", "json"], settings, limit: 600)
    let card = try json(result.output)
    let lines = try #require(card["lines"]?.arrayValue)
    let asked = arguments.count { $0 == "--line" }
    #expect(lines.count == (asked == 0 ? 24 : asked))
    let failed = lines.filter { $0["state"]?.stringValue == "fail" }.compactMap { $0["line"]?.stringValue }
    return (failed, result, card)
  }

  /// Only these lines, where the whole card is not asked for.
  private static func lines(_ names: String...) -> [String] { isWhole ? [] : names.flatMap { ["--line", $0] } }

  @Test func aGoodPluginPasses() throws {
    let (failed, result, card) = try Self.card(TestPlugins.plugin("GOOD"))
    #expect(failed == [], "\(result.output)")
    #expect(result.exitCode == 0)
    #expect(card["passed"]?.integer == 24)
    #expect(card["stage"]?.stringValue == "test.plugin")
  }

  @Test(arguments: [
    ("FAULT_LEAK", "leaks"), ("FAULT_TURN", "orientation"), ("FAULT_ALPHA", "alpha"), ("FAULT_OPAQUE", "alpha"),
    ("FAULT_THREADS", "concurrent"), ("FAULT_INPUT", "input-kept"), ("FAULT_ONE_PIXEL", "one-pixel"),
    ("FAULT_DEPTH", "16-bit"), ("FAULT_CANCELLATION", "cancellation"), ("FAULT_SIZE", "size"),
    ("FAULT_RANDOM", "repeatable"), ("FAULT_LAZY", "picture"), ("ABI=7", "loads"), ("MINOR=3", "loads"),
  ])
  func aBrokenPluginFailsOnItsLine(_ fault: String, _ line: String) throws {
    // The whole card with PIPELINE_SOAK=1, else the line itself and two others.
    var lines: [String] = []
    if !isWhole {
      var random = SeededGenerator(state: fault.utf8.reduce(0) { $0 &* 31 &+ UInt64($1) })
      let others = ConformanceLine.allCases.map(\.rawValue).filter { $0 != line }.shuffled(using: &random)
      lines = ([line] + others.prefix(2)).flatMap { ["--line", $0] }
    }
    let (failed, result, _) = try Self.card([TestPlugins.plugin(fault)] + lines)
    #expect(failed == [line], "\(result.output)")
    #expect(result.exitCode == 1)
  }

  /// What a plugin says about itself is what it is held to.
  @Test func declaredFactsAreNoFaults() throws {
    let moving = #"FACTS="\"moves\": true,""#
    #expect(
      try Self.card([TestPlugins.plugin("FAULT_SIZE", moving)] + Self.lines("size", "orientation", "wide")).failed == []
    )
    let removing = #"FACTS="\"removes\": [\"alpha\"],""#
    #expect(
      try Self.card([TestPlugins.plugin("FAULT_ALPHA", removing)] + Self.lines("alpha", "grey-alpha")).failed == [])
    let shallow = #"FACTS="\"depth\": 8,""#
    #expect(try Self.card([TestPlugins.plugin("FAULT_DEPTH", shallow)] + Self.lines("16-bit", "picture")).failed == [])
  }

  @Test func theExamplesPass() throws {
    for path in [
      TestPlugins.example("grain-c", library: "libgrain.so"),
      TestPlugins.example("vignette-swift", library: "libvignette.so"),
    ] {
      let (failed, result, _) = try Self.card(path)
      #expect(failed == [], "\(result.output)")
    }
  }

  @Test func aBuiltInStagePassesWithSettings() throws {
    let (failed, result, _) = try Self.card("resize", "--settings", #"{ "width": 50 }"#)
    #expect(failed == [], "\(result.output)")
  }

  @Test func theCardIsForPeople() throws {
    let result = RunProgram.run(["plugin", "test", TestPlugins.plugin("FAULT_SIZE")])
    #expect(result.exitCode == 1)
    let lines = result.output.split(separator: "\n")
    #expect(lines.first == "test.plugin")
    #expect(lines.contains { $0.hasPrefix("FAIL  size ") })
    #expect(
      lines.contains { $0.contains("came: error plugin-size: plugin test.plugin made 120×160 pixels of 240×160") })
    #expect(lines.last?.hasSuffix("do not apply") == true)
    #expect(lines.allSatisfy { $0.count <= 100 })
  }

  @Test func wrongQuestionsAreRefused() throws {
    let unknown = RunProgram.run(["plugin", "test", "resiz"])
    #expect(unknown.exitCode == 2)
    #expect(unknown.error.contains(#"did you mean "resize"?"#))
    let noLine = RunProgram.run(["plugin", "test", "resize", "--line", "colour"])
    #expect(noLine.exitCode == 2)
    #expect(noLine.error.contains("--line expects loads, settings,"))
    let wrong = RunProgram.run(["plugin", "test", "resize", "--settings", #"{ "width": 0 }"#])
    #expect(wrong.exitCode == 2)
    #expect(wrong.error.contains("[out-of-range]"))
    #expect(RunProgram.run(["plugin", "test", "upload"]).exitCode == 4)
    #expect(RunProgram.run(["plugin", "try", "resize"]).exitCode == 2)
  }
}
