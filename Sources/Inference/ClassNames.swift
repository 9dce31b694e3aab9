import JobSyntax

/// The names of what models tell apart, in every usual spelling.
public enum ClassNames {
  /// The place of a class among a model's labels; nil where it is none of them.
  ///
  /// Case, spaces, hyphens and underscores don't matter, and names that mean the same class are interchangeable
  /// (`airplane` finds `aeroplane`).
  public static func index(of name: String, in labels: [String]) -> Int? {
    let wanted = spellings(of: name)
    return labels.firstIndex { wanted.contains(folded($0)) }
  }

  /// The label or alias that `name` was most likely meant to be.
  public static func suggestion(for name: String, among labels: [String]) -> String? {
    let aliases = ModelCatalogue.classAliases.filter { group in labels.contains { group.contains(folded($0)) } }
    return NearestName.suggestion(for: name, among: labels + aliases.flatMap(\.self))
  }

  /// Lower-case letters and digits alone.
  static func folded(_ name: String) -> String {
    String(String.UnicodeScalarView(name.lowercased().unicodeScalars.filter { !" -_".unicodeScalars.contains($0) }))
  }

  private static func spellings(of name: String) -> Set<String> {
    let folded = folded(name)
    return ModelCatalogue.classAliases.filter { $0.contains(folded) }.reduce(into: [folded]) { $0.formUnion($1) }
  }
}
