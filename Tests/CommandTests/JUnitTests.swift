import Foundation
import FoundationXML
import Glibc
import JobSyntax
import TestSupport
import Testing

/// JUnit XML from outside, read back by parsers that are not ours.
@Suite struct JUnitTests {
  private func document(_ scene: Scene, _ name: String = "junit.xml") throws -> XMLElement {
    let bytes = try #require(scene.folder.read(name))
    return try #require(try XMLDocument(data: Data(bytes), options: []).rootElement())
  }

  private func cases(_ root: XMLElement) throws -> [XMLElement] {
    try #require(root.elements(forName: "testsuite").first).elements(forName: "testcase")
  }

  private func attribute(_ element: XMLElement, _ name: String) -> String? {
    element.attribute(forName: name)?.stringValue
  }

  /// Names that would break an XML file, or get out of their place in it.
  @Test func everyNameComesBack() throws {
    let scene = try Scene(pictures: 1)
    let picture = try #require(scene.folder.read("in/p00.jpg"))
    let names = [
      "a&b<c>\"d'.jpg", "line\nbreak.jpg", "]]>.jpg", "tab\there.jpg", "return\rhere.jpg", "control\u{1}\u{1B}[31m.jpg",
      "\u{FFFE}.jpg", "\u{202E}gpj.jpg", "😀.jpg", " blank .jpg",
    ]
    for name in names { scene.folder.write(picture, to: "in/" + name) }
    // A byte that is no UTF-8.
    let raw = scene.folder.path + "/in/"
    let bad = Array(raw.utf8).map { CChar(bitPattern: $0) } + [CChar(bitPattern: 0xFF), 0x2E, 0x6A, 0x70, 0x67, 0]
    let descriptor = open(bad, O_WRONLY | O_CREAT, 0o644)
    #expect(descriptor >= 0)
    _ = picture.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
    close(descriptor)
    scene.job(to: "out/${item.index}.${ext}")
    let result = scene.run("run", "job.json", "--junit", "junit.xml", "--report", "report.json")
    #expect(result.exitCode == 0, "\(result.error)")
    let inputs = (try scene.report()["items"]?.arrayValue ?? []).compactMap { $0["input"]?.stringValue }
    let found = try cases(try document(scene))
    #expect(found.count == names.count + 2)
    // What XML has no form for is shown; all else comes back as it was.
    let expected = inputs.map {
      $0.replacing("\u{1}", with: "\\u{1}").replacing("\u{1B}", with: "\\u{1B}").replacing(
        "\u{FFFE}", with: "\\u{FFFE}")
    }
    #expect(found.map { attribute($0, "file") } == expected)
    #expect(Set(found.compactMap { attribute($0, "name") }).count == found.count)
  }

  @Test func everyStatusHasItsForm() throws {
    let scene = try Scene(pictures: 3, remembers: true)
    scene.job()
    #expect(scene.run("run", "job.json").exitCode == 0)
    scene.folder.write("no picture", to: "in/q <bad>.jpg")
    scene.folder.remove("in/p00.jpg")
    scene.folder.write(try #require(scene.folder.read("in/p01.jpg")), to: "in/r.jpg")
    let result = scene.run("run", "job.json", "--junit", "junit.xml", "--report", "report.json")
    #expect(result.exitCode == 1, "\(result.error)")
    let root = try document(scene, "junit.xml")
    let suite = try #require(root.elements(forName: "testsuite").first)
    for element in [root, suite] {
      #expect(attribute(element, "tests") == "4")
      #expect(attribute(element, "failures") == "1")
      #expect(attribute(element, "errors") == "0")
      #expect(attribute(element, "skipped") == "2")
    }
    #expect(attribute(suite, "name") == "scene")
    let properties = try #require(suite.elements(forName: "properties").first).elements(forName: "property")
    let report = try scene.report()
    #expect(
      properties.contains {
        attribute($0, "name") == "run" && attribute($0, "value") == report["run"]?["id"]?.stringValue
      })
    let all = try cases(root)
    #expect(all.map { attribute($0, "file") } == ["in/p01.jpg", "in/p02.jpg", "in/q <bad>.jpg", "in/r.jpg"])
    let failure = try #require(all[2].elements(forName: "failure").first)
    let error = try #require(report["items"]?.arrayValue?[2]["error"])
    #expect(attribute(failure, "type") == error["code"]?.stringValue)
    let text = try #require(failure.stringValue)
    #expect(text.contains("in/q <bad>.jpg"))
    #expect(text.contains("stage: decode"))
    if let hint = error["hint"]?.stringValue { #expect(text.contains("try: \(hint)")) }
    #expect(all[0].elements(forName: "skipped").count == 1)
    #expect(all[3].children?.compactMap(\.name) == ["system-out"])
    #expect(try #require(Double(attribute(all[3], "time") ?? "")) > 0)
  }

  /// All pictures being skipped for it must not look like success.
  @Test func aRunThatCannotStartIsAnError() throws {
    let scene = try Scene(pictures: 2)
    scene.job(encode: #"{ "stage": "segment", "model": "u2netp" }, { "stage": "encode", "format": "png" }"#)
    let result = scene.run("run", "job.json", "--junit", "junit.xml", "--report", "report.json") {
      $0.environment = ["PATH": "/usr/bin:/bin", "PIPELINE_HOME": "/nowhere", "HOME": "/nowhere"]
    }
    #expect(result.exitCode == 4, "\(result.error)")
    let root = try document(scene)
    #expect(attribute(root, "errors") == "1")
    #expect(attribute(root, "skipped") == "2")
    #expect(attribute(root, "tests") == "3")
    #expect(try cases(root).first?.elements(forName: "error").count == 1)
  }

  @Test func oneFileIsNotTwo() throws {
    let scene = try Scene(pictures: 1)
    scene.job()
    let result = scene.run("run", "job.json", "--junit", "a.xml", "--report", "./a.xml")
    #expect(result.exitCode == 2)
    #expect(result.error.contains("--report and --junit name the same file"))
    let input = scene.run("run", "job.json", "--junit", "in/p00.jpg")
    #expect(input.exitCode == 4)
    #expect(input.error.contains("the JUnit file in/p00.jpg cannot be written: it is one of the inputs"))
  }

  @Test(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
  func pythonReadsItToo() throws {
    let scene = try Scene(pictures: 2)
    scene.folder.write("no picture", to: "in/\u{1}&.jpg")
    scene.job()
    #expect(scene.run("run", "job.json", "--junit", "junit.xml").exitCode == 1)
    let script = """
      import sys, xml.etree.ElementTree as tree
      root = tree.parse(sys.argv[1]).getroot()
      print(root.tag, len(root.findall("testsuite/testcase")), len(root.findall(".//failure")))
      """
    let result = RunProgram.run(["-c", script, scene.folder["junit.xml"]], program: try Peers.python("python"))
    #expect(result.output == "testsuites 3 1\n", "\(result.error)")
  }
}
