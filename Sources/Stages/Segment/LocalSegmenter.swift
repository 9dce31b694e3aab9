import Glibc
import Imaging
import Inference
import JobSyntax
import PipelineKit

/// A model on this machine. One compiled model serves all workers, with a request for each, and all stages of a run
/// that use it with the same precision.
struct LocalSegmenter {
  private let loaded: LoadedModel
  private let choice: ModelChoice
  private let outputs: ModelOutputs

  var recipe: ModelRecipe { loaded.recipe }

  /// The arithmetic follows from the processor where the job leaves the choice.
  var maker: String { "OpenVINO \(loaded.pool.model.runtimeVersion) \(loaded.pool.model.precisionUsed)" }

  init(_ choice: ModelChoice, isSpare: Bool = false, resources: StageResources) throws(StageError) {
    self.choice = choice
    outputs = try resources.shared.object("segment.outputs") { ModelOutputs(mostBytes: 32 << 20) }
    loaded = try LoadedModel.load(choice, isSpare: isSpare, resources: resources)
    try Self.check(choice, loaded.recipe)
  }

  /// Looks whether a model could be used, without compiling it: that its file is the one the recipe names, that it
  /// knows the classes, and that OpenVINO is there.
  static func check(_ choice: ModelChoice, resources: StageResources) throws(StageError) {
    let (recipe, file) = try LoadedModel.resolve(choice, resources: resources)
    do throws(InferenceError) { try recipe.checkInstallation(file: file) } catch {
      throw StageError(error, kind: .environment)
    }
    try check(choice, recipe)
  }

  private static func check(_ choice: ModelChoice, _ recipe: ModelRecipe) throws(StageError) {
    guard let classes = choice.classes else { return }
    do throws(InferenceError) { _ = try recipe.channels(of: classes) } catch { throw StageError(error, kind: .job) }
  }

  /// What the model says about a picture, at the model's size: first everything that was asked for, without a name, then
  /// each class where classes were asked for.
  ///
  /// The picture becomes the model's input as in rembg's recipe: alpha is ignored, and it is stretched to the model's
  /// size by an 8-bit Lanczos.
  ///
  /// Throws `geometry` for a mask where a picture is needed, `inference-failed` and `model-invalid`.
  func maps(of picture: Image) throws(StageError) -> [NamedMaskMap] { try maps(of: picture, separate: true) }

  func maps(of picture: Image, separate: Bool) throws(StageError) -> [NamedMaskMap] {
    guard picture.bands >= 3 else {
      throw StageError(
        "geometry", "a mask came where the model needs a colour picture", kind: .job,
        hint: "use \"output\": \"cutout\" in the \"segment\" stage before")
    }
    let size = recipe.inputSize(forWidth: picture.width, height: picture.height)
    let filter: LanczosResampler.Filter =
      switch recipe.resampling {
      case .lanczos: .lanczos
      case .bilinear: .bilinear
      case .area: .area
      }
    let input = try StageError.imaging { () throws(ImagingError) in
      try picture.eightBitSRGB().withPixels { pixels in
        LanczosResampler.resize(
          pixels.bindMemory(to: UInt8.self), width: picture.width, height: picture.height, bands: 3,
          toWidth: size.width, toHeight: size.height, filter: filter)
      }
    }
    do throws(InferenceError) {
      let output = try outputs.output(of: input, width: size.width, height: size.height, loaded)
      let outputSize = recipe.outputSize(forInputWidth: size.width, height: size.height)
      let maps = try recipe.maskMaps(
        of: output, width: outputSize.width, height: outputSize.height, classes: choice.classes)
      return separate ? maps : Array(maps.prefix(1))
    } catch {
      throw StageError(error, kind: .temporary)
    }
  }

  /// A map enlarged as rembg does it: spread over 0…255, cut to 8 bits, and stretched by an 8-bit Lanczos; nil where
  /// nothing was found.
  static func stretched(_ map: NamedMaskMap, over picture: Image) throws(StageError) -> Image? {
    guard let small = map.map.bytes else { return nil }
    return try StageError.imaging { () throws(ImagingError) in
      try Image(
        width: picture.width, height: picture.height, bands: 1,
        bytes: LanczosResampler.resize(
          small, width: map.width, height: map.height, bands: 1, toWidth: picture.width, toHeight: picture.height))
    }
  }
}

