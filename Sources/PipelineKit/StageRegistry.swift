import JobSyntax

/// What a run must know of a kind of stage: of a type, or of a plugin.
public struct StageDescriptor: Sendable {
  public let spec: StageSpec
  public let plan: @Sendable (Settings) -> StagePlan
  public let check: @Sendable (Settings) -> [Diagnostic]
  public let ingredients: @Sendable (Settings) -> [String: String]
  public let make: @Sendable (Settings, StageResources) throws(StageError) -> any ReadyStage
  /// Nil for a stage that leaves no receipts.
  public let receiptKeeper: (@Sendable (Settings, StageResources) throws(StageError) -> (any ReceiptKeeper)?)?

  /// The file that the stage was loaded from; nil for one that is part of the program.
  public let origin: PathBytes?

  /// A stage that is no type of the program.
  public init(
    spec: StageSpec, origin: PathBytes, plan: @escaping @Sendable (Settings) -> StagePlan,
    check: @escaping @Sendable (Settings) -> [Diagnostic] = { _ in [] },
    ingredients: @escaping @Sendable (Settings) -> [String: String] = { _ in [:] },
    make: @escaping @Sendable (Settings, StageResources) throws(StageError) -> any ReadyStage
  ) {
    self.spec = spec
    self.origin = origin
    self.plan = plan
    self.check = check
    self.ingredients = ingredients
    self.make = make
    receiptKeeper = nil
  }

  public init<S: Stage>(_ type: S.Type) {
    origin = nil
    spec = S.spec
    plan = { S.plan($0) }
    check = { S.check($0) }
    ingredients = { S.ingredients($0) }
    make = { (settings, resources) throws(StageError) in try S(settings, resources: resources) }
    if let receipted = type as? any ReceiptedStage.Type {
      receiptKeeper = { (settings, resources) throws(StageError) in
        try receipted.receiptKeeper(settings, resources: resources)
      }
    } else {
      receiptKeeper = nil
    }
  }

  /// The stage's fields, and those that every stage has, as an object shape.
  public var shape: ObjectShape { ObjectShape(spec.fields + CommonFields.all) }
}

/// The stages a program knows. A value: made in `main`, passed on, never global.
public struct StageRegistry: Sendable {
  private var descriptors: [String: StageDescriptor] = [:]

  public init() {}

  /// Adds a stage type; built-in and third-party stages use the same call.
  ///
  /// - Throws: `stage-name` when the name is not made of words of ASCII letters, digits and hyphens with dots between
  ///   them; `stage-name-taken` when it is registered already; `stage-field-taken` when it has a field of a name that
  ///   every stage has.
  public mutating func register<S: Stage>(_ type: S.Type) throws(StageError) {
    try register(StageDescriptor(type), named: "\(type)")
  }

  /// Adds a stage that is no type of the program, by the same rules.
  public mutating func register(_ descriptor: StageDescriptor) throws(StageError) {
    try register(descriptor, named: descriptor.origin?.printable ?? "somebody")
  }

  private mutating func register(_ descriptor: StageDescriptor, named maker: String) throws(StageError) {
    guard Self.isName(descriptor.spec.name) else {
      throw StageError(
        "stage-name",
        "\(maker) calls its stage \(JSONText.string(descriptor.spec.name).rendered()), which is no name for a stage",
        kind: .environment, hint: "use letters, digits and \"-\", with dots between words, such as acme.watermark")
    }
    let taken = ["stage"] + CommonFields.all.map(\.name)
    if let field = descriptor.spec.fields.first(where: { taken.contains($0.name) }) {
      throw StageError(
        "stage-field-taken", "stage \"\(descriptor.spec.name)\" has a field \"\(field.name)\", which every stage has",
        kind: .environment)
    }
    guard descriptors[descriptor.spec.name] == nil else {
      throw StageError(
        "stage-name-taken", "a stage named \"\(descriptor.spec.name)\" is registered already", kind: .environment)
    }
    descriptors[descriptor.spec.name] = descriptor
  }

  private static func isName(_ name: String) -> Bool {
    name.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false).allSatisfy { word in
      !word.isEmpty
        && word.allSatisfy { byte in
          switch byte {
          case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"):
            true
          default: false
          }
        }
    }
  }

  public subscript(name: String) -> StageDescriptor? { descriptors[name] }

  /// Sorted names.
  public var names: [String] { descriptors.keys.sorted() }
  /// Sorted by name.
  public var all: [StageDescriptor] { names.compactMap { descriptors[$0] } }
}
