import Imaging
import JobSyntax
import PipelineKit

extension BlendMode: FieldChoice {
  public var help: String {
    switch self {
    case .clear: "nothing stays"
    case .source: "in place of what is below"
    case .over: "covers what is below"
    case .inside: "shows only where something is below"
    case .outside: "shows only where nothing is below"
    case .atop: "covers, but only where something is below"
    case .dest: "what is below stays as it is"
    case .destOver: "behind what is below"
    case .destIn: "what is below stays where this is"
    case .destOut: "what is below stays where this is not"
    case .destAtop: "behind what is below, which stays only where this is"
    case .xor: "each shows where the other is not"
    case .add: "the sum: lighter"
    case .saturate: "the sum, as far as there is room in the alpha"
    case .multiply: "the product: white changes nothing, black stays black"
    case .screen: "the product of the negatives: black changes nothing, white stays white"
    case .overlay: "`multiply` where what is below is dark, `screen` where it is light"
    case .darken: "the darker of both, in each of red, green and blue"
    case .lighten: "the lighter of both, in each of red, green and blue"
    case .colourDodge: "brightens what is below, up to white"
    case .colourBurn: "darkens what is below, down to black"
    case .hardLight: "`multiply` where this is dark, `screen` where it is light"
    case .softLight: "as `hard-light`, but gently"
    case .difference: "the distance of both"
    case .exclusion: "as `difference`, with less contrast"
    }
  }

  /// What is wrong with the mode of a layer, or of the subject: with some, nothing shows of it.
  static func check(_ settings: Settings, at field: Field<BlendMode>, whatIsGone: String) -> [Diagnostic] {
    let mode = settings[field]
    guard mode == .clear || mode == .dest else { return [] }
    return [
      settings.diagnostic(
        .error, "wrong-value", at: field, "with \"\(mode.rawValue)\" nothing shows of \(whatIsGone)",
        hint: "\"over\" lays it on, \"dest-over\" behind")
    ]
  }
}