/// A compiled model with its requests, as all stages of a run share it.
final class LoadedModel: Sendable {
  let pool: InferencePool
  let recipe: ModelRecipe
  /// Tells its outputs from those of other models.
  let identity: String

  private init(_ model: Model) throws(InferenceError) {
    pool = try InferencePool(model)
    recipe = model.recipe
    identity = "\(model.sha256) \(model.precisionUsed) \(model.recipe.entry.rendered())"
  }

  /// Finds and fetches a model where the job allows it; reads what its file says, and compiles nothing.
  ///
  /// - Returns: its recipe, and its file where it is none of the catalogue.
  static func resolve(
    _ choice: ModelChoice, resources: StageResources
  ) throws(StageError) -> (recipe: ModelRecipe, file: String?) {
    let home = PipelineHome.current
    let isFile = AddedModels.isFile(choice.name)
    let file =
      isFile
      ? String(decoding: resources.run.baseFolder.joining(PathBytes(choice.name)).normalised.bytes, as: UTF8.self) : nil
    do throws(InferenceError) {
      if let file {
        let recipe = try (choice.draft ?? RecipeDraft()).completed(
          with: try Model.facts(ofFile: file, home: home), name: choice.name, fileName: choice.name)
        return (recipe, file)
      } else {
        guard let known = try ModelCatalogue.named(choice.name, home: home) else {
          throw InferenceError(
            .modelInvalid, "unknown model \"\(choice.name)\"", hint: "`pipeline models list` names them")
        }
        if choice.allowsDownload, (try? ModelCatalogue.locate(known, home: home)) == nil {
          let mirror = getenv(ModelPull.mirrorVariable).map { String(cString: $0) }
          _ = try ModelPull.store(home: home, mirror: mirror).pull(known)
        }
        return (known, nil)
      }
    } catch {
      throw StageError(error, kind: .environment)
    }
  }

  /// Finds, fetches where the job allows it, checks and compiles a model, or takes the one that another stage of the
  /// run has; tells the report which it is.
  ///
  /// - Parameter isSpare: whether it serves beside another: the report then keeps its facts apart.
  static func load(
    _ choice: ModelChoice, isSpare: Bool = false, resources: StageResources
  ) throws(StageError) -> LoadedModel {
    let home = PipelineHome.current
    let (recipe, file) = try resolve(choice, resources: resources)
    // Two descriptions of one file are two models.
    let key = "segment.model \(choice.precision.rawValue) \(file ?? "") \(recipe.entry.rendered())"
    let loaded = try resources.shared.object(key) { () throws(StageError) in
      do throws(InferenceError) {
        return try LoadedModel(
          try Model(
            recipe: recipe, file: file, precision: choice.precision, requests: resources.computeWorkers,
            threads: resources.computeWorkers, home: home))
      } catch {
        throw StageError(error, kind: .environment)
      }
    }
    let model = loaded.pool.model
    resources.facts.set("version.openvino", .string(model.runtimeVersion))
    resources.facts.set(
      isSpare ? "model.\(recipe.name)" : "model",
      .object([
        ("name", .string(recipe.name)), ("sha256", .string(model.sha256)), ("verified", .bool(model.verified)),
        ("precision", .string(model.precisionUsed)),
      ]))
    return loaded
  }
}

extension StageError {
  init(_ error: InferenceError, kind: ErrorClass) {
    let code =
      switch error.code {
      case .runtimeMissing: "runtime-missing"
      case .runtimeVersion: "runtime-version"
      case .modelMissing: "model-missing"
      case .checksum: "model-checksum"
      case .modelInvalid: "model-invalid"
      case .failed: "inference-failed"
      }
    self.init(code, error.message, kind: kind, hint: error.hint)
  }
}
