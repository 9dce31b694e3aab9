import TestSupport
import Testing

@testable import Inference

@Suite struct ModelCatalogueTests {
  @Test func `names and files are unique and recipes complete`() {
    #expect(Set(ModelCatalogue.all.map(\.name)).count == ModelCatalogue.all.count)
    #expect(Set(ModelCatalogue.all.map(\.fileName)).count == ModelCatalogue.all.count)
    for recipe in ModelCatalogue.all {
      #expect(recipe.mean.count == 3 && recipe.deviation.count == 3)
      #expect(!recipe.tested || recipe.sha256 != nil)
      #expect(!recipe.source.isEmpty && !recipe.licence.isEmpty)
      #expect(recipe.url?.hasPrefix("https://") ?? (recipe.note != nil), "\(recipe.name)")
      #expect(AddedModels.isName(recipe.name) && AddedModels.isFile(recipe.fileName))
      #expect(recipe.output.labels.isEmpty || recipe.output.labels.count == recipe.output.channels)
    }
    #expect(ModelCatalogue.named("nothing") == nil)
    #expect(ModelCatalogue.named(ModelCatalogue.defaultName)?.tested == true)
  }

  @Test func `every entry of the catalogue is whole`() {
    #expect(ModelCatalogue.problems == [])
    #expect(ModelCatalogue.all.count == 25)
    #expect(
      ModelCatalogue.classAliases.allSatisfy { group in
        group.count > 1 && group.allSatisfy { ClassNames.folded($0) == $0 }
      })
    // A broken entry is left out and reported, and the others stay.
    let broken =
      #"{ "models": [ { "name": "a", "file": "a.onnx" }, { "name": "b", "file": "b.onnx", "colour": 1, "#
      + #""input": { "width": 2, "height": 2, "mean": [0, 0, 0], "std": [1, 1, 1] } } ] }"#
    let read = ModelCatalogue.read(Array(broken.utf8))
    #expect(read.recipes.map(\.name) == ["b"])
    #expect(read.problems.count == 2)
  }

  /// The recipe that masks are compared with rembg's by.
  @Test func `u2netp's recipe is rembg's`() throws {
    let recipe = try #require(ModelCatalogue.named("u2netp"))
    #expect((recipe.width, recipe.height) == (320, 320))
    #expect(recipe.mean == [0.485, 0.456, 0.406] && recipe.deviation == [0.229, 0.224, 0.225])
    #expect(recipe.scaling == .maximum && recipe.layout == .nchw && recipe.channelOrder == .rgb)
    #expect(recipe.resampling == .lanczos && recipe.activation == .none && recipe.normalisation == .minimumToMaximum)
    #expect(recipe.output == ModelRecipe.Output() && recipe.emptyBelow == 0.1 && recipe.sizeRule == nil)
  }

  @Test func `digests are those of the published test vector`() throws {
    // "abc": FIPS 180-4's example, and RFC 1321's.
    let folder = TemporaryFolder()
    let digest = try FileDigest.ofFile(folder.write("abc", to: "abc"))
    #expect(digest.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    #expect(digest.md5 == "900150983cd24fb0d6963f7d28e17f72")
    #expect(digest.size == 3)
    // A file that changed is hashed again.
    folder.write("", to: "abc")
    #expect(try FileDigest.ofFile(folder["abc"]).md5 == "d41d8cd98f00b204e9800998ecf8427e")
    let folderError = try #require(failure { () throws(InferenceError) in try FileDigest.ofFile(folder.path) })
    #expect(folderError.code == .modelMissing)
  }

  @Test(arguments: ["u2netp", "u2net"])
  func `a wrong file is refused, naming both checksums, before the runtime is looked for`(_ name: String) throws {
    let folder = TemporaryFolder()
    folder.write("abc", to: "models/\(name).onnx")
    let home = PipelineHome(variable: { $0 == "PIPELINE_HOME" ? folder.path : nil })
    let recipe = try #require(ModelCatalogue.named(name))
    let error = try #require(
      failure { () throws(InferenceError) in try Model(recipe: recipe, requests: 1, threads: 1, home: home) })
    #expect(error.code == .checksum)
    #expect(error.message.contains(folder["models/\(name).onnx"]))
    if let sha256 = recipe.sha256 {
      #expect(error.message.contains(sha256))
      #expect(error.message.contains("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"))
    } else {
      #expect(error.message.contains(try #require(recipe.md5)))
      #expect(error.message.contains("900150983cd24fb0d6963f7d28e17f72"))
    }
  }

  @Test func `the status tells missing, present, wrong and unreadable apart`() throws {
    let folder = TemporaryFolder()
    folder.write("abc", to: "models/u2netp.onnx")
    folder.makeFolder("models/u2net.onnx")
    let home = PipelineHome(variable: { $0 == "PIPELINE_HOME" ? folder.path : nil })
    func state(_ name: String, verify: Bool) throws -> ModelCatalogue.Status.State {
      try #require(ModelCatalogue.status(verify: verify, home: home).first { $0.recipe.name == name }).state
    }
    #expect(try state("silueta", verify: true) == .missing)
    #expect(try state("u2netp", verify: false) == .present)
    guard case .wrong(let error) = try state("u2netp", verify: true) else {
      Issue.record("a wrong file counts as right")
      return
    }
    #expect(error.code == .checksum)
    guard case .wrong(let unreadable) = try state("u2net", verify: true) else {
      Issue.record("a folder counts as a model")
      return
    }
    #expect(unreadable.code == .modelMissing)
  }
}
