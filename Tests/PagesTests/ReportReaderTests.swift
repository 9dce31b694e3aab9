import Pages
import PipelineKit
import TestSupport
import Testing

@Suite struct ReportReaderTests {
  private static let report = """
    { "run": {"job": "a", "counts": {"done": 2}},
      "items": [ {"input": "a ]}\\"{.jpg", "status": "done"},
        {"input":"b","status":"done","outputs":[{"path":"c"}]} ] }

    """

  private func names(_ text: String) throws -> [String] {
    let folder = TemporaryFolder()
    folder.write(text, to: "report.json")
    var reader = try ReportReader(PathBytes(folder["report.json"]))
    var names: [String] = []
    while let item = try reader.next() { names.append(item["input"]?.stringValue ?? "?") }
    return names
  }

  @Test func `Pictures come one after the other`() throws {
    #expect(try names(Self.report) == ["a ]}\"{.jpg", "b"])
    #expect(try names(Self.report.filter { !$0.isNewline }) == ["a ]}\"{.jpg", "b"])
    #expect(try names(#"{"run":{"job":"a","counts":{}},"items":[]}"#) == [])
  }

  @Test func `A report that breaks off anywhere is none`() throws {
    let text = Self.report.split(separator: "\n").joined()
    for length in 0..<text.count {
      #expect(throws: StageError.self, "\(text.prefix(length))") { _ = try names(String(text.prefix(length))) }
    }
    #expect(throws: StageError.self) { _ = try names(text + "x") }
    #expect(throws: StageError.self) { _ = try names(#"{"items":[],"run":{"job":"a","counts":{}}}"#) }
    #expect(throws: StageError.self) { _ = try names(#"{"run":{"job":"a","counts":{}},"items":[{"status":"done"}]}"#) }
    #expect(throws: StageError.self) { _ = try ReportReader(PathBytes("/")) }
  }
}
