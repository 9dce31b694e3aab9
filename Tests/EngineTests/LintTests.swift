import JobSyntax
import PipelineKit
import Stages
import TestSupport
import Testing

@testable import Engine

/// The linter seen from outside: job files with the places of their findings marked.
@Suite struct LintTests {
  static func registry() -> StageRegistry {
    var registry = StageRegistry()
    do { try BuiltInStages.register(in: &registry) } catch { fatalError("\(error)") }
    return registry
  }

  /// Lints a marked job and expects exactly these codes at the marks, in order of their places.
  @discardableResult
  private func expectFindings(
    _ marked: String, _ codes: String..., environment: [String: String] = [:],
    overrides: [(name: String, value: String)] = [],
    sourceLocation: Testing.SourceLocation = #_sourceLocation
  ) -> [Diagnostic] {
    let source = MarkedSource(marked)
    var loader = JobLoader(registry: Self.registry()) { environment[$0] }
    loader.overrides = overrides
    let loaded = loader.load(source.file.text, name: "job.json", folder: "/jobs")
    let found = loaded.diagnostics
    #expect(found.map(\.code) == codes, "\(found.map(\.message))", sourceLocation: sourceLocation)
    let marks = source.ranges.sorted { ($0.start, $0.end) < ($1.start, $1.end) }
    #expect(found.map(\.range) == marks.map(Optional.some), "\(found.map(\.message))", sourceLocation: sourceLocation)
    #expect((loaded.job == nil) == found.hasErrors, sourceLocation: sourceLocation)
    return found
  }

  private func chain(_ stages: String, input: String = #""input": { "files": ["*.jpg"] }"#, more: String = "") -> String {
    """
    { "version": 1, \(input),\(more)
      "stages": [\(stages)] }
    """
  }

  private let whole = """
    { "stage": "decode" }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
    """

  @Test func aSoundJobHasNoFindings() {
    expectFindings(chain(whole))
  }

