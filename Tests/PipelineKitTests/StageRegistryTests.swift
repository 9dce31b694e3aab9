import JobSyntax
import PipelineKit
import Testing

@Suite struct StageRegistryTests {
  /// A stage whose name a test chooses.
  struct Named<Name: StageName>: Stage {
    static var spec: StageSpec { StageSpec(name: Name.text, summary: "Does nothing.", fields: [], examples: []) }
    static func plan(_ settings: Settings) -> StagePlan { StagePlan(accepts: .source) }
    init(_ settings: Settings, resources: StageResources) throws(StageError) {}
    func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome { .next(item) }
  }

  protocol StageName: Sendable { static var text: String { get } }
  enum Plain: StageName { static let text = "invert" }
  enum Namespaced: StageName { static let text = "acme-2.water-Mark.v2" }
  enum Empty: StageName { static let text = "" }
  enum Spaced: StageName { static let text = "two words" }
  enum DoubleDot: StageName { static let text = "acme..invert" }
  enum ClosingDot: StageName { static let text = "acme." }
  enum Slashed: StageName { static let text = "acme/invert" }
  enum Accented: StageName { static let text = "größe" }
  enum Broken: StageName { static let text = "in\nvert" }

  private func register<N: StageName>(_ name: N.Type) throws(StageError) -> [String] {
    var registry = StageRegistry()
    try registry.register(Named<N>.self)
    return registry.names
  }

  @Test func namesOfOneOrMoreWords() throws {
    #expect(try register(Plain.self) == ["invert"])
    #expect(try register(Namespaced.self) == ["acme-2.water-Mark.v2"])
  }

  @Test(
    arguments: [
      Empty.self, Spaced.self, DoubleDot.self, ClosingDot.self, Slashed.self, Accented.self, Broken.self,
    ] as [any StageName.Type])
  func otherNamesAreRefused(_ name: any StageName.Type) {
    let error = #expect(throws: StageError.self) { _ = try register(name) }
    #expect(error?.code == "stage-name")
    #expect(error?.message.contains(JSONText.string(name.text).rendered()) == true)
    #expect(error?.hint?.contains("acme.watermark") == true)
  }

  @Test func aNameIsTakenOnce() throws {
    var registry = StageRegistry()
    try registry.register(Named<Plain>.self)
    let error = #expect(throws: StageError.self) { try registry.register(Named<Plain>.self) }
    #expect(error?.code == "stage-name-taken")
  }
}
