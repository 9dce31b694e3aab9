import Glibc
import JobSyntax
import PipelineKit
import Testing

@testable import Engine

/// What a run keeps outside of its memory comes back as it was.
@Suite struct KeptRunTests {
  @Test func plansComeBack() throws {
    let odd = PathBytes(bytes: [0x2f, 0xff, 0x0a, 0x25, 0x41, 0x2e, 0x6a])
    let inputs = [
      InputItem(
        path: "/base/in/a.jpg", name: "in/a.jpg", relativeDirectory: "", index: 0, columns: [:], declaration: 0),
      InputItem(
        path: odd, name: odd, relativeDirectory: "x/y", index: 1, columns: ["sku": "ü\"1", "": ""], declaration: 2,
        line: 7),
      InputItem(path: "/b", name: "../b", relativeDirectory: "", index: 2, columns: [:], declaration: 0, line: 1),
    ]
    var file = PlanFile(
      identity: RunIdentity(runID: "run", started: 1_234.5), jobText: Array("{\u{FEFF}\"a\": 1}".utf8),
      jobFile: "job.json", baseFolder: "/base", reportPath: odd)
    file.inputs = InputList(inputs)
    file.decisions = [
      0: .skip("there already"),
      2: .fail(StageError("bad", "no", kind: .environment, cause: "c", hint: nil), stage: "write"),
    ]
    let descriptor = try #require(file.write())
    defer { close(descriptor) }
    let read = try #require(PlanFile(descriptor))
    #expect(read.identity.runID == "run")
    #expect(read.identity.started == 1_234.5)
    #expect(read.jobText == file.jobText)
    #expect(read.jobFile == "job.json")
    #expect(read.baseFolder == "/base")
    #expect(read.reportPath == odd)
    #expect(Array(read.inputs) == inputs)
    #expect(read.decisions == file.decisions)
    // A file that was cut off is not taken for a whole one.
    var status = stat()
    fstat(descriptor, &status)
    for length in [Int(status.st_size) - 1, 100, 8, 0] {
      ftruncate(descriptor, off_t(length))
      #expect(PlanFile(descriptor) == nil)
    }
  }

  @Test func recordsComeBackFromTheirReport() throws {
    var record = ItemRecord(index: 3, input: "in/ü%20.jpg", status: .failed)
    record.outputs = [
      OutputRecord(place: .path("/out/a b.png"), format: "png", width: 3, height: 4, bytes: 5, sha256: "ab"),
      OutputRecord(place: .link("https://example.org/x"), format: "webp", width: 1, height: 1, bytes: 9, sha256: "cd"),
    ]
    record.timings = [("decode", 1.25), ("write", 0)]
    record.warnings = [ItemWarning(code: "w", stage: "decode", message: "m\n")]
    record.mattes = [
      MatteRecord(
        name: "person", provider: "local", model: "u2netp", score: 0.9123, coverage: 0.25, softness: 0.0877, islands: 2,
        border: 0.5, flip: 0.75),
      MatteRecord(provider: "service", score: 1, coverage: 0, softness: 0, islands: 0, border: 0),
    ]
    record.facts = ["n": .integer(3), "list": .array([.null, .bool(true)])]
    record.error = StageError("damaged", "the file is damaged", cause: "words", hint: "try")
    record.failedStage = "decode"
    let (node, problems) = StrictJSON.parse(SourceFile(name: "record", text: Array(record.json.rendered().utf8)))
    #expect(problems.isEmpty)
    let root = try #require(node)
    let read = try #require(ItemRecord(index: 3, report: root))
    #expect(read.json == record.json)
    #expect(read.error == record.error)
    #expect(read.outputs == record.outputs)
    #expect(read.warnings == record.warnings)
    #expect(read.mattes == record.mattes)
    #expect(read.timings.map(\.stage) == ["decode", "write"])
  }

  @Test func messagesArriveWholeAndInOrder() throws {
    var ends: [Int32] = [-1, -1]
    try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
    let there = Conversation(ends[0])
    var here: Conversation? = Conversation(ends[1])
    let identity = ItemIdentity(
      index: 5, path: PathBytes(bytes: [0x2f, 0xfe]), name: "n", directory: "d", columns: ["a": "b"])
    #expect(here?.send(Message.item(identity)) == true)
    #expect(here?.send(Message.make("end")) == true)
    guard case .message(let first) = there.receive() else {
      Issue.record("no message")
      return
    }
    let read = try #require(Message.identity(first))
    #expect(read.path == identity.path)
    #expect(read.columns == ["a": "b"])
    guard case .message(let second) = there.receive() else {
      Issue.record("no message")
      return
    }
    #expect(Message.kind(second) == "end")
    guard case .timeout = there.receive(until: .now + .milliseconds(1)) else {
      Issue.record("something came")
      return
    }
    // More than the socket holds, and nobody reads it.
    let long = Message.make("long", [("text", .string(String(repeating: "x", count: 4 << 20)))])
    #expect(there.send(long, until: .now + .milliseconds(1)) == false)
    here = nil
    guard case .closed = there.receive() else {
      Issue.record("it is not closed")
      return
    }
  }
}
