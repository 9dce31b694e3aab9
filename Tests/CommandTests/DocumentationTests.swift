import Engine
import Glibc
import Imaging
import Inference
import JobSyntax
import PipelineKit
import Stages
import TestSupport
import Testing

/// The README and the example jobs say what is true.
@Suite struct DocumentationTests {
  /// The package's folder.
  static let package: String = {
    let file = #filePath
    return file.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/")
  }()

  static func names(in folder: String, ending: String) -> [String] {
    var names: [String] = []
    guard let listing = opendir(folder) else { return [] }
    defer { closedir(listing) }
    while let entry = readdir(listing) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name.hasSuffix(ending) { names.append(name) }
    }
    return names.sorted()
  }

  static let jobs = names(in: package + "/pipelines", ending: ".json").filter { !$0.hasSuffix(".schema.json") }

  private static func registry() throws -> StageRegistry {
    var registry = StageRegistry()
    try BuiltInStages.register(in: &registry)
    return registry
  }

  @Test func generatedPagesAreFresh() {
    let result = RunProgram.run(
      ["--check", RunProgram.builtProgram], program: Self.package + "/Scripts/docs")
    #expect(result.exitCode == 0, "\(result.error)")
  }

  /// The pages that people read, from the package's folder.
  static let pages =
    ["README.md", "pipelines/README.md"] + names(in: package + "/docs", ending: ".md").map { "docs/" + $0 }
    + names(in: package + "/docs/stages", ending: ".md").map { "docs/stages/" + $0 }

  /// The blocks of a page in a language.
  static func blocks(_ page: String, _ language: String) -> [String] {
    let text = String(decoding: TemporaryFolder.read(package + "/" + page) ?? [], as: UTF8.self)
    return text.components(between: "```\(language)\n", and: "```")
  }

  @Test func pagesAreThere() {
    #expect(Self.pages.count > 20)
    #expect(Self.blocks("README.md", "json").count > 10)
  }

  /// Every link between the pages leads to a file that is there.
  @Test(arguments: pages) func linksLeadSomewhere(_ page: String) {
    let text = String(decoding: TemporaryFolder.read(Self.package + "/" + page) ?? [], as: UTF8.self)
    let folder = Self.package + "/" + page.split(separator: "/").dropLast().map { $0 + "/" }.joined()
    for part in text.components(between: "](", and: ")") {
      let target = part.prefix { $0 != "#" }
      if target.isEmpty || target.contains("://") || target.contains(" ") { continue }
      #expect(access(folder + target, R_OK) == 0, "\(page): \(target)")
    }
  }

  /// Every JSON block of a page that is a job or a stage lints without a finding.
  @Test(arguments: pages) func blocksLint(_ page: String) throws {
    let blocks = Self.blocks(page, "json")
    // Credentials are the reader's.
    let loader = JobLoader(registry: try Self.registry()) { _ in "canary-value" }
    for block in blocks {
      let (node, problems) = StrictJSON.parse(SourceFile(name: page, text: Array(block.utf8)))
      #expect(problems.isEmpty, "\(block)")
      let node2 = try #require(node)
      if node2["stages"] != nil {
        let found = loader.load(Array(block.utf8), name: page, folder: "/jobs").diagnostics
        #expect(found.isEmpty, "\(block): \(found.map(\.message))")
      } else {
        let name = try #require(node2["stage"]?.stringValue)
        let descriptor = try #require(loader.registry[name])
        var checker = FieldChecker(file: page, columns: .unknown)
        checker.check(node2, against: descriptor.shape, owner: name, ignoring: ["stage"])
        #expect(checker.diagnostics.isEmpty, "\(block): \(checker.diagnostics.map(\.message))")
      }
    }
  }

  @Test(arguments: jobs)
  func exampleJobsLint(_ name: String) {
    let result = RunProgram.run(["lint", Self.package + "/pipelines/" + name])
    #expect(result.exitCode == 0, "\(result.output)")
  }

  static let demoPhotos: String? = {
    let home =
      getenv("PIPELINE_HOME").map { String(cString: $0) }
      ?? getenv("HOME").map { String(cString: $0) + "/.local/share/pipeline" }
    guard let home, access(home + "/demo/astronaut.png", R_OK) == 0, access(home + "/models/u2netp.onnx", R_OK) == 0
    else { return nil }
    return home + "/demo"
  }()

  /// A photo at half its sides: what a job says is the same of it, and in a debug build four times as soon.
  private static func halved(_ path: String) throws -> [UInt8] {
    let photo = try EncodedPicture(bytes: EncodedBytes(TemporaryFolder.read(path) ?? [])).pixels()
    let small = try photo.stretched(width: photo.width / 2, height: photo.height / 2)
    return try small.encoded(.png(.init())).array
  }

  /// Every example runs on the three demo photos, in a folder of its own, and gives what its report says.
  @Test(.enabled(if: demoPhotos != nil, "the demo photos and the model are not installed"), arguments: jobs)
  func exampleJobsRun(_ name: String) throws {
    let demo = try #require(Self.demoPhotos)
    // A job with another model than the default waits for whoever has fetched it.
    let (job, _) = StrictJSON.parse(
      SourceFile(name: name, text: TemporaryFolder.read(Self.package + "/pipelines/" + name) ?? []))
    if TemporaryFolder.read(Self.package + "/pipelines/" + name).map({ String(decoding: $0, as: UTF8.self) })?
      .contains("${secret.") == true
    {
      try Test.cancel("needs a service: CookbookTests runs it")
    }
    for stage in job?["stages"]?.arrayValue ?? [] {
      guard let model = stage["model"]?.stringValue, !model.hasPrefix("$") else { continue }
      let recipe = try #require(ModelCatalogue.named(model), "\(model)")
      guard (try? ModelCatalogue.locate(recipe)) != nil else {
        try Test.cancel("needs the model \(model): pipeline models pull \(model)")
      }
    }
    let folder = TemporaryFolder()
    folder.write(TemporaryFolder.read(Self.package + "/pipelines/" + name) ?? [], to: name)
    folder.write(TemporaryFolder.read(Self.package + "/pipelines/products.csv") ?? [], to: "products.csv")
    for photo in ["astronaut.png", "chelsea.png", "coffee.png"] {
      folder.write(try Self.halved(demo + "/" + photo), to: "photos/" + photo)
    }
    var settings = RunProgram.Settings()
    settings.folder = "/"
    let result = RunProgram.run(["run", folder[name], "--report", folder["report.json"], "--quiet"], settings)
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(result.error == "")
    let report = try json(folder.read("report.json") ?? [])
    #expect(report["run"]?["counts"]?["done"]?.integer == 3)
    let outputs = (report["items"]?.arrayValue ?? []).flatMap { $0["outputs"]?.arrayValue ?? [] }
    #expect(outputs.count >= 3)
    for output in outputs {
      let path = try #require(output["path"]?.stringValue)
      #expect(path.hasPrefix(folder.path + "/out/"))
      #expect(TemporaryFolder.read(path)?.count == output["bytes"]?.integer)
    }
    #expect(folder.tree().filter { $0.hasPrefix("out/") && !$0.hasSuffix("/") }.count == outputs.count)
  }
}

extension String {
  /// The texts between each opening and the closing that follows it.
  fileprivate func components(between open: String, and close: String) -> [String] {
    var parts: [String] = []
    var rest = self[...]
    while let start = rest.firstRange(of: open) {
      rest = rest[start.upperBound...]
      guard let end = rest.firstRange(of: close) else { break }
      parts.append(String(rest[..<end.lowerBound]))
      rest = rest[end.upperBound...]
    }
    return parts
  }
}
