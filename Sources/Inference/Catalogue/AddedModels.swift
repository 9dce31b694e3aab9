import Glibc
import JobSyntax

/// Models that were added on this machine: beside each file, a `NAME.model.json` in the form of a catalogue entry.
public enum AddedModels {
  private static let ending = ".model.json"

  /// Whether jobs can use this as a name: not a path, and nothing that a file system or a shell trips over.
  public static func isName(_ name: String) -> Bool {
    let letters = name.utf8.allSatisfy { byte in
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."):
        true
      default: false
      }
    }
    return letters && !name.isEmpty && name.utf8.count <= 100 && !name.hasPrefix(".") && !name.hasPrefix("-")
      && !isFile(name)
  }

  /// Whether a job means a file by this: it has a slash, or the ending of a model's file.
  public static func isFile(_ name: String) -> Bool {
    let lower = name.lowercased()
    return name.contains("/") || [".onnx", ".tflite", ".xml"].contains { lower.hasSuffix($0) }
  }

  /// The names of the models added, sorted.
  public static func names(home: PipelineHome) -> [String] {
    guard let listing = opendir(home.models) else { return [] }
    defer { closedir(listing) }
    var names: [String] = []
    while let entry = readdir(listing) {
      let name = withUnsafeBytes(of: entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
      guard name.hasSuffix(ending) else { continue }
      let own = String(name.dropLast(ending.count))
      if isName(own), ModelCatalogue.named(own) == nil { names.append(own) }
    }
    return names.sorted()
  }

  /// The recipe of an added model; nil where there is none of that name.
  ///
  /// Throws `modelInvalid` when its description cannot be read.
  static func recipe(_ name: String, home: PipelineHome) throws(InferenceError) -> ModelRecipe? {
    let path = home.models + "/" + name + ending
    guard let bytes = try ModelFiles.read(path) else { return nil }
    let (root, problems) = StrictJSON.parse(SourceFile(name: path, text: bytes))
    guard let root, !problems.hasErrors else {
      throw InferenceError(.modelInvalid, "\(path) cannot be read: \(problems.first?.message ?? "no value")")
    }
    let (draft, findings) = RecipeDraft.read(root, file: path, isEntry: true)
    if let first = findings.first { throw InferenceError(.modelInvalid, "\(path): \(first.message)") }
    return try draft.completed(with: nil, name: name, fileName: draft.fileName ?? name + ".onnx")
  }

  /// Copies a model's file into the models folder and gives it a name that jobs can use.
  ///
  /// The recipe is completed from the model, which is compiled once to prove that it fits; the file is pinned.
  ///
  /// Throws `modelMissing`, `modelInvalid`, `checksum`, or `failed` when there is no room.
  ///
  /// - Parameters:
  ///   - file: an ONNX or TFLite file, or an OpenVINO IR with its `.bin` beside it.
  ///   - draft: what is known of the recipe.
  @discardableResult
  public static func add(
    _ file: String, name: String, draft: RecipeDraft, home: PipelineHome = .current
  ) throws(InferenceError) -> ModelRecipe {
    guard isName(name) else {
      throw InferenceError(
        .modelInvalid, "\"\(name)\" cannot be a model's name",
        hint: "letters, digits, '-', '_' and '.', not the ending of a model's file")
    }
    guard ModelCatalogue.named(name) == nil else {
      throw InferenceError(
        .modelInvalid, "the catalogue has a model \"\(name)\" already", hint: "choose another name")
    }
    let base = file.lastIndex(of: "/").map { String(file[file.index(after: $0)...]) } ?? file
    let ends = [".onnx", ".tflite", ".xml"].first { base.lowercased().hasSuffix($0) }
    guard let ends else {
      throw InferenceError(
        .modelInvalid, "\(file) does not end in .onnx, .tflite or .xml",
        hint: "ONNX, TFLite and OpenVINO IR files can be read")
    }
    if let owner = ModelCatalogue.all.first(where: { $0.fileName == name + ends }) {
      throw InferenceError(
        .modelInvalid, "\(name + ends) is the file of the catalogue's model \"\(owner.name)\"",
        hint: "choose another name")
    }
    let digest = try FileDigest.ofFile(file)
    var recipe = try draft.completed(
      with: try Model.facts(ofFile: file, home: home), name: name, fileName: name + ends)
    recipe.name = name
    recipe.fileName = name + ends
    try recipe.check(digest, of: file)
    _ = try Model(recipe: recipe, file: file, requests: 1, threads: 1, home: home)

    try ModelFiles.makeFolders(home.models)
    guard let lock = try FileLock(home.models + "/.add.lock") else { return recipe }
    defer { withExtendedLifetime(lock) {} }
    if ends == ".xml" {
      try copy(String(file.dropLast(4)) + ".bin", to: home.models + "/" + name + ".bin")
    }
    try copy(file, to: home.models + "/" + recipe.fileName)
    try ModelPins(home).set(digest, of: name, replacing: true)
    // Last: with it the name exists.
    try ModelFiles.write(
      Array((recipe.entry.rendered(pretty: true) + "\n").utf8), to: home.models + "/" + name + ending)
    return recipe
  }

  private static func copy(_ from: String, to path: String) throws(InferenceError) {
    let source = open(from, O_RDONLY | O_CLOEXEC)
    guard source >= 0 else { throw ModelFiles.failure("cannot read \(from)", errno) }
    defer { close(source) }
    let temporary = path + ".\(getpid()).tmp"
    unlink(temporary)
    let target = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o644)
    guard target >= 0 else { throw ModelFiles.failure("cannot write \(path)", errno) }
    do throws(InferenceError) {
      defer { close(target) }
      var piece = [UInt8](repeating: 0, count: 1 << 20)
      while true {
        let count = read(source, &piece, piece.count)
        if count < 0 {
          if errno == EINTR { continue }
          throw ModelFiles.failure("cannot read \(from)", errno)
        }
        if count == 0 { break }
        let problem = piece.withUnsafeBytes {
          ModelFiles.write(UnsafeRawBufferPointer(rebasing: $0[..<count]), to: target)
        }
        if let problem { throw ModelFiles.failure("cannot write \(path)", problem) }
      }
      guard fsync(target) == 0 else { throw ModelFiles.failure("cannot flush \(path) to the disk", errno) }
      guard rename(temporary, path) == 0 else { throw ModelFiles.failure("cannot put \(path) in place", errno) }
    } catch {
      unlink(temporary)
      throw error
    }
    ModelFiles.flushFolder(of: path)
  }
}

