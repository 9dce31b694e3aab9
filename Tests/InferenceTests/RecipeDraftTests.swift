import JobSyntax
import TestSupport
import Testing

@testable import Inference

/// Recipes as they are written down: what is read, what is refused, what is filled in.
@Suite struct RecipeDraftTests {
  private func read(_ json: String, isEntry: Bool = false) throws -> (draft: RecipeDraft, diagnostics: [Diagnostic]) {
    let (root, problems) = StrictJSON.parse(SourceFile(name: "recipe.json", text: Array(json.utf8)))
    try #require(problems.isEmpty)
    return RecipeDraft.read(try #require(root), file: "recipe.json", isEntry: isEntry)
  }

  private func completed(_ json: String, input: ModelFacts.Shape, _ outputs: ModelFacts.Shape...) throws -> ModelRecipe
  {
    let (draft, diagnostics) = try read(json)
    try #require(diagnostics.isEmpty, "\(diagnostics.map(\.message))")
    return try draft.completed(with: ModelFacts(input: input, outputs: outputs), name: "own", fileName: "own.onnx")
  }

  private func refusal(_ json: String, input: ModelFacts.Shape, _ outputs: ModelFacts.Shape...) throws
    -> InferenceError?
  {
    let (draft, _) = try read(json)
    do throws(InferenceError) {
      _ = try draft.completed(with: ModelFacts(input: input, outputs: outputs), name: "own", fileName: "own.onnx")
      return nil
    } catch { return error }
  }

  private let plain = #"{ "input": { "mean": [0, 0, 0], "std": [1, 1, 1] } }"#

  @Test func `sizes and layouts are read from the model`() throws {
    let planar = try completed(plain, input: [1, 3, 100, 200], [1, 1, 50, 100])
    #expect(planar.width == 200 && planar.height == 100 && planar.layout == .nchw)
    #expect(planar.output == ModelRecipe.Output(width: 100, height: 50))
    #expect(planar.scaling == .fixed(255) && planar.normalisation == .minimumToMaximum && planar.activation == .none)
    let classes = try completed(
      """
      { "input": { "mean": [1, 1, 1], "std": [1, 1, 1], "scale": 127.5 },
        "output": { "activation": "softmax", "background": 0 } }
      """,
      input: [1, 257, 257, 3], [1, 257, 257, 21])
    #expect(classes.layout == .nhwc && classes.output.layout == .nhwc && classes.output.channels == 21)
    #expect(classes.output.width == nil && classes.output.subject == .allBut(0))
    #expect(classes.normalisation == .none && classes.emptyBelow == 0.5)
    let flat = try completed(plain, input: [1, 512, 512, 3], [1, 262_144])
    #expect(flat.output.channels == 1 && flat.outputCount == 262_144)
    let two = try completed(
      #"{ "input": { "mean": [0, 0, 0], "std": [1, 1, 1] }, "output": { "activation": "none" } }"#,
      input: [nil, 3, 320, 320], [nil, 2, 320, 320])
    #expect(two.output.channels == 2 && two.output.subject == .channel(1))
  }

  @Test func `one channel's recipe says nothing of which of many is the subject`() throws {
    // Channel 0 of a model of classes is the background as a rule: taken as the subject it gives wrong masks, silently.
    let error = try #require(
      try refusal(#"{ "like": "u2netp" }"#, input: [1, 257, 257, 3], [1, 257, 257, 21]))
    #expect(error.code == .modelInvalid && error.hint?.contains("output.background") == true)
    let stated = try completed(
      #"{ "like": "u2netp", "output": { "subject": 15 } }"#, input: [1, 257, 257, 3], [1, 257, 257, 21])
    #expect(stated.output.subject == .channel(15))
    let one = try completed(#"{ "like": "u2netp" }"#, input: [1, 3, 320, 320], [1, 1, 320, 320])
    #expect(one.output.subject == .channel(0))
  }

  @Test func `what the model's input contradicts is refused before it is compiled`() throws {
    let cases: [(String, ModelFacts.Shape, String)] = [
      (#"{ "like": "u2netp", "input": { "width": 256 } }"#, [1, 3, 320, 320], "\"input.width\" is 256"),
      (#"{ "like": "u2netp", "input": { "height": 256 } }"#, [1, 320, 320, 3], "\"input.height\" is 256"),
      (#"{ "like": "u2netp", "input": { "layout": "nhwc" } }"#, [1, 3, 320, 320], "320 channels"),
    ]
    for (json, input, words) in cases {
      let error = try #require(try refusal(json, input: input, [1, 1, 320, 320]), "\(json)")
      #expect(error.code == .modelInvalid && error.message.contains(words), "\(error)")
    }
    // An open side takes any size.
    let open = try completed(
      #"{ "like": "u2netp", "input": { "width": 256, "height": 192 } }"#, input: [1, 3, nil, nil], [1, 1, nil, nil])
    #expect(open.width == 256 && open.height == 192)
  }

  @Test func `what cannot be read is asked for by name`() throws {
    let cases: [(String, ModelFacts, String)] = [
      (#"{ "input": { "std": [1, 1, 1] } }"#, ModelFacts(input: [1, 3, 9, 9], outputs: [[1, 1, 9, 9]]), "input.mean"),
      (#"{ "input": { "mean": [1, 1, 1] } }"#, ModelFacts(input: [1, 3, 9, 9], outputs: [[1, 1, 9, 9]]), "input.std"),
      (plain, ModelFacts(input: [1, 3, nil, 9], outputs: [[1, 1, 9, 9]]), "input.height"),
      (plain, ModelFacts(input: [1, 3, 9, 3], outputs: [[1, 1, 9, 9]]), "input.layout"),
      (plain, ModelFacts(input: [1, 3, 9, 9], outputs: [[1, 9, 9, 9]]), "output.layout"),
      (plain, ModelFacts(input: [1, 3, 9, 9], outputs: [[1, 2, 9, 9]]), "output.activation"),
      (plain, ModelFacts(input: [1, 3, 9, 9], outputs: [[1, 5, 9, 9]]), "output.background"),
    ]
    for (json, facts, field) in cases {
      let (draft, _) = try read(json)
      let error = try #require(
        failure { () throws(InferenceError) in
          try draft.completed(with: facts, name: "own", fileName: "own.onnx")
        }, "\(field)")
      #expect(error.code == .modelInvalid)
      #expect(error.hint == "give \"\(field)\" in the recipe", "\(error)")
    }
    let labels = #"{ "input": { "mean": [0, 0, 0], "std": [1, 1, 1] }, "output": { "labels": ["a", "b"] } }"#
    #expect(try refusal(labels, input: [1, 3, 9, 9], [1, 3, 9, 9])?.message.contains("2 classes") == true)
    let far = #"{ "input": { "mean": [0, 0, 0], "std": [1, 1, 1] }, "output": { "index": 4 } }"#
    #expect(try refusal(far, input: [1, 3, 9, 9], [1, 1, 9, 9])?.message.contains("output.index") == true)
  }

  @Test func `what a file says of its sides and channels has bounds`() throws {
    let far = 1 << 40
    #expect(
      try refusal(plain, input: [1, 3, far, far], [1, far])?.message.contains("a side may have 8192") == true)
    #expect(try refusal(plain, input: [1, 3, 9, 9], [1, far, far])?.message.contains("a side may have 8192") == true)
    #expect(
      try refusal(plain, input: [1, 3, 9, 9], [1, 81 * 4097])?.message.contains("there may be 4096 channels") == true)
  }

  @Test func `like takes a catalogue model's values, not its size`() throws {
    let recipe = try completed(#"{ "like": "u2netp" }"#, input: [1, 3, 512, 512], [1, 1, 512, 512])
    #expect(recipe.width == 512 && recipe.mean == [0.485, 0.456, 0.406] && recipe.scaling == .maximum)
    #expect(recipe.emptyBelow == 0.1 && recipe.sha256 == nil)
    let error = try refusal(#"{ "like": "u2nettp" }"#, input: [1, 3, 9, 9], [1, 1, 9, 9])
    #expect(error?.hint == "did you mean \"u2netp\"?")
  }

  @Test func `everything that does not fit is reported at its place`() throws {
    let json = """
      { "input": { "mean": [1, 2], "std": [1, 0, 1], "order": "gbr", "widht": 3, "scale": "min" },
        "output": { "labels": ["a", "a"], "activation": 3 }, "sha256": "12", "colour": 1 }
      """
    let messages = try read(json).diagnostics.map(\.message)
    for part in [
      "\"mean\" expects three numbers", "\"std\" expects three numbers other than 0",
      "\"order\" expects one of: rgb, bgr",
      "unknown key \"widht\" in \"input\"", "\"scale\" expects", "\"labels\" expects", "\"activation\" expects",
      "\"sha256\" expects", "unknown key \"colour\" in the recipe",
    ] {
      #expect(messages.count { $0.contains(part) } == 1, "\(part): \(messages)")
    }
    #expect(messages.count == 9)
  }

  @Test func `an entry that a recipe writes is read back the same`() throws {
    for recipe in ModelCatalogue.all {
      let (draft, diagnostics) = try read(recipe.entry.rendered(), isEntry: true)
      #expect(diagnostics.isEmpty)
      #expect(try draft.completed(with: nil, name: "x", fileName: "x") == recipe)
    }
  }
}

@Suite struct SizeRuleTests {
  private let rule = ModelRecipe.SizeRule(reference: 512, multiple: 32)

  /// Worked out by hand from MODNet's rule.
  @Test(arguments: [
    // Both sides large: the shorter becomes 512. 1920 / 1080 · 512 = 910.2 → 896.
    (1920, 1080, 896, 512), (1080, 1920, 512, 896), (512, 512, 512, 512),
    // Both small: 300 / 200 · 512 = 768.
    (300, 200, 768, 512),
    // One below, one above: left alone but for the multiple.
    (800, 500, 800, 480), (600, 20, 576, 32),
    // What would be 51,200 wide, and 0 high.
    (1000, 10, 992, 32), (100_000, 1000, 2048, 512), (1, 1, 512, 512), (1, 400, 512, 2048),
  ])
  func `sizes follow the rule and its guards`(_ width: Int, _ height: Int, _ wantedWidth: Int, _ wantedHeight: Int) {
    let size = rule.size(forWidth: width, height: height)
    #expect(size.width == wantedWidth && size.height == wantedHeight, "\(size)")
  }
}

@Suite struct NamedMaskMapTests {
  private let labels = ["background", "aeroplane", "dog"]

  private func recipe(_ activation: ModelRecipe.Activation = .softmax, layout: ModelRecipe.Layout = .nhwc)
    -> ModelRecipe
  {
    ModelRecipe(
      name: "t", fileName: "t", source: "", licence: "", width: 8, height: 8, mean: [0, 0, 0], deviation: [1, 1, 1],
      output: .init(layout: layout, channels: 3, subject: .allBut(0), width: 2, height: 1, labels: labels),
      activation: activation, normalisation: .none, emptyBelow: 0.5)
  }

  // ln 1, ln 2, ln 5 → 1/8, 2/8, 5/8; ln 8, ln 1, ln 1 → 0.8, 0.1, 0.1.
  private let scores: [Float] = [0, 0.6931472, 1.609438, 2.0794415, 0, 0]

  @Test func `the sum of the chosen comes first, then each`() throws {
    let maps = try recipe().maskMaps(of: scores, classes: ["Airplane", "DOG"])
    #expect(maps.map(\.name) == [nil, "aeroplane", "dog"])
    #expect(maps.allSatisfy { $0.width == 2 && $0.height == 1 })
    #expect(close(try #require(maps[0].map.values), [0.875, 0.2]))
    #expect(close(try #require(maps[2].map.values), [0.625, 0.1]))
    // The plane reaches a quarter at most.
    guard case .nothingFound(let peak) = maps[1].map else {
      Issue.record("a class of a quarter counts as found")
      return
    }
    #expect(abs(peak - 0.25) < 1e-4)
    let all = try recipe().maskMaps(of: scores, classes: ["*"])
    #expect(all == maps)
    let plain = try recipe().maskMaps(of: scores)
    #expect(plain.count == 1)
    #expect(close(try #require(plain[0].map.values), [0.875, 0.2]))
  }

  @Test func `planes give what pixels give, and sigmoids are not summed`() throws {
    let planar = [0, 3, 1, 4, 2, 5].map { scores[$0] }
    let wanted = try recipe().maskMaps(of: scores, classes: ["dog"])
    #expect(try recipe(layout: .nchw).maskMaps(of: planar, classes: ["dog"]) == wanted)
    // sigmoid(ln 3) = 0.75 twice is still 0.75.
    let sure: [Float] = [0, 1.0986123, 1.0986123, 0, 0, 0]
    let maps = try recipe(.sigmoid).maskMaps(of: sure, classes: ["dog", "aeroplane"])
    #expect(close(try #require(maps[0].map.values), [0.75, 0.5]))
  }

  @Test func `unknown classes are named with what is near`() throws {
    let error = try #require(
      failure { () throws(InferenceError) in try recipe().maskMaps(of: scores, classes: ["airplan"]) })
    #expect(error.message == "model t knows no class \"airplan\"")
    #expect(error.hint == "did you mean \"airplane\"?")
    let none = ModelRecipe(
      name: "t", fileName: "t", source: "", licence: "", width: 1, height: 1, mean: [0, 0, 0], deviation: [1, 1, 1])
    #expect(failure { () throws(InferenceError) in try none.maskMaps(of: [1], classes: ["dog"]) } != nil)
  }

  @Test func `nothing found is below a half for all together`() throws {
    // ln 6, ln 1, ln 1 twice: 0.25 of a subject.
    let weak: [Float] = [1.7917595, 0, 0, 1.7917595, 0, 0]
    guard case .nothingFound(let peak) = try recipe().maskMaps(of: weak, classes: ["*"])[0].map else {
      Issue.record("a quarter counts as found")
      return
    }
    #expect(abs(peak - 0.25) < 1e-4)
  }

  @Test(arguments: [
    ("airplane", "aeroplane"), ("motorcycle", "motorbike"), ("dining table", "diningtable"), ("TV monitor", "tv"),
    ("tvmonitor", "tv"), ("potted_plant", "pottedplant"), ("couch", "sofa"), ("Person", "person"), ("people", "person"),
    ("bike", "bicycle"),
  ])
  func `usual spellings of the classes of Pascal VOC`(_ name: String, _ label: String) throws {
    let voc = try #require(ModelCatalogue.named("deeplabv3-257")).output.labels
    #expect(voc.count == 21)
    #expect(ClassNames.index(of: name, in: voc).map { voc[$0] } == label)
  }
}