  @Test func unknownKeysAndTheirNearestNames() {
    let found = expectFindings(
      chain(#"{ "stage": "decode" }, { "stage": "resize", ⟦"widht"⟧: 10, "height": 5 }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }"#,
        more: #" ⟦"stagse"⟧: [],"#),
      "unknown-key", "unknown-key")
    #expect(found.map(\.hint) == [#"did you mean "stages"?"#, #"did you mean "width"?"#])
  }

  @Test func duplicateKeys() {
    expectFindings(chain(whole, more: #" "name": "a", ⟦"name"⟧: "b","#), "duplicate-key")
  }

  @Test func everyProblemInOnePass() {
    expectFindings(
      """
      { "version": ⟦2⟧, ⟦"nmae"⟧: "x", "input": { "files": ⟦"*.jpg"⟧ },
        "stages": [ { "stage": "decode" }, { "stage": "resize", "width": ⟦2.5⟧, "height": ⟦"800"⟧ },
          { "stage": "encode", "format": ⟦"jpg"⟧, "quality": 80 }, { "stage": "write", "to": ⟦"out/${item.stme}.${ext}"⟧ } ] }
      """,
      "out-of-range", "unknown-key", "wrong-type", "not-an-integer", "wrong-type", "unknown-value", "unknown-variable")
  }

  @Test(arguments: [
    ("⟦1e400⟧", "number-not-representable"), ("⟦-0⟧", "number-negative-zero"), ("⟦2.5⟧", "not-an-integer"),
    (#"⟦"800"⟧"#, "wrong-type"), ("⟦0⟧", "out-of-range"), ("⟦-5⟧", "out-of-range"), ("⟦1000000⟧", "out-of-range"),
    ("⟦true⟧", "wrong-type"), ("⟦null⟧", "wrong-type"), ("⟦[1]⟧", "wrong-type"),
  ])
  func numbersThatAreNoWidth(_ value: String, _ code: String) {
    expectFindings(
      chain("""
        { "stage": "decode" }, { "stage": "resize", "width": \(value), "height": 5 },
        { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
        """), code)
  }

  @Test func aNumberInAStringIsExplained() {
    let found = expectFindings(
      chain("""
        { "stage": "decode" }, { "stage": "resize", "width": ⟦"800"⟧, "height": 5 },
        { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
        """), "wrong-type")
    #expect(found.first?.message == #""width" expects an integer from 1 to 65500 (pixels), got the string "800""#)
    #expect(found.first?.hint == "write 800 without quotes")
  }

  @Test func twoAndTwoThousandAreIntegersHoweverWritten() {
    expectFindings(
      chain("""
        { "stage": "decode" }, { "stage": "resize", "width": 2e3, "height": 5.0 },
        { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
        """))
  }

  // MARK: Variables

  @Test func variablesTakeTheirType() {
    let text = chain(
      """
      { "stage": "decode" }, { "stage": "resize", "width": "${vars.size}", "height": "${vars.size}" },
      { "stage": "encode", "format": "${vars.format}" }, { "stage": "write", "to": "${vars.folder}/${item.stem}.${ext}" }
      """, more: #" "vars": { "size": 640, "format": "webp", "folder": "out-${vars.size}" },"#)
    expectFindings(text)
    let loaded = JobLoader(registry: Self.registry()).load(Array(text.utf8), name: "job.json", folder: "/jobs")
    #expect(loaded.job?.stages[3].plan.outputs.first?.text == "out-640/${item.stem}.${ext}")
  }

  @Test func unknownVariablesAreFoundOnce() {
    let found = expectFindings(
      chain(
        """
        { "stage": "decode" }, { "stage": "resize", "width": ⟦"${vars.siez}"⟧, "height": 5 },
        { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": ⟦"out/${item.stme}.${ext}"⟧ }
        """, more: #" "vars": { "size": 640 },"#), "unknown-variable", "unknown-variable")
    #expect(found.map(\.hint) == ["did you mean \"${vars.size}\"?", "did you mean \"${item.stem}\"?"])
  }

  @Test func aVariableOfTheWrongTypeIsFoundWhereItIsUsed() {
    expectFindings(
      chain(
        """
        { "stage": "decode" }, { "stage": "resize", "width": ⟦"${vars.size}"⟧, "height": 5 },
        { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
        """, more: #" "vars": { "size": "large" },"#), "wrong-type")
  }

  @Test func variablesThatDefineThemselves() {
    let found = expectFindings(
      chain(whole, more: #" "vars": { "a": "${vars.b}", "b": ⟦"${vars.a}"⟧ }, "name": "${vars.a}","#), "variable-cycle")
    #expect(found.first?.message.contains("a → b → a") == true)
  }

  @Test func setReplacesVariables() {
    let text = chain(
      """
      { "stage": "decode" }, { "stage": "resize", "width": "${vars.size}", "height": 5 },
      { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
      """, more: #" "vars": { "size": "large" },"#)
    expectFindings(text, overrides: [("size", "640")])
    let marked = text.replacing(#"{ "size": "large" }"#, with: #"⟦{ "size": "large" }⟧"#)
    expectFindings(marked, "unknown-variable", overrides: [("size", "640"), ("sise", "640")])
  }

  @Test func unsetEnvironmentIsAWarning() {
    let job = chain(
      #"{ "stage": "decode" }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": ⟦"${env.OUT}/${item.stem}.${ext}"⟧ }"#)
    let found = expectFindings(job, "environment-unset")
    #expect(found.first?.severity == .warning)
    expectFindings(job.replacing("⟦", with: "").replacing("⟧", with: ""), environment: ["OUT": "x"])
  }

  /// What the environment holds is text, never a template of its own.
  @Test func environmentValuesAreNotReadAsTemplates() {
    let text = chain(
      #"{ "stage": "decode" }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${env.X}/${item.stem}.${ext}" }"#)
    let loaded = JobLoader(registry: Self.registry()) { _ in "a${item.name}b" }
      .load(Array(text.utf8), name: "job.json", folder: "/jobs")
    let rendered = loaded.job?.stages[2].plan.outputs.first?.render { Array("<\($0.name)>".utf8) }
    #expect(rendered.map { String(decoding: $0, as: UTF8.self) } == "out/a${item.name}b/<item.stem>.<ext>")
  }

  @Test func secretsStandInCredentialFieldsOnly() {
    expectFindings(
      chain(#"{ "stage": "decode" }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": ⟦"out/${secret.KEY}/${item.stem}"⟧ }"#),
      "secret-not-allowed")
  }

  // MARK: Chains

  @Test func chainsWithoutOutput() {
    expectFindings(chain(#"{ "stage": ⟦"decode"⟧ }"#), "chain-no-output")
  }

  @Test func encodeBeforeDecode() {
    let found = expectFindings(
      chain(#"{ "stage": ⟦"encode"⟧, "format": "jpeg" }, { "stage": "decode" }, { "stage": "write", "to": "out/${item.stem}" }"#),
      "chain-missing")
    #expect(found.first?.hint?.contains("put it before") == true)
  }

  @Test func compositeWithoutMaskOrAlpha() {
    let found = expectFindings(
      chain("""
        { "stage": "decode" }, { "stage": ⟦"composite"⟧, "background": { "color": "#fff" } },
        { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
        """), "chain-missing")
    #expect(found.first?.hint?.contains("segment") == true)
    #expect(found.first?.hint?.contains("existingAlpha") == true)
  }

  @Test func compositeOfPicturesThatBringTheirAlpha() {
    expectFindings(
      chain("""
        { "stage": "decode" }, { "stage": "composite", "background": { "color": "#fff" }, "existingAlpha": true },
        { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
        """))
  }

  @Test func nothingAfterEncode() {
    expectFindings(chain(#"{ "stage": "decode" }, { "stage": ⟦"encode"⟧, "format": "jpeg" }"#), "chain-no-output")
  }

  @Test func writeBeforeEncode() {
    expectFindings(chain(#"{ "stage": "decode" }, { "stage": ⟦"write"⟧, "to": "out/${item.stem}" }"#), "chain-missing")
  }

  @Test func anEncodeThatIsNeverWritten() {
    expectFindings(
      chain("""
        { "stage": "decode" }, { "stage": "encode", "format": "jpeg" }, { "stage": ⟦"resize"⟧, "width": 10 },
        { "stage": "encode", "format": "png" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
        """), "chain-unused")
  }

  @Test func aJobWithoutInputOrStages() {
    expectFindings(#"⟦⟦{ "version": 1 }⟧⟧"#, "missing-key", "missing-key")
    expectFindings(#"{ "version": 1, "input": { "files": ["a.jpg"] }, "stages": ⟦[]⟧ }"#, "empty-chain")
    expectFindings(#"{ "version": 1, "input": ⟦{ }⟧, "stages": [\#(whole)] }"#, "missing-key")
  }

  @Test func unknownStage() {
    let found = expectFindings(
      chain(#"{ "stage": ⟦"decoed"⟧ }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}" }"#),
      "unknown-stage")
    #expect(found.first?.hint == #"did you mean "decode"?"#)
  }

  @Test func outputsThatMustCollide() {
    expectFindings(
      chain(#"{ "stage": "decode" }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": ⟦"out/result.jpg"⟧ }"#),
      "output-collision")
    expectFindings(
      chain(
        #"{ "stage": "decode" }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/result.jpg" }"#,
        input: #""input": { "files": ["one.jpg"] }"#))
    expectFindings(
      chain("""
        { "stage": "decode" }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.jpg" },
        { "stage": "encode", "format": "jpeg", "quality": 10 }, { "stage": "write", "to": ⟦"out/${item.stem}.${ext}"⟧ }
        """), "output-collision")
  }

  @Test func patternsThatCannotBe() {
    expectFindings(chain(whole, input: #""input": { "files": ["ok/*.jpg", ⟦"bad/{a,b"⟧] }"#), "glob-syntax")
  }

  @Test func timeZones() {
    expectFindings(chain(whole, more: #" "run": { "timeZone": ⟦"Europe/Atlantis"⟧ },"#), "wrong-value")
    expectFindings(chain(whole, more: #" "run": { "timeZone": "Europe/Berlin" },"#))
  }

  @Test func manifestColumnsAreKnown() {
    let folder = TemporaryFolder()
    folder.write("path,sku\na.jpg,1\n", to: "items.csv")
    let loader = JobLoader(registry: Self.registry())
    func codes(_ to: String) -> [String] {
      let text = chain(
        #"{ "stage": "decode" }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "\#(to)" }"#,
        input: #""input": { "manifest": "items.csv" }"#)
      return loader.load(Array(text.utf8), name: "job.json", folder: PathBytes(folder.path)).diagnostics.map(\.code)
    }
    #expect(codes("out/${item.sku}.${ext}") == [])
    #expect(codes("out/${item.sk}.${ext}") == ["unknown-variable"])
  }

  private func lint(_ text: String) -> [Diagnostic] {
    JobLoader(registry: Self.registry()).load(Array(text.utf8), name: "job.json", folder: "/jobs").diagnostics
  }

  /// However a sound job is damaged, linting ends, and a job is made only when nothing is wrong.
  @Test func damagedJobsNeverCrashTheLinter() {
    var generator = TestSupport.SeededGenerator(state: 42)
    let sound = Array(
      chain("""
        { "stage": "decode" }, { "stage": "resize", "width": "${vars.size}", "height": 5, "fit": "cover", "position": "attention" },
        { "stage": "encode", "format": "jpeg", "quality": 80 }, { "stage": "write", "to": "out/${item.stem}-${env.X}.${ext}" }
        """, more: #" "vars": { "size": 640 }, "run": { "onError": "stop", "deadline": 10 },"#).utf8)
    let loader = JobLoader(registry: Self.registry()) { _ in "env" }
    for _ in 0..<1_500 {
      var text = sound
      for _ in 0..<Int.random(in: 1...3, using: &generator) {
        let at = Int.random(in: 0..<text.count, using: &generator)
        switch Int.random(in: 0..<4, using: &generator) {
        case 0: text.remove(at: at)
        case 1: text[at] = UInt8.random(in: 0...255, using: &generator)
        case 2: text.insert("{}[]\",:0-e.$".utf8.randomElement(using: &generator) ?? 0, at: at)
        default: text.swapAt(at, Int.random(in: 0..<text.count, using: &generator))
        }
      }
      let loaded = loader.load(text, name: "job.json", folder: "/jobs")
      #expect((loaded.job == nil) == loaded.diagnostics.hasErrors)
    }
  }
}
