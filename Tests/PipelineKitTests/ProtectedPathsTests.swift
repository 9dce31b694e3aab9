import Glibc
import PipelineKit
import TestSupport
import Testing

@Suite struct ProtectedPathsTests {
  private let folder = TemporaryFolder()

  private func path(_ name: String) -> PathBytes { PathBytes(folder[name]) }

  private func protected(_ inputs: [String], others: [(String, String)] = []) -> ProtectedPaths {
    var resolver = FolderResolver()
    return ProtectedPaths(
      inputs: inputs.map(path), others: others.map { (path($0.0), $0.1) }, resolver: &resolver)
  }

  private func code(_ paths: ProtectedPaths, _ name: String, inPlace: Bool = false) -> String? {
    var resolver = FolderResolver()
    return paths.refusal(of: path(name), resolved: resolver.resolve(path(name)), mayReplaceInputs: inPlace)?.code
  }

  @Test func nothingIsProtectedByDefault() {
    #expect(code(ProtectedPaths(), "a") == nil)
  }

  @Test func inputsAndTheirNeighbours() {
    let names = (0..<100).map { "in/\($0).jpg" }
    let paths = protected(names)
    for name in names { #expect(code(paths, name) == "output-overwrites-input") }
    for index in 100..<200 { #expect(code(paths, "in/\(index).jpg") == nil) }
    #expect(code(paths, "in") == nil)
    #expect(code(paths, names[3], inPlace: true) == nil)
  }

  /// Every link on the way to the file, and the file; whichever way the folder is spelt.
  @Test func everyPlaceThatLinksLeadThrough() {
    folder.write("x", to: "store/real.jpg")
    folder.makeFolder("mid")
    folder.makeFolder("in")
    symlink("../store/real.jpg", folder["mid/link.jpg"])
    symlink(folder["mid/link.jpg"], folder["in/a.jpg"])
    symlink("store", folder["alias"])
    let paths = protected(["in/a.jpg"])
    for name in ["in/a.jpg", "mid/link.jpg", "store/real.jpg", "alias/real.jpg"] {
      #expect(code(paths, name) == "output-overwrites-input", "\(name)")
    }
    #expect(code(paths, "store/a.jpg") == nil)
    #expect(code(paths, "mid/a.jpg") == nil)
  }

  @Test func linksThatLeadInACircleOrNowhere() {
    symlink("b", folder["a"])
    symlink("a", folder["b"])
    symlink("missing/c", folder["broken"])
    let paths = protected(["a", "broken"])
    for name in ["a", "b", "broken", "missing/c"] { #expect(code(paths, name) == "output-overwrites-input") }
  }

  @Test func inPlaceFreesInputsOnly() {
    let paths = protected(["a.jpg"], others: [("m.csv", "the manifest")])
    #expect(code(paths, "a.jpg", inPlace: true) == nil)
    #expect(code(paths, "m.csv", inPlace: true) == "output-overwrites-input")
    #expect(
      paths.refusal(of: path("m.csv"), resolved: path("m.csv"), mayReplaceInputs: true)?.message
        == "the output \(folder["m.csv"]) is the manifest, which this job reads")
  }
}
