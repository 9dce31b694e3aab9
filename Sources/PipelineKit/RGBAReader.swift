import Imaging

/// Colours as users write them; the reading itself lives in `Imaging`.
enum RGBAReader {
  static func color(_ text: String) -> RGBA? { RGBA(css: text) }
  static var names: [String] { RGBA.cssNames }
}

extension Field where Value == RGBA {
  public static func color(
    _ name: String, default text: String, when condition: FieldCondition? = nil, help: String
  ) -> Self {
    .init(
      name, type: .text(.color), absent: RGBA(css: text), defaultText: .string(text), when: condition, help: help
    ) { node, _ in node.stringValue.flatMap { RGBA(css: $0) } }
  }

  public static func color(_ name: String, when condition: FieldCondition? = nil, help: String) -> Self {
    .init(name, type: .text(.color), absent: nil, when: condition, help: help) { node, _ in
      node.stringValue.flatMap { RGBA(css: $0) }
    }
  }
}

extension Field where Value == RGBA? {
  public static func color(_ name: String, when condition: FieldCondition? = nil, help: String) -> Self {
    .init(name, type: .text(.color), absent: .some(nil), when: condition, help: help) { node, _ in
      node.stringValue.flatMap { RGBA(css: $0) }.map { .some($0) }
    }
  }
}
