import Imaging
import Inference
import JobSyntax
import PipelineKit

/// A model on this machine. One compiled model serves all workers, with a request for each.
struct LocalSegmenter: Segmenter {
  private let pool: InferencePool
  private let recipe: ModelRecipe

  var name: String { recipe.name }

  /// - Parameter isSpare: whether it serves beside others: the report then keeps its facts apart.
  init(
    model name: String, precision: Precision, isSpare: Bool = false, resources: StageResources
  ) throws(StageError) {
    recipe = try Self.recipe(name)
    do throws(InferenceError) {
      let model = try Model(
        recipe: recipe, precision: precision, requests: resources.computeWorkers, threads: resources.computeWorkers)
      pool = try InferencePool(model)
      resources.facts.set("version.openvino", .string(model.runtimeVersion))
      resources.facts.set(
        isSpare ? "model.\(recipe.name)" : "model",
        .object([
          ("name", .string(recipe.name)), ("sha256", .string(model.sha256)), ("verified", .bool(model.verified)),
          ("precision", .string(model.precisionUsed)),
        ]))
    } catch {
      throw StageError(error, kind: .environment)
    }
  }

  /// Follows rembg's recipe: alpha ignored, stretched to the model's size by an 8-bit Lanczos, the model's map spread
  /// over 0…255 and cut to 8 bits, and stretched back by the same Lanczos.
  func matte(of picture: Image) throws(StageError) -> FoundMatte? {
    guard picture.bands >= 3 else {
      throw StageError(
        "geometry", "a mask came where the model needs a colour picture", kind: .job,
        hint: "use \"output\": \"cutout\" in the \"segment\" stage before")
    }
    let input = try StageError.imaging { () throws(ImagingError) in
      try picture.eightBitSRGB().withPixels { pixels in
        LanczosResampler.resize(
          pixels.bindMemory(to: UInt8.self), width: picture.width, height: picture.height, bands: 3,
          toWidth: recipe.width, toHeight: recipe.height)
      }
    }
    let map: MaskMap
    do throws(InferenceError) {
      map = try recipe.maskMap(of: try pool.map(of: input))
    } catch {
      throw StageError(error, kind: .temporary)
    }
    guard case .map(let values, _) = map, let small = map.bytes else { return nil }
    let score = MatteScore(of: values, width: recipe.width, height: recipe.height)
    let matte = try StageError.imaging { () throws(ImagingError) in
      try Image(
        width: picture.width, height: picture.height, bands: 1,
        bytes: LanczosResampler.resize(
          small, width: recipe.width, height: recipe.height, bands: 1, toWidth: picture.width,
          toHeight: picture.height))
    }
    return FoundMatte(matte: matte, record: MatteRecord(score, provider: "local", model: recipe.name))
  }

  private static func recipe(_ name: String) throws(StageError) -> ModelRecipe {
    guard let recipe = ModelCatalogue.named(name) else {
      throw StageError(
        "unknown-model", "unknown model \"\(name)\"", kind: .job, hint: "`pipeline models list` names them")
    }
    return recipe
  }

  /// Looks whether a model could be used, without compiling it.
  static func check(model name: String) throws(StageError) {
    let recipe = try recipe(name)
    do throws(InferenceError) { try recipe.checkInstallation() } catch { throw StageError(error, kind: .environment) }
  }
}

extension MatteRecord {
  init(_ score: MatteScore, provider: String, model: String?) {
    self.init(
      provider: provider, model: model, score: score.score, coverage: score.coverage, softness: score.softness,
      islands: score.islands, border: score.border, flip: score.flip)
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
