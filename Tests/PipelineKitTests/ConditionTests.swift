import JobSyntax
import PipelineKit
import Testing

@Suite struct ConditionTests {
  private static let identity = ItemIdentity(
    index: 3, inputIndex: 7, path: "/in/shoes/red-final.JPG", name: "in/shoes/red-final.JPG", directory: "shoes",
    columns: ["price": " 12.50 ", "kind": "shoe", "sku": "007"])

  private static func condition(_ text: String) throws -> Condition {
    let (node, problems) = StrictJSON.parse(SourceFile(name: "condition", text: Array(text.utf8)))
    #expect(problems.isEmpty)
    let found = try #require(node)
    var checker = FieldChecker(file: "condition", columns: .known(["price", "kind", "sku"]))
    checker.check(found, against: .condition, name: "when")
    #expect(checker.diagnostics.isEmpty, "\(checker.diagnostics.map(\.message))")
    return try #require(Condition(found))
  }

  @Test(
    arguments: [
      (#"{ "item.index": { "eq": 7 } }"#, true), (#"{ "item.index": { "ne": 7 } }"#, false),
      (#"{ "item.index": { "gt": 6, "lt": 8 } }"#, true), (#"{ "item.index": { "gte": 7, "lte": 6 } }"#, false),
      (#"{ "item.index": { "in": [1, 7] } }"#, true), (#"{ "item.dir": { "eq": "shoes" } }"#, true),
      (#"{ "item.ext": { "in": ["jpg", "JPG"] } }"#, true), (#"{ "item.stem": { "matches": "*-final" } }"#, true),
      (#"{ "item.stem": { "matches": "red-fina?" } }"#, true), (#"{ "item.stem": { "matches": "red" } }"#, false),
      (#"{ "item.path": { "matches": "in/*.JPG" } }"#, true), (#"{ "item.name": { "matches": "*a*a*l*" } }"#, false),
      (#"{ "item.price": { "lt": 13 } }"#, true), (#"{ "item.price": { "eq": 12.5 } }"#, true),
      (#"{ "item.price": { "in": [1, 12.5] } }"#, true), (#"{ "item.kind": { "eq": "shoe" } }"#, true),
      (#"{ "item.sku": { "eq": 7 } }"#, true), (#"{ "item.sku": { "eq": "7" } }"#, false),
      (#"{ "item.kind": { "eq": "shoe" }, "item.index": { "eq": 0 } }"#, false),
      (#"{ "any": [{ "item.index": { "eq": 0 } }, { "item.kind": { "ne": "hat" } }] }"#, true),
      (#"{ "all": [{ "item.index": { "eq": 7 } }, { "item.kind": { "eq": "hat" } }] }"#, false),
      (#"{ "not": { "any": [{ "item.index": { "eq": 0 } }, { "item.kind": { "eq": "hat" } }] } }"#, true),
      // What is not known yet decides nothing, and is not asked where the rest decides.
      (#"{ "image.width": { "gt": 5 } }"#, nil),
      (#"{ "image.width": { "gt": 5 }, "item.index": { "eq": 0 } }"#, false),
      (#"{ "any": [{ "image.width": { "gt": 5 } }, { "item.index": { "eq": 7 } }] }"#, true),
      (#"{ "not": { "matte.score": { "gt": 0.5 } } }"#, nil),
    ] as [(String, Bool?)])
  func holds(_ text: String, _ expected: Bool?) throws {
    #expect(try Self.condition(text).holds(for: Self.identity, item: nil, matte: nil) == expected)
  }

  @Test func theMaskMadeLast() throws {
    let matte = MatteRecord(provider: "local", score: 0.4, coverage: 0.2, softness: 0, islands: 1, border: 0)
    let condition = try Self.condition(#"{ "matte.score": { "lt": 0.5 }, "matte.coverage": { "gte": 0.2 } }"#)
    #expect(try condition.holds(for: Self.identity, item: nil, matte: matte) == true)
  }

  @Test func columnsThatAreNoNumber() throws {
    for text in [#"{ "item.kind": { "gt": 1 } }"#, #"{ "item.kind": { "in": [1, 2] } }"#] {
      let condition = try Self.condition(text)
      let error = #expect(throws: StageError.self) {
        try condition.holds(for: Self.identity, item: nil, matte: nil)
      }
      #expect(error?.code == "condition-value")
      #expect(error?.message == #"item.kind is "shoe": no number, and a condition compares it with 1"#)
    }
    // Behind what the run must show first, nothing is certain yet.
    let late = try Self.condition(#"{ "image.width": { "gt": 5 }, "item.kind": { "gt": 1 } }"#)
    #expect(try late.holds(for: Self.identity, item: nil, matte: nil) == nil)
  }

  @Test(arguments: [
    (#"{ "image.width": { "gt": 2000 } }"#, "image.width is above 2000"),
    (#"{ "item.ext": { "in": ["jpg", "png"] } }"#, #"item.ext is one of "jpg", "png""#),
    (
      #"{ "any": [{ "item.index": { "lte": 1.5 } }, { "all": [{ "item.dir": { "ne": "" } }, { "not": { "image.hasAlpha": { "eq": true } } }] }] }"#,
      #"item.index is at most 1.5 or (item.dir is not "" and not (image.hasAlpha is true))"#
    ),
  ])
  func inWords(_ text: String, _ words: String) throws {
    #expect(try Self.condition(text).description == words)
  }

  @Test func whatIsKnownBeforehand() throws {
    #expect(try Self.condition(#"{ "item.kind": { "eq": "shoe" } }"#).isKnownBeforehand)
    #expect(try !Self.condition(#"{ "item.kind": { "eq": "shoe" }, "image.frames": { "eq": 1 } }"#).isKnownBeforehand)
  }
}
