import JobSyntax
import PipelineKit
import Stages
import TestSupport
import Testing

@testable import Engine

/// What lint says of branches, conditions and filters, and what the planner makes of them.
@Suite struct BranchLintTests {
  private static let write = #"{ "stage": "write", "to": "out/${item.stem}.${ext}" }"#
  private static let jpeg = #"{ "stage": "encode", "format": "jpeg" }"#
  private static let segment = #"{ "stage": "segment" }"#
  private static let white = #"{ "stage": "composite", "background": { "color": "white" } }"#
  private static let wide = #""when": { "image.width": { "gt": 2000 } }"#
  private static let shoes = #""when": { "item.dir": { "eq": "shoes" } }"#

  private static func when(_ stage: String, _ condition: String) -> String { "\(stage.dropLast(2)), \(condition) }" }

  /// Lints a chain after decode and expects these codes at the marks.
  @discardableResult
  private func expect(
    _ chain: String, _ codes: String..., decode: String = #"{ "stage": "decode" },"#, input: String? = nil,
    folder: PathBytes = "/jobs", sourceLocation: Testing.SourceLocation = #_sourceLocation
  ) -> (job: Job?, found: [Diagnostic]) {
    let source = MarkedSource(
      #"{ "version": 1, "input": \#(input ?? #"{ "files": ["**/*.jpg"] }"#), "stages": [\#(decode) \#(chain)] }"#)
    let loaded = JobLoader(registry: LintTests.registry()).load(source.file.text, name: "job.json", folder: folder)
    let found = loaded.diagnostics
    #expect(found.map(\.code) == codes, "\(found.map(\.message))", sourceLocation: sourceLocation)
    let marks = source.ranges.sorted { ($0.start, $0.end) < ($1.start, $1.end) }
    #expect(found.map(\.range) == marks.map(Optional.some), "\(found.map(\.message))", sourceLocation: sourceLocation)
    #expect((loaded.job == nil) == found.hasErrors, sourceLocation: sourceLocation)
    return (loaded.job, found)
  }

  private func branch(_ tails: String, more: String = "") -> String {
    #"{ "stage": "branch"\#(more), "branches": { \#(tails) } }"#
  }

  private func tail(_ name: String, _ stages: String = "") -> String {
    #""\#(name)": [\#(stages.isEmpty ? "" : stages + ", ")\#(Self.jpeg), "#
      + #"{ "stage": "write", "to": "out/\#(name)/${item.dir}/${item.stem}.${ext}" }]"#
  }

  // MARK: Shape

  @Test func tailsAreReadDepthFirst() throws {
    let inner = branch(tail("x") + ", " + tail("y", #"{ "stage": "resize", "width": 9 }"#))
    let (job, _) = expect(
      #"{ "stage": "resize", "width": 90 }, "#
        + branch(
          tail("a") + #", "b": [{ "stage": "resize", "width": 50 }, \#(inner)], "#
            + tail("c", Self.jpeg + ", " + #"{ "stage": "write", "to": "first/${item.path}" }"#)))
    let stages = try #require(job?.stages)
    #expect(
      stages.map(\.label) == [
        "decode", "resize", "branch", "a/encode", "a/write", "b/resize", "b/branch", "b/x/encode", "b/x/write",
        "b/y/resize", "b/y/encode", "b/y/write", "c/encode", "c/write", "c/encode 2", "c/write 2",
      ])
    #expect(stages.map(\.predecessor) == [nil, 0, 1, 2, 3, 2, 5, 6, 7, 6, 9, 10, 2, 12, 13, 14])
    #expect(stages[9].settings.path == "$.stages[2].branches.b[1].branches.y[0]")
    #expect(job?.namesSourceHash == false)
  }

  @Test func whatIsWrongWithTails() {
    expect(#"{ "stage": "branch", "branches": ⟦[]⟧ }"#, "wrong-type")
    expect(#"{ "stage": "branch", "branches": ⟦{}⟧ }"#, "empty-chain")
    expect(#"{ "stage": "branch", "branches": { "a": ⟦[]⟧, "b": ⟦1⟧ } }"#, "empty-chain", "wrong-type")
    expect(branch(tail("a")).replacing(#""a":"#, with: #"⟦"a b"⟧:"#), "wrong-value")
    let nested = expect(
      branch(#""a": [{ "stage": ⟦"resise"⟧ }, { "stage": "resize", "width": ⟦"9"⟧ }], "b": [⟦7⟧]"#),
      "unknown-stage", "wrong-type", "wrong-type")
    #expect(
      nested.found.map(\.path) == [
        "$.stages[1].branches.a[0].stage", "$.stages[1].branches.a[1].width", "$.stages[1].branches.b[0]",
      ])
  }

  @Test func nothingComesAfterABranch() {
    let found = expect(
      branch(tail("a"))
        + #", { "stage": ⟦"encode"⟧, "format": "png" }, { "stage": ⟦"write"⟧, "to": "o/${item.path}" }"#,
      "branch-not-last", "branch-not-last"
    ).found
    #expect(found.first?.hint == #"put it before "branch", or into the tails"#)
  }

  @Test func tailsAreCheckedLikeChains() {
    expect(
      branch(#""a": [{ "stage": ⟦"write"⟧, "to": "out/${item.path}" }], "# + tail("b")), "chain-missing")
    expect(branch(#""a": [{ "stage": ⟦"encode"⟧, "format": "png" }], "# + tail("b")), "chain-no-output")
    expect(branch(#""a": [{ "stage": ⟦"sharpen"⟧ }], "# + tail("b")), "chain-no-output")
    // One tail may write what another replaces.
    expect(
      Self.jpeg + ", "
        + branch(#""a": [{ "stage": "write", "to": "out/a/${item.path}" }], "# + tail("b", #"{ "stage": "sharpen" }"#)))
    expect(
      Self.segment + ", " + branch(tail("a", Self.white) + ", " + tail("b", #"{ "stage": "matte", "use": ⟦"dog"⟧ }"#)),
      "unknown-matte")
    // The ending is the tail's own.
    expect(
      branch(
        tail("a")
          + #", "b": [{ "stage": "encode", "format": "png" }, { "stage": "write", "to": ⟦"b/${item.stem}.jpg"⟧ }]"#),
      "ending-mismatch")
  }

  @Test func tailsThatWriteTheSameFile() {
    let same = #"[\#(Self.jpeg), { "stage": "write", "to": "out/${item.path}" }]"#
    let marked = #"[\#(Self.jpeg), { "stage": "write", "to": ⟦"out/${item.path}"⟧ }]"#
    let found = expect(branch(#""a": \#(same), "b": \#(marked)"#), "output-collision").found
    #expect(found.first?.message == #"stages "a/write" and "b/write" write the same file: out/${item.path}"#)
    // Conditions may keep them apart.
    let other = #"[\#(Self.jpeg), { "stage": "write", "to": "out/${item.path}", \#(Self.shoes) }]"#
    let unlike = #"[{ "stage": "filter", "if": { "item.dir": { "ne": "shoes" } } }, "# + same.dropFirst()
    expect(branch(#""a": \#(unlike), "b": \#(other)"#))
    expect(
      #"{ "stage": "filter", "if": { "item.dir": { "ne": "shoes" } } }, "# + branch(#""a": \#(same), "b": \#(marked)"#),
      "output-collision")
  }

  // MARK: Conditions

  @Test func whatAConditionIs() {
    func filter(_ condition: String) -> String {
      #"{ "stage": "filter", "if": \#(condition) }, \#(Self.jpeg), \#(Self.write)"#
    }
    expect(filter(#"{ "item.index": { "lt": 5 }, "any": [{ "image.aspect": { "gt": 1.5 } }] }"#))
    expect(filter("⟦{}⟧"), "wrong-value")
    expect(filter(#"⟦"image.width"⟧"#), "wrong-type")
    let near = expect(filter(#"{ ⟦"image.widht"⟧: { "gt": 5 } }"#), "unknown-key").found
    #expect(near.first?.hint == #"did you mean "image.width"?"#)
    expect(filter(#"{ "image.width": { ⟦"above"⟧: 5 } }"#), "unknown-key")
    expect(filter(#"{ "image.width": ⟦5⟧ }"#), "wrong-type")
    expect(filter(#"{ "image.width": { "gt": ⟦"5"⟧ } }"#), "wrong-type")
    expect(filter(#"{ "image.width": { ⟦"matches"⟧: "5*" } }"#), "unknown-key")
    expect(filter(#"{ "image.format": { "in": ["jpeg", ⟦"jpg"⟧] } }"#), "unknown-value")
    expect(filter(#"{ "image.hasAlpha": { "eq": ⟦"yes"⟧ } }"#), "wrong-type")
    expect(filter(#"{ "all": ⟦{ "image.width": { "gt": 5 } }⟧ }"#), "wrong-type")
    expect(filter(#"{ "not": { ⟦"or"⟧: 1 } }"#), "unknown-key")
    expect(filter(#"{ ⟦"item.price"⟧: { "gt": 5 } }"#), "unknown-key")
    expect(filter(#"{ "item.stem": { "eq": ⟦"${item.name}"⟧ } }"#), "variable-not-allowed")
  }

  @Test func columnsOfTheManifest() {
    let folder = TemporaryFolder()
    folder.write("path,price,kind\na.jpg,5,shoe\n", to: "shop.csv")
    let input = #"{ "manifest": "shop.csv" }"#
    func filter(_ condition: String) -> String {
      #"{ "stage": "filter", "if": \#(condition) }, \#(Self.jpeg), \#(Self.write)"#
    }
    let base = PathBytes(folder.path)
    expect(filter(#"{ "item.price": { "gt": 5 }, "item.kind": { "in": ["a", "b"] } }"#), input: input, folder: base)
    let near = expect(filter(#"{ ⟦"item.prize"⟧: { "gt": 5 } }"#), "unknown-key", input: input, folder: base).found
    #expect(near.first?.hint == #"did you mean "item.price"?"#)
    expect(filter(#"{ "item.kind": { "in": ["a", ⟦5⟧] } }"#), "wrong-type", input: input, folder: base)
    expect(filter(#"{ "item.price": { "gt": ⟦"5"⟧ } }"#), "wrong-type", input: input, folder: base)
  }

  @Test func whatIsNotKnownYet() {
    let rest = #", { "stage": "decode" }, \#(Self.jpeg), \#(Self.write)"#
    expect(#"{ "stage": "filter", "if": { "item.ext": { "eq": "jpg" } } }"# + rest, decode: "")
    let early = expect(
      #"{ "stage": "filter", "if": ⟦{ "image.width": { "gt": 5 } }⟧ }"# + rest, "condition-too-early", decode: ""
    ).found
    #expect(early.first?.message == #"image.width is not known at stage "filter""#)
    #expect(early.first?.hint == #"put it after a "decode" stage"#)
    let matte = #"{ "stage": "filter", "if": ⟦{ "matte.score": { "gt": 0.5 } }⟧ }, \#(Self.jpeg), \#(Self.write)"#
    expect(matte, "condition-too-early")
    expect(Self.segment + ", " + matte.replacing("⟦", with: "").replacing("⟧", with: ""))
    expect(Self.when(Self.segment, Self.shoes) + ", " + matte, "condition-too-early")
  }

  @Test func whatAConditionalStageGivesIsNotCertain() {
    let rest = ", \(Self.jpeg), \(Self.write)"
    let found = expect(
      Self.when(Self.segment, Self.wide) + #", { "stage": ⟦"composite"⟧, "background": { "color": "white" } }"# + rest,
      "chain-uncertain"
    ).found
    #expect(
      found.first?.message.contains(#"which stage "segment" gives only to pictures for which its "when" holds"#) == true
    )
    // Under the same condition it is.
    expect(Self.when(Self.segment, Self.wide) + ", " + Self.when(Self.white, Self.wide) + rest)
    expect(
      Self.when(Self.segment, Self.wide) + ", "
        + Self.when(#"{ "stage": ⟦"composite"⟧, "background": { "color": "white" } }"#, Self.shoes) + rest,
      "chain-uncertain")
    // Unless what it compares has changed since.
    let resize = #"{ "stage": "resize", "width": 90 }"#
    let changed = Self.when(#"{ "stage": ⟦"composite"⟧, "background": { "color": "white" } }"#, Self.wide)
    let sides = expect(Self.when(Self.segment, Self.wide) + ", \(resize), " + changed + rest, "chain-uncertain").found
    #expect(sides.first?.message.contains("sides have changed since") == true)
    expect(Self.when(Self.segment, Self.shoes) + ", \(resize), " + Self.when(Self.white, Self.shoes) + rest)
    // A branch with the condition holds it for its tails.
    expect(Self.when(Self.segment, Self.shoes) + ", " + branch(tail("a", Self.white), more: ", " + Self.shoes))
  }

  @Test func whatAConditionalStageTakesIsNotCertainEither() {
    let found = expect(
      Self.jpeg + ", " + Self.when(#"{ "stage": "resize", "width": 90 }"#, Self.wide)
        + #", { "stage": ⟦"write"⟧, "to": "out/${item.path}" }"#, "chain-uncertain"
    ).found
    #expect(found.first?.hint == #"put a "encode" stage between the two"#)
    expect(Self.when(#"{ "stage": "resize", "width": 90 }"#, Self.wide) + ", \(Self.jpeg), \(Self.write)")
    // A job may write for some pictures only.
    expect(Self.jpeg + ", " + Self.when(Self.write, Self.shoes))
  }

  @Test func whenIsAFieldOfEveryStage() throws {
    for descriptor in LintTests.registry().all {
      #expect(descriptor.shape.fields.contains { $0.name == "when" }, "\(descriptor.spec.name)")
    }
    struct Taken: Stage {
      static let spec = StageSpec(
        name: "acme.taken", summary: "Takes a name.",
        fields: [Field<Bool>.boolean("when", default: false, help: "whatever")], examples: [])
      static func plan(_ settings: Settings) -> StagePlan { StagePlan(accepts: .source) }
      init(_ settings: Settings, resources: StageResources) throws(StageError) {}
      func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome { .next(item) }
    }
    var registry = StageRegistry()
    let error = #expect(throws: StageError.self) { try registry.register(Taken.self) }
    #expect(error?.code == "stage-field-taken")
  }

  // MARK: Plans

  private func plan(_ chain: String, files: [String], existing: [String] = []) throws -> (RunPlan, JobRun) {
    let folder = TemporaryFolder()
    for name in files { folder.write("x", to: "in/" + name) }
    for name in existing { folder.write("x", to: name) }
    let (job, _) = expect(chain, input: #"{ "files": ["in/**/*.jpg"] }"#, folder: PathBytes(folder.path))
    let run = JobRun(job: try #require(job), options: RunOptions())
    return (try run.plan(), run)
  }

  @Test func filtersAreDecidedInThePlan() throws {
    let rest = ", \(Self.jpeg), \(Self.write)"
    let (plan, _) = try plan(
      #"{ "stage": "filter", "if": { "item.stem": { "matches": "*-final" } }, "reason": "a draft" }"# + rest,
      files: ["a-final.jpg", "b.jpg"])
    #expect(plan.decisions == [1: .drop("a draft")])
    guard case .decided(let record) = plan.item(at: 1) else {
      Issue.record("it is worked on")
      return
    }
    #expect(record.status == .dropped)
    #expect(record.reason == "a draft")
    // What is written before is written.
    let (late, _) = try self.plan(
      #"\#(Self.jpeg), { "stage": "write", "to": "all/${item.path}" }, { "stage": "filter", "if": { "item.index": { "gt": 0 } } }"#
        + rest, files: ["a.jpg", "b.jpg"])
    #expect(late.decisions.isEmpty)
    // One that looks at the picture waits for it.
    let (image, _) = try self.plan(
      #"{ "stage": "filter", "if": { "image.width": { "gt": 0 } } }"# + rest, files: ["a.jpg"])
    #expect(image.decisions.isEmpty)
  }

  @Test func outputsOfTailsThatAreNotGoneDown() throws {
    let tails = branch(
      #""shoes": [{ "stage": "filter", "if": { "item.dir": { "eq": "shoes" } } }, \#(Self.jpeg), { "stage": "write", "to": "out/${item.stem}.${ext}" }],"#
        + #""rest": [\#(Self.jpeg), { "stage": "write", "to": "out/${item.stem}.${ext}", "when": { "item.dir": { "eq": "hats" } } }]"#
    )
    // Written by one tail or the other: no collision.
    let (plan, run) = try plan(tails, files: ["hats/a.jpg", "other/c.jpg", "shoes/b.jpg"], existing: [])
    #expect(plan.findings.isEmpty)
    #expect(run.outputs(of: plan, at: 0).map { $0?.lastComponent.display } == ["a.jpg"])
    #expect(run.outputs(of: plan, at: 2).map { $0?.lastComponent.display } == ["b.jpg"])
    #expect(plan.decisions == [1: .drop("nothing would be written: no condition of a stage that writes holds")])
  }

  @Test func skippedIsWhatHasAllOutputsOfAllTails() throws {
    func chain(_ name: String) -> String {
      #""\#(name)": [\#(Self.jpeg), { "stage": "write", "to": "out/\#(name)-${item.stem}.${ext}", "overwrite": "skip" }]"#
    }
    let (plan, _) = try plan(
      branch(chain("x") + ", " + chain("y")), files: ["a.jpg", "b.jpg"],
      existing: ["out/x-a.jpg", "out/y-a.jpg", "out/x-b.jpg"])
    #expect(plan.decisions == [0: .skip("every output exists already")])
  }

  @Test func dropsAreKeptOverACrash() throws {
    var file = PlanFile(
      identity: RunIdentity(runID: "r", started: 1), jobText: [], jobFile: "job.json", baseFolder: "/", reportPath: nil)
    file.decisions = [3: .drop("unwanted"), 4: .skip("there"), 5: .fail(StageError("a", "b"), stage: "write")]
    let read = try #require(file.write().flatMap { PlanFile($0) })
    #expect(read.decisions == file.decisions)
  }
}
