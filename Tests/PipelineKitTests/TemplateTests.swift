import PipelineKit
import Testing

@Suite struct TemplateTests {
  private func render(_ text: String) -> String? {
    Template.parse(text).template?.render { Array("<\($0.name)>".utf8) }.map { String(decoding: $0, as: UTF8.self) }
  }

  @Test(arguments: [
    ("plain", "plain"),
    ("a/${item.stem}.${ext}", "a/<item.stem>.<ext>"),
    ("${item.stem}${item.stem}", "<item.stem><item.stem>"),
    ("$${item.stem}", "${item.stem}"),
    ("$", "$"), ("$$", "$$"), ("{a}", "{a}"), ("$x{", "$x{"),
    ("${item.größe}", "<item.größe>"),
    ("", ""),
  ])
  func renders(_ text: String, _ expected: String) {
    #expect(render(text) == expected)
  }

  @Test(arguments: [
    ("${item.}", Template.Problem.Kind.unknownVariable), ("${}", .empty), ("${item.stem", .unclosed),
    ("${ext }", .unknownVariable), ("${vars.x}", .unknownVariable), ("${env.1X}", .unknownVariable),
    ("${item.a b}", .unknownVariable),
  ])
  func refuses(_ text: String, _ kind: Template.Problem.Kind) {
    let (template, problems) = Template.parse(text)
    #expect(template == nil)
    #expect(problems.map(\.kind) == [kind])
  }

  /// Bytes that are not UTF-8 come through as they are.
  @Test func keepsBytes() {
    let rendered = Template.parse("out/${item.stem}").template?.render { _ in [0xFF, 0x00, 0xE9] }
    #expect(rendered == Array("out/".utf8) + [0xFF, 0x00, 0xE9])
  }

  @Test func aMissingValueRendersNothing() {
    #expect(Template.parse("${ext}").template?.render { _ in nil } == nil)
  }
}