extension ModelRecipe {
  /// The recipe in the form of a catalogue entry, every value said.
  public var entry: JSONText {
    typealias Key = RecipeDraft.Key
    func numbers(_ values: [Double]) -> JSONText { .array(values.map { .number($0) }) }
    var input: [(String, JSONText)] = [
      (Key.width, .integer(width)), (Key.height, .integer(height)), (Key.layout, .string(layout.rawValue)),
      (Key.order, .string(channelOrder.rawValue)), (Key.resample, .string(resampling.rawValue)),
      (Key.mean, numbers(mean)), (Key.std, numbers(deviation)),
    ]
    switch scaling {
    case .maximum: input.append((Key.scale, .string("max")))
    case .fixed(let value): input.append((Key.scale, .number(value)))
    }
    if let sizeRule {
      input.append(
        (
          Key.sizeRule,
          .object([
            (Key.reference, .integer(sizeRule.reference)), (Key.multiple, .integer(sizeRule.multiple)),
            (Key.most, .integer(sizeRule.most)),
          ])
        ))
    }
    var output: [(String, JSONText)] = [
      (Key.index, .integer(self.output.index)), (Key.layout, .string(self.output.layout.rawValue)),
      (Key.channels, .integer(self.output.channels)), (Key.activation, .string(activation.rawValue)),
      (Key.normalise, .bool(normalisation == .minimumToMaximum)), (Key.emptyBelow, .number(Double(emptyBelow))),
      (Key.greys, .string(greys.rawValue)),
    ]
    if let width = self.output.width { output.append((Key.width, .integer(width))) }
    if let height = self.output.height { output.append((Key.height, .integer(height))) }
    if !self.output.labels.isEmpty { output.append((Key.labels, .array(self.output.labels.map { .string($0) }))) }
    switch self.output.subject {
    case .channel(let channel): output.append((Key.subject, .integer(channel)))
    case .allBut(let channel): output.append((Key.background, .integer(channel)))
    }
    var members: [(String, JSONText)] = [("name", .string(name)), ("file", .string(fileName))]
    if let url { members.append(("url", .string(url))) }
    members.append(("source", .string(source)))
    if let sha256 { members.append(("sha256", .string(sha256))) }
    if let md5 { members.append(("md5", .string(md5))) }
    members += [("licence", .string(licence)), ("tested", .bool(tested))]
    if let note { members.append(("note", .string(note))) }
    return .object(members + [(Key.input, .object(input)), (Key.output, .object(output))])
  }
}
