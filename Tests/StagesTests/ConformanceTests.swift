import Conformance
import Glibc
import JobSyntax
import PipelineKit
import Stages
import TestSupport
import Testing

/// The built-in stages are held to what plugins are held to. Here in one process; what may crash or needs a process
/// alone, `pipeline plugin test` shows.
@Suite struct ConformanceTests {
  /// Stages that no probe can call: `upload` needs a service, `segment` a model that pictures made in code mean nothing
  /// to.
  static let skipped = ["upload", "segment"]

  /// Where the defaults or the first example do not suit small pictures.
  static let settings: [String: [String]] = [
    "crop": [#"{ "width": 80, "height": 40 }"#, #"{ "aspect": "1:1" }"#],
    "resize": [#"{ "width": 120 }"#, #"{ "width": 50, "height": 50, "fit": "cover", "position": "attention" }"#],
    "rotate": [#"{ "angle": 90 }"#, #"{ "angle": 7 }"#],
    "encode": [#"{ "format": "png" }"#, #"{ "format": "webp", "quality": 80 }"#],
    // Its first example names a script.
    "exec": [#"{ "command": ["cat"] }"#],
    "composite": [
      ##"{ "background": { "color": "#ffffff" } }"##, #"{ "background": { "original": { "blur": 4 } } }"#,
    ],
  ]

  static func cases() throws -> [(String, String?)] {
    try BuiltInStagesTests.all().map(\.spec.name).filter { !skipped.contains($0) }.flatMap { name in
      (settings[name] ?? []).map { (name, $0) } + (settings[name] == nil ? [(name, nil)] : [])
    }
  }

  @Test(arguments: try Self.cases()) func builtInStagesPass(_ name: String, _ text: String?) throws {
    let descriptor = try #require(try BuiltInStagesTests.all().first { $0.spec.name == name })
    let (settings, findings) = ConformanceTest.settings(descriptor, text)
    let chosen = try #require(settings, "\(findings)")
    let folder = TemporaryFolder()
    let test = ConformanceTest(descriptor, chosen, folder: PathBytes(folder.path))
    #expect(test.obstacle == nil)
    let card = ConformanceCard { line, _ in
      // Other tests take memory at the same time, and stages that are slow without optimisation are no hang.
      line == .leaks || line == .cancellation ? .notApplicable("not here") : test.verdict(line)
    }
    for (line, verdict) in card.verdicts where verdict.state == .fail {
      Issue.record("\(name) \(text ?? ""), \(line.rawValue): \(verdict.found)")
    }
    #expect(card.count(.pass) >= 6)
  }

  @Test func everyStageIsTestedOrSkippedByName() throws {
    let names = Set(try BuiltInStagesTests.all().map(\.spec.name))
    #expect(names.isSuperset(of: Self.skipped))
    #expect(Set(try Self.cases().map(\.0)) == names.subtracting(Self.skipped))
  }
}
