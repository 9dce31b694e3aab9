import Inference
import Transport

/// Fetching models: the store of `Inference` over the requests of `Transport`, which do not know each other.
public enum ModelPull {
  /// The environment variable whose address replaces those of the catalogue.
  public static let mirrorVariable = "PIPELINE_MODEL_MIRROR"

  /// A store that fetches over https, or http on this machine.
  ///
  /// - Parameters:
  ///   - mirror: replaces every address by `MIRROR/FILE`; nil or empty for the catalogue's own.
  ///   - home: where the models go.
  public static func store(home: PipelineHome = .current, mirror: String?) -> ModelStore {
    ModelStore(home: home, mirror: mirror) { (request, head, body) throws(ModelStore.FetchError) in
      do throws(TransportError) {
        try Download(try Address(request.url), offset: request.offset, validator: request.validator).run(
          head: { answer in
            head(
              ModelStore.Answer(
                status: answer.status, start: answer.rangeStart,
                total: answer.status == 200 ? answer.length : answer.rangeTotal, validator: answer.validator))
          }, body: body)
      } catch {
        throw ModelStore.FetchError(error.message, isInterruption: error.code == .interrupted)
      }
    }
  }
}
