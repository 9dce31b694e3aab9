import JobSyntax
import TestSupport
import Testing

/// Reads the marked source and expects findings with exactly these codes, in order, at the marks.
@discardableResult
func expectFindings(
  _ marked: String, _ codes: StrictJSON.Code..., sourceLocation: Testing.SourceLocation = #_sourceLocation
) -> [Diagnostic] {
  let source = MarkedSource(marked)
  let (root, diagnostics) = StrictJSON.parse(source.file)
  #expect(diagnostics.map(\.code) == codes.map(\.rawValue), "\(marked)", sourceLocation: sourceLocation)
  #expect(diagnostics.map(\.range) == source.ranges.map(Optional.some), "\(marked)", sourceLocation: sourceLocation)
  #expect(root != nil || diagnostics.hasErrors, "\(marked)", sourceLocation: sourceLocation)
  return diagnostics
}

func parse(_ text: String, maxDepth: Int = 64) -> (root: JSONNode?, diagnostics: [Diagnostic]) {
  StrictJSON.parse(SourceFile(name: "job.json", text: Array(text.utf8)), maxDepth: maxDepth)
}
