import Glibc
import JobSyntax
import PipelineKit
import Stages
import TestSupport
import Testing

@testable import Engine

@Suite struct ShardTests {
  /// Worked out with another implementation of FNV-1a and MurmurHash3's finaliser: which shard a picture is in must
  /// never change, since finished work is booked by shard.
  @Test(
    arguments: [
      ("", 0xefd0_1f60_ba99_2926), ("a", 0x82a2_a958_a9be_ce5b), ("in/p00.jpg", 0x26cd_e2e7_f424_5891),
      ("in/ü.jpg", 0xea7f_8a91_7514_b024), ("photos/IMG_0001.JPG", 0x2b8c_763d_60c5_de15),
    ] as [(String, UInt64)])
  func hashIsTheSameForEver(_ name: String, _ hash: UInt64) {
    #expect(PathBytes(name).stableHash == hash)
  }

  @Test func reads() {
    #expect(Shard(parsing: "2/4")?.label == "2-of-4")
    #expect(Shard(parsing: "1/1")?.folderName == "shard-1-of-1")
    for wrong in ["", "2", "0/4", "5/4", "/4", "2/", "-1/4", "+1/4", " 1/4", "1/4/2", "1/0", "1/1000000000", "a/b"] {
      #expect(Shard(parsing: wrong) == nil, "\(wrong)")
      #expect(ShardChoice(parsing: wrong) == nil, "\(wrong)")
    }
    #expect(ShardChoice(parsing: "auto") == .detected(count: nil))
    #expect(ShardChoice(parsing: "auto/8") == .detected(count: 8))
    for wrong in ["auto/", "auto/0", "auto/x", "Auto", "auto/1/8"] { #expect(ShardChoice(parsing: wrong) == nil) }
  }

  @Test func everyNameIsInOneShard() {
    let shards = (1...7).compactMap { Shard(index: $0, count: 7) }
    for number in 0..<1_000 {
      let name = PathBytes("x/\(number).tif")
      #expect(shards.count { $0.contains(name) } == 1)
    }
  }

  /// What a camera numbers, 10,000 pictures in 7 shards: each within 5 % of the mean.
  @Test func shardsAreEven() {
    var sizes = [Int](repeating: 0, count: 7)
    for number in 0..<10_000 {
      let digits = String(number)
      let name = PathBytes("photos/IMG_" + String(repeating: "0", count: 4 - digits.count) + digits + ".JPG")
      for index in 1...7 where Shard(index: index, count: 7)?.contains(name) == true { sizes[index - 1] += 1 }
    }
    #expect(sizes.reduce(0, +) == 10_000)
    for size in sizes { #expect(abs(Double(size) - 10_000 / 7) < 0.05 * 10_000 / 7, "\(sizes)") }
  }

  /// No kind of names is uneven beyond chance: χ² with 6 degrees of freedom is above 22.5 once in a thousand.
  @Test(arguments: ["in/%.jpg", "catalogue/%/front.png", "a%", "%", "sku-%-4-white.tif"])
  func noPatternOfNamesIsUneven(_ pattern: String) {
    var sizes = [Int](repeating: 0, count: 7)
    for number in 0..<10_000 {
      let name = PathBytes(pattern.replacing("%", with: "\(number)"))
      sizes[Int(name.stableHash % 7)] += 1
    }
    let mean = 10_000.0 / 7
    let deviation = sizes.reduce(0) { $0 + (Double($1) - mean) * (Double($1) - mean) / mean }
    #expect(deviation < 22.5, "\(sizes)")
  }

  @Test func sharesAddUp() throws {
    for count in [1, 2, 3, 7, 100] {
      for total in [0, 1, 2, 6, 7, 8, 99, 100, 12_345] {
        let shares = try (1...count).map { try #require(Shard(index: $0, count: count)).share(of: total) }
        #expect(shares.reduce(0, +) == total)
        #expect((shares.max() ?? 0) - (shares.min() ?? 0) <= 1)
      }
    }
  }

  // MARK: Detection

  private func detect(_ variables: [String: String], _ choice: String = "auto") throws(ShardError) -> String {
    guard let choice = ShardChoice(parsing: choice) else { return "wrong choice" }
    let shard = try choice.shard { variables[$0] }
    return "\(shard.index)/\(shard.count)"
  }

  private static func slurm(_ id: Int, _ min: Int, _ max: Int, _ step: Int, _ count: Int) -> [String: String] {
    [
      "SLURM_ARRAY_TASK_ID": "\(id)", "SLURM_ARRAY_TASK_MIN": "\(min)", "SLURM_ARRAY_TASK_MAX": "\(max)",
      "SLURM_ARRAY_TASK_STEP": "\(step)", "SLURM_ARRAY_TASK_COUNT": "\(count)",
    ]
  }

  @Test func everySchedulerCountsItsOwnWay() throws {
    #expect(try detect(Self.slurm(3, 1, 4, 1, 4)) == "3/4")
    // --array=0-31
    #expect(try detect(Self.slurm(0, 0, 31, 1, 32)) == "1/32")
    // --array=10-22:4 gives 10, 14, 18, 22.
    #expect(try detect(Self.slurm(18, 10, 22, 4, 4)) == "3/4")
    // --array=1-8:2 ends at 7.
    #expect(try detect(Self.slurm(7, 1, 7, 2, 4)) == "4/4")
    #expect(try detect(["JOB_COMPLETION_INDEX": "0"], "auto/8") == "1/8")
    #expect(try detect(["AWS_BATCH_JOB_ARRAY_INDEX": "9", "AWS_BATCH_JOB_ARRAY_SIZE": "10"]) == "10/10")
    #expect(try detect(["AWS_BATCH_JOB_ARRAY_INDEX": "9"], "auto/12") == "10/12")
    #expect(try detect(["CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "4"]) == "1/4")
    #expect(try detect(["BUILDKITE_PARALLEL_JOB": "0", "BUILDKITE_PARALLEL_JOB_COUNT": "5"]) == "1/5")
    #expect(try detect(["CIRCLE_NODE_INDEX": "3", "CIRCLE_NODE_TOTAL": "4"]) == "4/4")
    // A count that is told may be said again.
    #expect(try detect(["CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "4"], "auto/4") == "2/4")
    // Two that agree.
    #expect(
      try detect(["JOB_COMPLETION_INDEX": "1", "CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "4"]) == "2/4")
    // What is named by hand asks nobody.
    #expect(try detect(["CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "4"], "1/9") == "1/9")
  }

  @Test(
    arguments: [
      ([:], "auto", "none of SLURM_ARRAY_TASK_ID (Slurm), JOB_COMPLETION_INDEX (Kubernetes), "),
      // GitLab sets the total in every job.
      (["CI_NODE_TOTAL": "1"], "auto", "found no array task"),
      (["CI_NODE_INDEX": ""], "auto", "found no array task"),
      (["JOB_COMPLETION_INDEX": "0"], "auto", "Kubernetes does not tell how many shards there are"),
      (["JOB_COMPLETION_INDEX": "9223372036854775807"], "auto/8", "no whole number that a task could have"),
      (Self.slurm(0, 0, Int.max, 1, 4), "auto", "no whole number that a task could have"),
      (["JOB_COMPLETION_INDEX": "8"], "auto/8", "shard 9 (JOB_COMPLETION_INDEX=8) of 8"),
      (["JOB_COMPLETION_INDEX": "-1"], "auto/8", "no whole number"),
      (["JOB_COMPLETION_INDEX": "9223372036854775807"], "auto/8", "no whole number"),
      (["CI_NODE_INDEX": "0", "CI_NODE_TOTAL": "4"], "auto", "shard 0 (CI_NODE_INDEX=0) of 4"),
      (["CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "4"], "auto/5", "--shard auto/5 says 5 shards, GitLab says 4"),
      (
        [
          "CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "4", "BUILDKITE_PARALLEL_JOB": "1",
          "BUILDKITE_PARALLEL_JOB_COUNT": "4",
        ],
        "auto", "GitLab (CI_NODE_INDEX=1) and Buildkite (BUILDKITE_PARALLEL_JOB=1) tell different shards"
      ),
      (
        ["CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "4", "CIRCLE_NODE_INDEX": "0", "CIRCLE_NODE_TOTAL": "5"],
        "auto", "GitLab says 4 shards, CircleCI says 5"
      ),
      // --array=1,3,5,7 as Slurm 22.05 gives it.
      (slurm(5, 1, 7, 1, 4), "auto", "has gaps (4 tasks, step 1)"),
      (slurm(9, 1, 4, 1, 4), "auto", "task 9 is not in its array"),
      (slurm(2, 1, 7, 2, 4), "auto", "has gaps"),
      (slurm(1, 1, 4, 0, 4), "auto", "steps of 0"),
      (["SLURM_ARRAY_TASK_ID": "1"], "auto/4", "not SLURM_ARRAY_TASK_MIN"),
      // One task of an array of four, submitted again alone.
      (slurm(3, 3, 3, 1, 1), "auto/4", "says 4 shards, Slurm says 1"),
    ] as [([String: String], String, String)])
  func whatDoesNotFollowIsRefused(_ variables: [String: String], _ choice: String, _ message: String) {
    let error = #expect(throws: ShardError.self) { try detect(variables, choice) }
    #expect(error?.message.contains(message) == true, "\(error?.message ?? "")")
  }

  // MARK: Plans

  private let folder = TemporaryFolder()

  private func job(to: String, write: String = "", input: String = #"{ "files": ["in/**/*.jpg"] }"#) throws -> Job {
    let text = """
      { "version": 1, "input": \(input),
        "stages": [ { "stage": "decode" }, { "stage": "encode", "format": "jpeg" },
          { "stage": "write", "to": "\(to)"\(write) } ] }
      """
    let loaded = JobLoader(registry: LintTests.registry()).load(
      Array(text.utf8), name: "job.json", folder: PathBytes(folder.path))
    return try #require(loaded.job, "\(loaded.diagnostics)")
  }

  private func plan(_ job: Job, _ shard: String? = nil) throws -> RunPlan {
    try Planner.plan(
      job, run: RunValues(baseFolder: job.baseFolder, runID: "r", runDate: "2026-01-01"),
      shard: shard.flatMap { Shard(parsing: $0) })
  }

  /// Index among all inputs, picture and outputs of each item.
  private func lines(_ job: Job, _ shard: String?) throws -> [String] {
    let plan = try plan(job, shard)
    var options = RunOptions()
    options.shard = shard.flatMap { Shard(parsing: $0) }
    let run = JobRun(job: job, options: options)
    return plan.inputs.indices.map { place in
      let outputs = run.outputs(of: plan, at: place).map { $0?.display ?? "?" }
      return "\(plan.inputs[place].index) \(plan.inputs[place].name) \(outputs)"
    }
  }

  @Test func shardsTogetherAreTheWhole() throws {
    for number in 0..<60 { folder.write("x", to: "in/\(number % 7)/\(number).jpg") }
    let job = try job(to: "out/${item.index}-${item.stem}.${ext}")
    let whole = try lines(job, nil)
    var parts: [String] = []
    for index in 1...4 {
      let part = try lines(job, "\(index)/4")
      #expect(!part.isEmpty && part.count < 60)
      // In input order, as in the whole.
      #expect(part == whole.filter { part.contains($0) })
      parts += part
      let plan = try plan(job, "\(index)/4")
      #expect(plan.list.count == 60)
      #expect(plan.list == (try self.plan(job).list))
    }
    #expect(parts.sorted() == whole.sorted())
  }

  @Test func picturesKeepTheirShardWhenOthersComeAndGo() throws {
    for number in 0..<40 { folder.write("x", to: "in/\(number).jpg") }
    let job = try job(to: "out/${item.stem}.${ext}")
    let before = Set(try plan(job, "2/3").inputs.map(\.name))
    for number in stride(from: 0, to: 40, by: 2) { unlink(folder["in/\(number).jpg"]) }
    for number in 40..<60 { folder.write("x", to: "in/\(number).jpg") }
    let after = Set(try plan(job, "2/3").inputs.map(\.name))
    let stayed = Set((0..<40).filter { $0 % 2 == 1 }.map { PathBytes("in/\($0).jpg") })
    #expect(before.intersection(stayed) == after.intersection(stayed))
    #expect(try plan(job, "2/3").list != (try plan(try self.job(to: "o", input: #"{ "files": ["in/1.jpg"] }"#)).list))
  }

  @Test func rowsOfOnePictureStayTogether() throws {
    for number in 0..<9 { folder.write("x", to: "in/\(number).jpg") }
    let rows = (0..<36).map { "in/\($0 % 9).jpg,\($0)" }
    folder.write("path,label\n" + rows.joined(separator: "\n") + "\n", to: "list.csv")
    let job = try job(to: "out/${item.name}-${item.index}.${ext}", input: #"{ "manifest": "list.csv" }"#)
    var count = 0
    for index in 1...4 {
      let names = try plan(job, "\(index)/4").inputs.map(\.name)
      count += names.count
      for name in Set(names) { #expect(names.count { $0 == name } == 4) }
    }
    #expect(count == 36)
  }

  /// Two pictures that would be written to one file: an error in each shard, also where they are in different ones.
  @Test func collisionsAcrossShardsAreErrorsInEach() throws {
    var other = 0
    while PathBytes("in/\(other)/x.jpg").stableHash % 2 == PathBytes("in/a/x.jpg").stableHash % 2 { other += 1 }
    for name in ["in/a/x.jpg", "in/\(other)/x.jpg"] { folder.write("x", to: name) }
    let job = try job(to: "out/${item.stem}.${ext}")
    for shard in ["1/2", "2/2"] {
      let plan = try plan(job, shard)
      #expect(plan.inputs.count == 1)
      #expect(plan.findings.map(\.code) == ["output-collision"])
    }
  }

  @Test func inputsOfOtherShardsAreProtected() throws {
    for number in 0..<8 { folder.write("x", to: "in/\(number).jpg") }
    let job = try job(to: "out/${item.hash}.${ext}")
    var resolver = FolderResolver()
    for index in 1...4 {
      let plan = try plan(job, "\(index)/4")
      for number in 0..<8 {
        let path = PathBytes(folder["in/\(number).jpg"])
        let refusal = plan.protected.refusal(of: path, resolved: resolver.resolve(path), mayReplaceInputs: false)
        #expect(refusal?.code == "output-overwrites-input")
      }
    }
  }

  /// A picture may take its own place, not that of one which another shard may be reading.
  @Test func noResultTakesThePlaceOfAnotherPicture() throws {
    for number in 0..<6 { folder.write("x", to: "in/\(number).jpg") }
    folder.write("path,to\n" + (0..<6).map { "in/\($0).jpg,in/\($0)" }.joined(separator: "\n"), to: "same.csv")
    folder.write(
      "path,to\n" + (0..<6).map { "in/\($0).jpg,in/\(($0 + 1) % 6)" }.joined(separator: "\n"), to: "next.csv")
    let inPlace = #", "inPlace": true"#
    let same = try job(to: "${item.to}.jpg", write: inPlace, input: #"{ "manifest": "same.csv" }"#)
    #expect(try plan(same, "1/2").findings.isEmpty)
    let next = try job(to: "${item.to}.jpg", write: inPlace, input: #"{ "manifest": "next.csv" }"#)
    #expect(try plan(next, "1/2").findings.map(\.code) == Array(repeating: "output-overwrites-input", count: 6))
  }
}
