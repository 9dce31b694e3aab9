import Glibc
import Imaging
import Inference
import JobSyntax
import PipelineKit
import TestSupport
import Testing

@testable import Stages

private let data = getenv("PIPELINE_TEST_DATA").map { String(cString: $0) } ?? "../shared/data"
private let hasData =
  access(data + "/models", R_OK) == 0 && access(data + "/matte/coco10", R_OK) == 0
  && (try? PipelineHome.current.locateRuntime()) != nil
private let needsData: Comment = "needs the OpenVINO runtime (make provision) and the test data (PIPELINE_TEST_DATA)"

/// Which model runs, and what is said about a wrong choice of it.
@Suite struct ModelFieldsTests {
  private func lint(_ settings: String) throws -> [Diagnostic] {
    try StageBench.lint(Segment.self, "{ \"stage\": \"segment\", \(settings) }")
  }

  @Test func `models given by their path need a recipe`() throws {
    for path in ["own.onnx", "models/own", "own.TFLITE", "./own.xml", "/models/own.onnx"] {
      let found = try lint("\"model\": \"\(path)\"")
      #expect(found.map(\.code) == ["missing-key"], "\(path)")
      #expect(found.first?.message.contains("needs \"recipe\"") == true)
      #expect(try lint("\"model\": \"\(path)\", \"recipe\": \"u2netp\"").isEmpty)
      #expect(
        try lint("\"model\": \"\(path)\", \"recipe\": { \"input\": { \"mean\": [0, 0, 0], \"std\": [1, 1, 1] } }")
          .isEmpty)
    }
    let half = try lint(#""model": "own.onnx", "recipe": { "input": { "mean": [0, 0, 0] } }"#)
    #expect(half.map(\.message) == [#""recipe" needs "input.std": it cannot be read from the model"#])
    let both = try lint(#""model": "own.onnx", "recipe": {}"#)
    #expect(both.count == 2)
    #expect(try lint(#""model": "own.onnx", "recipe": { "like": "u2netp" }"#).isEmpty)
  }

  @Test(arguments: [
    (#""recipe": { "input": { "mean": [0, 0], "std": [1, 1, 1] } }"#, "mean"),
    (#""recipe": { "input": { "mean": [0, 0, 0], "std": [1, 0, 1] } }"#, "std"),
    (#""recipe": { "like": "u2netp", "input": { "widht": 5 } }"#, "widht"),
    (#""recipe": { "like": "u2netp", "input": { "width": 0 } }"#, "width"),
    (#""recipe": { "like": "u2netp", "input": { "scale": "min" } }"#, "scale"),
    (#""recipe": { "like": "u2netp", "input": { "scale": 0 } }"#, "scale"),
    (#""recipe": { "like": "u2netp", "output": { "activation": "relu" } }"#, "activation"),
    (#""recipe": { "like": "u2netp", "output": { "labels": ["a", "a"] } }"#, "labels"),
    (#""recipe": { "like": "u2netp", "sha256": "abc" }"#, "sha256"),
    (#""recipe": { "like": "u2nepp" }"#, "u2nepp"), (#""recipe": "u2nepp""#, "u2nepp"), (#""recipe": 3"#, "recipe"),
    (#""recipe": "u2netp", "classes": ["dog"]"#, "classes"),
    (#""recipe": "u2netp", "allowDownload": true"#, "allowDownload"),
    (#""recipe": "deeplabv3-257", "classes": ["dogg"]"#, "dogg"),
  ])
  func `what is wrong with a recipe is said with its field`(_ settings: String, _ word: String) throws {
    let found = try lint("\"model\": \"own.onnx\", \(settings)")
    #expect(found.hasErrors)
    #expect(found.allSatisfy { $0.message.contains(word) }, "\(found.map(\.message))")
    #expect(found.count == 1)
  }

  @Test func `classes are known by their usual names`() throws {
    let all =
      #""model": "deeplabv3-257", "classes": ["person", "Airplane", "tv monitor", "dining table", "couch", "*"]"#
    #expect(try lint(all).isEmpty)
    let near = try lint(#""model": "deeplabv3-257", "classes": ["person", "motorbke"]"#)
    #expect(near.map(\.code) == ["unknown-class"])
    #expect(near.first?.hint == "did you mean \"motorbike\"?")
    #expect(near.first?.path == "$.classes[1]")
    let far = try lint(#""model": "deeplabv3-513", "classes": ["zebra"]"#)
    #expect(far.first?.hint == "it knows: background, person")
    #expect(try lint(#""model": "u2netp", "classes": ["person"]"#).map(\.code) == ["not-applicable"])
    #expect(try lint(#""model": "u2netp", "separate": true"#).map(\.code) == ["not-applicable"])
    #expect(try lint(#""model": "u2netp", "separate": false"#).isEmpty)
    #expect(try lint(#""model": "u2netp", "recipe": "u2net""#).map(\.code) == ["not-applicable"])
    #expect(try lint(#""classes": []"#).hasErrors)
  }

  @Test func `the plan names the files of a model given by its path`() throws {
    func files(_ settings: String) throws -> [String] {
      Segment.plan(try StageBench.settings(Segment.self, "{ \"stage\": \"segment\", \(settings) }")).helperFiles
    }
    #expect(try files(#""model": "m/own.onnx", "recipe": "u2netp""#) == ["m/own.onnx"])
    #expect(try files(#""model": "own.xml", "recipe": "u2netp""#) == ["own.xml", "own.bin"])
    #expect(try files(#""model": "u2netp""#) == [])
  }

  @Test func `a run fetches no model unless the job allows it`() async {
    // A process of its own, because the environment belongs to the whole process.
    await #expect(processExitsWith: .success) {
      let bench = StageBench()
      let server = FileServer(["u2netp.onnx": Array("no model".utf8)])
      setenv("PIPELINE_HOME", bench.folder.path, 1)
      setenv(ModelPull.mirrorVariable, server.address, 1)
      func failure(_ settings: String) throws -> StageError? {
        let settings = try StageBench.settings(Segment.self, "{ \"stage\": \"segment\"\(settings) }")
        do throws(StageError) {
          _ = try Segment(settings, resources: StageResources(run: bench.run, computeWorkers: 1, facts: RunFacts()))
          return nil
        } catch { return error }
      }
      guard try failure("")?.code == "model-missing", server.requests.isEmpty else {
        fatalError("it asked for a model")
      }
      let error = try failure(#", "allowDownload": true"#)
      guard error?.code == "model-checksum", server.requests.count == 1 else {
        fatalError("\(String(describing: error))")
      }
    }
  }
}

/// The models of the test data, each by its path, on photographs.
@Suite(.enabled(if: hasData, needsData)) struct SemanticModelTests {
  private struct Photo {
    var name: String
    var image: Image
    /// The class of each pixel; 255 where none is given.
    var classes: [UInt8]
  }

  private static let names = [
    "000000004495", "000000007977", "000000017182", "000000026564", "000000043816", "000000046804", "000000051738",
    "000000060363", "000000079034", "000000098520",
  ]

  private func photo(_ name: String) throws -> Photo {
    func image(_ file: String) throws -> Image {
      let path = data + "/matte/coco10/" + file
      return try EncodedPicture(bytes: try EncodedPicture.read(path: Array(path.utf8))).decode().materialised()
    }
    try Libvips.start()
    let truth = try image(name + ".voc21.png")
    let bands = truth.bands
    let bytes = try truth.bytes()
    return Photo(
      name: name, image: try image(name + ".jpg"),
      classes: stride(from: 0, to: bytes.count, by: bands).map { bytes[$0] })
  }

  private func segmenter(
    _ model: String, _ recipe: String, classes: [String]? = nil, shared: SharedObjects = SharedObjects()
  ) throws -> LocalSegmenter {
    let bench = StageBench()
    let (root, _) = StrictJSON.parse(SourceFile(name: "recipe", text: Array(recipe.utf8)))
    let (draft, problems) = RecipeDraft.read(try #require(root), file: "recipe", isEntry: false)
    try #require(problems.isEmpty, "\(problems.map(\.message))")
    let file = data.hasPrefix("/") ? data : "\(String(cString: getcwd(nil, 0)))/\(data)"
    return try LocalSegmenter(
      ModelChoice(name: "\(file)/models/\(model)", draft: draft, classes: classes),
      resources: StageResources(run: bench.run, computeWorkers: 1, facts: RunFacts(), shared: shared))
  }

  /// Pixels that both say, and that either says.
  private func overlap(_ mask: [UInt8], _ photo: Photo, _ isWanted: (UInt8) -> Bool) -> (both: Int, either: Int) {
    var (both, either) = (0, 0)
    for (level, label) in zip(mask, photo.classes) where label != 255 {
      let (found, wanted) = (level >= 128, isWanted(label))
      if found && wanted { both += 1 }
      if found || wanted { either += 1 }
    }
    return (both, either)
  }

  @Test func `DeepLab finds the classes of ten photos`() throws {
    let deepLab = try segmenter("deeplabv3_257_mv_gpu.tflite", #"{ "like": "deeplabv3-257" }"#, classes: ["*"])
    #expect(
      deepLab.recipe.width == 257 && deepLab.recipe.output.channels == 21 && deepLab.recipe.output.layout == .nhwc)
    var (both, either) = (0, 0)
    for name in Self.names {
      let photo = try photo(name)
      let map = try deepLab.maps(of: photo.image).first
      let mask =
        try map.flatMap { try LocalSegmenter.stretched($0, over: photo.image) }?.bytes()
        ?? [UInt8](repeating: 0, count: photo.classes.count)
      let own = overlap(mask, photo) { $0 != 0 }
      both += own.both
      either += own.either
    }
    // The same in NumPy on OpenVINO's Python interface: see the number beside it.
    let share = Double(both) / Double(either)
    #expect(abs(share - Self.referenceShare) < 0.01, "intersection over union of all ten: \(share)")
  }

  /// Intersection over union of all ten photos together, 1 − softmax of the background at half, by NumPy, Pillow and
  /// OpenVINO 2026.4.1 in Python.
  private static let referenceShare = 0.6223

  @Test func `classes come by themselves, and together first`() throws {
    let person = try photo("000000043816")
    let deepLab = try segmenter(
      "deeplabv3_257_mv_gpu.tflite", #"{ "like": "deeplabv3-257" }"#, classes: ["people", "airplane"])
    let maps = try deepLab.maps(of: person.image)
    #expect(maps.map(\.name) == [nil, "aeroplane", "person"])
    #expect(maps.allSatisfy { $0.width == 257 && $0.height == 257 })
    let mattes = try maps.map { try LocalSegmenter.stretched($0, over: person.image) }
    // There is no aeroplane, so there is no matte of one.
    #expect(mattes.map { $0 == nil } == [false, true, false])
    let matte = mattes[0]
    let mask = try #require(mattes[2])
    #expect(mask.width == person.image.width && mask.height == person.image.height)
    let (both, either) = overlap(try mask.bytes(), person) { $0 == 15 }
    #expect(Double(both) / Double(either) > 0.6, "\(Double(both) / Double(either))")
    let all = try #require(matte).bytes()
    // The sum of two shares is no less than one of them; resampling rounds.
    let own = try mask.bytes()
    #expect(zip(all, own).allSatisfy { Int($0) + 2 >= Int($1) })
    // Soft: what is upsampled are shares, not decisions.
    #expect(Set(all).count > 100)
  }

  /// Model, recipe, and its intersection over union with the persons of the photo, by NumPy, Pillow and OpenVINO
  /// 2026.4.1 in Python. The photo is hard for models of selfies, and what they give is what is compared.
  private static let models: [(file: String, recipe: String, share: Double)] = [
    (
      "deeplab_aiseg513_dm05_float.tflite",
      """
      { "input": { "scale": 127.5, "mean": [1, 1, 1], "std": [1, 1, 1] },
        "output": { "labels": ["background", "person"], "activation": "softmax" } }
      """, 0.602
    ),
    (
      "SINet_Softmax.onnx",
      """
      { "input": { "order": "bgr", "scale": 1, "mean": [102.89, 111.25, 126.91], "std": [16047.15, 16019.1, 16921.8] },
        "output": { "activation": "none" } }
      """, 0.163
    ),
    (
      "prisma_nchw.onnx",
      #"{ "input": { "mean": [0, 0, 0], "std": [1, 1, 1] }, "output": { "normalise": false } }"#, 0.304
    ),
    (
      "slim_reshape_v2.tflite",
      #"{ "input": { "mean": [0, 0, 0], "std": [1, 1, 1] }, "output": { "normalise": false } }"#, 0.058
    ),
    (
      "mediapipe_portrait_segmentation.tflite",
      #"{ "input": { "mean": [0, 0, 0], "std": [1, 1, 1] }, "output": { "activation": "softmax" } }"#, 0.058
    ),
  ]

  @Test(arguments: models.indices)
  func `models run by their path with what the file does not say`(_ index: Int) throws {
    let (file, recipe, wanted) = Self.models[index]
    let person = try photo("000000007977")
    let map = try #require(try segmenter(file, recipe).maps(of: person.image).first)
    let mask = try #require(try LocalSegmenter.stretched(map, over: person.image), "\(file) found nothing")
    let (both, either) = overlap(try mask.bytes(), person) { $0 == 15 }
    let share = Double(both) / Double(either)
    #expect(abs(share - wanted) < 0.01, "\(file): \(share)")
  }

  @Test func `stages of one run share a model and look at a picture once`() throws {
    let shared = SharedObjects()
    let recipe = #"{ "like": "deeplabv3-257" }"#
    let dogs = try segmenter("deeplabv3_257_mv_gpu.tflite", recipe, classes: ["dog"], shared: shared)
    let all = try segmenter("deeplabv3_257_mv_gpu.tflite", recipe, shared: shared)
    let photo = try photo(Self.names[0])
    _ = try dogs.maps(of: photo.image)
    let first = try all.maps(of: photo.image)
    #expect(try all.maps(of: photo.image) == first)
    let outputs = try shared.object("segment.outputs") { () throws(StageError) -> ModelOutputs in
      throw StageError("test", "the stages share no outputs")
    }
    #expect(outputs.inferences == 1)
    _ = try all.maps(of: try self.photo(Self.names[1]).image)
    #expect(outputs.inferences == 2)
    // Another recipe of the same file is another model.
    _ = try segmenter(
      "deeplabv3_257_mv_gpu.tflite", #"{ "like": "deeplabv3-257", "input": { "scale": 255 } }"#, shared: shared
    ).maps(of: photo.image)
    #expect(outputs.inferences == 3)
  }
}
