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
    overrides: [(name: String, value: String)] = [], inputs: [String] = [],
    sourceLocation: Testing.SourceLocation = #_sourceLocation
  ) -> [Diagnostic] {
    let source = MarkedSource(marked)
    var loader = JobLoader(registry: Self.registry()) { environment[$0] }
    loader.overrides = overrides
    loader.inputGlobs = inputs
    let loaded = loader.load(source.file.text, name: "job.json", folder: "/jobs")
    let found = loaded.diagnostics
    #expect(found.map(\.code) == codes, "\(found.map(\.message))", sourceLocation: sourceLocation)
    let marks = source.ranges.sorted { ($0.start, $0.end) < ($1.start, $1.end) }
    #expect(found.map(\.range) == marks.map(Optional.some), "\(found.map(\.message))", sourceLocation: sourceLocation)
    #expect((loaded.job == nil) == found.hasErrors, sourceLocation: sourceLocation)
    return found
  }

  private func chain(_ stages: String, input: String = #""input": { "files": ["*.jpg"] }"#, more: String = "") -> String
  {
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
      chain(
        #"{ "stage": "decode" }, { "stage": "resize", ⟦"widht"⟧: 10, "height": 5 }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }"#,
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
      chain(
        """
        { "stage": "decode" }, { "stage": "resize", "width": \(value), "height": 5 },
        { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
        """), code)
  }

  @Test func aNumberInAStringIsExplained() {
    let found = expectFindings(
      chain(
        """
        { "stage": "decode" }, { "stage": "resize", "width": ⟦"800"⟧, "height": 5 },
        { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
        """), "wrong-type")
    #expect(found.first?.message == #""width" expects an integer from 1 to 65500 (pixels), got the string "800""#)
    #expect(found.first?.hint == "write 800 without quotes")
  }

  @Test func twoAndTwoThousandAreIntegersHoweverWritten() {
    expectFindings(
      chain(
        """
        { "stage": "decode" }, { "stage": "resize", "width": 2e3, "height": 5.0 },
        { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
        """))
  }

  @Test func aMaskIsAskedForByANameThatAStageGives() {
    let tail = #", { "stage": "encode", "format": "png" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }"#
    let segment = #"{ "stage": "decode" }, { "stage": "segment", "name": "person" }"#
    expectFindings(chain(segment + #", { "stage": "matte", "use": "person" }"# + tail))
    let near = expectFindings(chain(segment + #", { "stage": "matte", "use": ⟦"persno"⟧ }"# + tail), "unknown-matte")
    #expect(near.first?.hint == #"did you mean "person"?"#)
    expectFindings(
      chain(#"{ "stage": "decode" }, { "stage": "segment" }, { "stage": "matte", "use": ⟦"dog"⟧ }"# + tail),
      "unknown-matte")
    // What decode reads anew has no mask of before.
    expectFindings(
      chain(
        segment + #", { "stage": "decode" }, { "stage": "segment" }, { "stage": "matte", "use": ⟦"person"⟧ }"# + tail),
      "unknown-matte")
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
      #"{ "stage": "decode" }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": ⟦"${env.OUT}/${item.stem}.${ext}"⟧ }"#
    )
    let found = expectFindings(job, "environment-unset")
    #expect(found.first?.severity == .warning)
    expectFindings(job.replacing("⟦", with: "").replacing("⟧", with: ""), environment: ["OUT": "x"])
  }

  /// What the environment holds is text, never a template of its own.
  @Test func environmentValuesAreNotReadAsTemplates() {
    let text = chain(
      #"{ "stage": "decode" }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${env.X}/${item.stem}.${ext}" }"#
    )
    let loaded = JobLoader(registry: Self.registry()) { _ in "a${item.name}b" }
      .load(Array(text.utf8), name: "job.json", folder: "/jobs")
    let rendered = loaded.job?.stages[2].plan.outputs.first?.render { Array("<\($0.name)>".utf8) }
    #expect(rendered.map { String(decoding: $0, as: UTF8.self) } == "out/a${item.name}b/<item.stem>.<ext>")
  }

  @Test func secretsStandInCredentialFieldsOnly() {
    expectFindings(
      chain(
        #"{ "stage": "decode" }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": ⟦"out/${secret.KEY}/${item.stem}"⟧ }"#
      ),
      "secret-not-allowed")
  }

  /// A value of --set has no place in the job: what is wrong in it is found where it is used.
  @Test func valuesOfSetAreFoundWhereTheyAreUsed() {
    let text = chain(
      """
      { "stage": "decode" }, { "stage": "segment" }, { "stage": "composite", "background": ⟦⟦"${vars.behind}"⟧⟧ },
      { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
      """, more: #" "vars": { "behind": { "color": "white" } },"#)
    let found = expectFindings(
      text, "unknown-value", "out-of-range",
      overrides: [
        ("behind", #"{ "gradient": { "kind": "liner", "stops": [{ "color": "red", "at": 7 }, { "color": "blue" }] } }"#)
      ])
    #expect(
      found.map(\.path) == [
        "$.stages[2].background.gradient.kind", "$.stages[2].background.gradient.stops[0].at",
      ])
  }

  @Test func valuesOfVariablesAreFoundWhereTheyAreUsed() {
    let found = expectFindings(
      chain(
        """
        { "stage": "decode" }, { "stage": "segment" }, { "stage": "composite", "background": ⟦"${vars.behind}"⟧ },
        { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
        """, more: #" "vars": { "blur": { "blur": 9000 }, "behind": { "original": "${vars.blur}" } },"#), "out-of-range"
    )
    #expect(found.first?.path == "$.stages[2].background.original.blur")
  }

  @Test func aVariableThatIsWrongTwiceUsedIsFoundOnce() {
    expectFindings(
      chain(
        whole,
        more: #" "vars": { "a": { "b": ⟦"${vars.gone}"⟧ } }, "limits": "${vars.a}", "run": "${vars.a}","#),
      "unknown-variable")
  }

  @Test func variablesThatNothingUsesAreCheckedToo() {
    expectFindings(
      chain(
        whole, more: #" "vars": { "a": ⟦"${vars.gone}"⟧, "b": "${vars.c}", "c": ["${vars.d}"], "d": ⟦"${vars.b}"⟧ },"#),
      "unknown-variable", "variable-cycle")
    // What is not set matters only where it is used.
    expectFindings(chain(whole, more: #" "vars": { "a": "${env.GONE}" },"#))
  }

  private func chained(_ count: Int, backwards: Bool = false) -> String {
    var members = (0..<count).map { index in
      "\"v\(index)\": \"\(index == count - 1 ? "end" : "${vars.v\(index + 1)}")\""
    }
    if backwards { members.reverse() }
    return chain(whole, more: " \"vars\": { \(members.joined(separator: ", ")) }, \"name\": \"${vars.v0}\",")
  }

  @Test func variablesInVariablesHaveABound() throws {
    #expect(lint(chained(32)).isEmpty)
    for count in [33, 20_000] {
      #expect(lint(chained(count)).map(\.code) == ["variable-depth"])
      #expect(lint(chained(count, backwards: true)).map(\.code) == ["variable-depth"])
    }
    // Each of them nests a little, all of them too much.
    let nested = (0..<31).map {
      "\"v\($0)\": \(String(repeating: "[", count: 20))\"${vars.v\($0 + 1)}\"\(String(repeating: "]", count: 20))"
    }
    let text = chain(whole, more: " \"vars\": { \(nested.joined(separator: ", ")), \"v31\": 1 },")
    #expect(lint(text).map(\.code) == ["variable-depth"])
  }

  /// Each variable holds ten of the next, so that nine of them would be 10⁹ values.
  @Test func whatVariablesBringInHasABound() {
    func text(_ levels: Int, _ value: (String) -> String) -> String {
      let members = (0..<levels).map { "\"v\($0)\": \(value("${vars.v\($0 + 1)}"))" }
      return chain(whole, more: " \"vars\": { \(members.joined(separator: ", ")), \"v\(levels)\": \"x\" },")
    }
    func list(_ use: String) -> String { "[" + Array(repeating: "\"\(use)\"", count: 10).joined(separator: ", ") + "]" }
    func joined(_ use: String) -> String { "\"" + String(repeating: use, count: 10) + "\"" }
    #expect(lint(text(4, list)).isEmpty)
    #expect(lint(text(9, list)).map(\.code) == ["variable-size"])
    #expect(lint(text(5, joined)).isEmpty)
    #expect(lint(text(9, joined)).map(\.code) == ["variable-size"])
  }

  @Test func anEnvironmentVariableIsTextWhateverItHolds() {
    func job(_ vars: String, _ width: String) -> String {
      chain(
        """
        { "stage": "decode" }, { "stage": "resize", "width": ⟦"\(width)"⟧, "height": 5 },
        { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
        """, more: #" "vars": \#(vars),"#)
    }
    for (vars, width) in [
      ("{}", "${env.WIDTH}"), (#"{ "w": "${env.WIDTH}" }"#, "${vars.w}"), (#"{ "w": "${env.WIDTH}" }"#, "${vars.w}0"),
    ] {
      let found = expectFindings(job(vars, width), "wrong-type", environment: ["WIDTH": "80"])
      #expect(found.first?.hint?.contains("an environment variable is text") == true, "\(width)")
    }
    let found = expectFindings(job(#"{ "w": "800" }"#, "${vars.w}"), "wrong-type")
    #expect(found.first?.hint == "write 800 without quotes")
  }

  /// A value that is not known yet is nothing to plan with, however deep it lies.
  @Test(arguments: [
    #"{ "stage": "composite", "background": { "original": { "blur": "${env.GONE}" } } }"#,
    #"{ "stage": "composite", "background": { "image": "${env.GONE}" } }"#,
    #"{ "stage": "composite", "background": "${env.GONE}" }"#,
    #"{ "stage": "composite", "background": { "gradient": { "stops": ["${env.GONE}", { "color": "red" }] } } }"#,
    #"{ "stage": "encode", "format": "${env.GONE}" }"#,
  ])
  func valuesThatAreNotKnownYet(_ stage: String) {
    let loaded = JobLoader(registry: Self.registry()) { _ in nil }.load(
      Array(
        chain(
          """
          { "stage": "decode" }, { "stage": "segment" }, \(stage), { "stage": "encode", "format": "jpeg" },
          { "stage": "write", "to": "out/${item.stem}.${ext}" }
          """
        ).utf8), name: "job.json", folder: "/jobs")
    #expect(loaded.job == nil)
    #expect(loaded.diagnostics.map(\.code) == ["environment-unset"])
  }

  @Test(arguments: [#""${env.GONE}""#, #"{ "files": "${env.GONE}" }"#])
  func inputThatIsNotKnownYet(_ input: String) {
    let loaded = JobLoader(registry: Self.registry()) { _ in nil }.load(
      Array(chain(whole, input: "\"input\": \(input)").utf8), name: "job.json", folder: "/jobs")
    #expect(loaded.job == nil)
    #expect(loaded.diagnostics.map(\.code) == ["environment-unset"])
  }

  // MARK: Chains

  @Test func chainsWithoutOutput() {
    expectFindings(chain(#"{ "stage": ⟦"decode"⟧ }"#), "chain-no-output")
  }

  @Test func encodeBeforeDecode() {
    let found = expectFindings(
      chain(
        #"{ "stage": ⟦"encode"⟧, "format": "jpeg" }, { "stage": "decode" }, { "stage": "write", "to": "out/${item.stem}" }"#
      ),
      "chain-missing")
    #expect(found.first?.hint?.contains("put it before") == true)
  }

  @Test func compositeWithoutMaskOrAlpha() {
    let found = expectFindings(
      chain(
        """
        { "stage": "decode" }, { "stage": ⟦"composite"⟧, "background": { "color": "#fff" } },
        { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
        """), "chain-missing")
    #expect(found.first?.hint?.contains("segment") == true)
    #expect(found.first?.hint?.contains("existingAlpha") == true)
  }

  @Test func frameWithoutMaskOrAlpha() {
    let found = expectFindings(
      chain(
        """
        { "stage": "decode" }, { "stage": ⟦"frame"⟧ },
        { "stage": "encode", "format": "png" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
        """), "chain-missing")
    #expect(found.first?.hint?.contains("segment") == true)
    #expect(found.first?.hint?.contains("existingAlpha") == true)
  }

  @Test func compositeOfPicturesThatBringTheirAlpha() {
    expectFindings(
      chain(
        """
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
      chain(
        """
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
      chain(
        #"{ "stage": ⟦"decoed"⟧ }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}" }"#
      ),
      "unknown-stage")
    #expect(found.first?.hint == #"did you mean "decode"?"#)
  }

  @Test func outputsThatMustCollide() {
    expectFindings(
      chain(
        #"{ "stage": "decode" }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": ⟦"out/result.jpg"⟧ }"#
      ),
      "output-collision")
    expectFindings(
      chain(
        #"{ "stage": "decode" }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/result.jpg" }"#,
        input: #""input": { "files": ["one.jpg"] }"#))
    expectFindings(
      chain(
        """
        { "stage": "decode" }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/${item.stem}.jpg" },
        { "stage": "encode", "format": "jpeg", "quality": 10 }, { "stage": "write", "to": ⟦"out/${item.stem}.${ext}"⟧ }
        """), "output-collision")
  }

  private func writing(_ to: String, input: String) -> String {
    chain(
      #"{ "stage": "decode" }, { "stage": "encode", "format": "png" }, { "stage": "write", "to": \#(to) }"#,
      input: "\"input\": \(input)")
  }

  /// `--input` stands in for the job's own input in every rule.
  @Test func oneNameForAllOfTheInputGiven() {
    let free = writing(#""out.png""#, input: #"{ "files": ["*.jpg"] }"#)
    let refused = writing(#"⟦"out.png"⟧"#, input: #"{ "files": ["one.jpg"] }"#)
    expectFindings(free, inputs: ["one.jpg"])
    expectFindings(free, inputs: [#"a\*b.jpg"#])
    expectFindings(refused, "output-collision", inputs: ["one.jpg", "two.jpg"])
    expectFindings(refused, "output-collision", inputs: ["*.jpg"])
  }

  /// A list may have one line: only the planner, which reads it, can tell.
  @Test func oneNameForAllOfAnInput() {
    expectFindings(writing(#""out.png""#, input: #"{ "list": "names.txt" }"#))
    expectFindings(writing(#""out.png""#, input: #"{ "manifest": "table.csv" }"#))
    expectFindings(writing(#"⟦"out.png"⟧"#, input: #"{ "directory": "photos" }"#), "output-collision")
    expectFindings(writing(#"⟦"out.png"⟧"#, input: #"{ "files": ["a.jpg", "b.jpg"] }"#), "output-collision")
  }

  @Test func endingsOfAnotherFormat() {
    func job(_ to: String) -> String { writing(to, input: #"{ "files": ["*.jpg"] }"#) }
    let found = expectFindings(job(#"⟦"out/${item.stem}.jpg"⟧"#), "ending-mismatch")
    #expect(found.first?.severity == .warning)
    #expect(found.first?.hint?.contains("${ext}") == true)
    expectFindings(job(#"⟦"out/${item.stem}.JPEG"⟧"#), "ending-mismatch")
    for name in [
      "${item.stem}.PNG", "${item.stem}.${ext}", "${item.stem}.bak", "v1.jpg/${item.stem}", "${item.dir}/${item.name}",
    ] {
      expectFindings(job("\"out/\(name)\""))
    }
    expectFindings(job(#""out/${item.stem}.tiff""#).replacing(#""png""#, with: #""tiff""#))
  }

  @Test func jpegInTIFFOfACutOut() {
    func job(_ between: String, _ compression: String) -> String {
      chain(
        """
        { "stage": "decode" }, { "stage": "segment" }, \(between)
        { "stage": "encode", "format": "tiff", "compression": \(compression) },
        { "stage": "write", "to": "out/${item.stem}.${ext}" }
        """)
    }
    let found = expectFindings(job("", #"⟦"jpeg"⟧"#), "chain-refused")
    #expect(found.first?.hint?.contains("lzw") == true)
    expectFindings(job(#"{ "stage": "resize", "width": 5 },"#, #"⟦"jpeg"⟧"#), "chain-refused")
    expectFindings(job("", #""lzw""#))
    expectFindings(job(##"{ "stage": "composite", "background": { "color": "#fff" } },"##, #""jpeg""#))
    expectFindings(
      job(#"{ "stage": "composite", "background": { "color": "transparent" } },"#, #"⟦"jpeg"⟧"#), "chain-refused")
  }

  @Test(arguments: [
    (#""width": ⟦20000⟧, "height": 10, "fit": "contain""#, "webp", true),
    (#""width": 10, "height": ⟦16384⟧, "fit": "cover", "enlarge": true"#, "webp", true),
    (#""width": ⟦16384⟧, "enlarge": true"#, "webp", true),
    (#""width": ⟦17000⟧, "height": 18000, "enlarge": true"#, "avif", true),
    // Small pictures stay small, or the other side is the one that is met.
    (#""width": 20000, "height": 10, "fit": "cover""#, "webp", false),
    (#""width": 20000"#, "webp", false),
    (#""width": 20000, "height": 10, "enlarge": true"#, "webp", false),
    (#""width": 16384, "height": 10, "fit": "contain""#, "avif", false),
    (#""width": 20000, "height": 10, "fit": "contain""#, "png", false),
  ])
  func sidesBeyondTheEncoder(_ settings: String, _ format: String, _ isRefused: Bool) {
    let text = chain(
      """
      { "stage": "decode" }, { "stage": "resize", \(settings) }, { "stage": "encode", "format": "\(format)" },
      { "stage": "write", "to": "out/${item.stem}.${ext}" }
      """)
    if isRefused { expectFindings(text, "side-too-long") } else { expectFindings(text) }
  }

  @Test(arguments: ["out/", "..", "out/${item.stem}/..", "out/${item.stem}/"])
  func outputsThatAreFolders(_ to: String) {
    let found = expectFindings(
      chain(
        #"{ "stage": "decode" }, { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": ⟦"\#(to)"⟧ }"#,
        input: #""input": { "files": ["one.jpg"] }"#), "output-name")
    #expect(found.first?.hint?.contains("${item.stem}") == true)
  }

  @Test func findingsAreBounded() {
    let keys = (0..<3_000).map { "\"k\($0)\": 1" }.joined(separator: ", ")
    let found = lint(chain(whole, more: " \(keys),"))
    #expect(found.count == 1_001)
    #expect(found.last?.message == "2000 more findings")
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
      chain(
        """
        { "stage": "decode" }, { "stage": "resize", "width": "${vars.size}", "height": 5, "fit": "cover", "position": "attention" },
        { "stage": "encode", "format": "jpeg", "quality": 80 }, { "stage": "write", "to": "out/${item.stem}-${env.X}.${ext}" }
        """, more: #" "vars": { "size": 640 }, "run": { "onError": "stop", "deadline": 10 },"#
      ).utf8)
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
