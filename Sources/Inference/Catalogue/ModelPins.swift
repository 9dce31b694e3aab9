import Glibc
import JobSyntax

/// Which files were first used under the names of models that are published without a checksum: `pins.json` in the
/// models folder.
///
/// A pin does not say that a file is the right one, only that it is still the same.
struct ModelPins {
  private let folder: String
  private var path: String { folder + "/pins.json" }

  init(_ home: PipelineHome) { folder = home.models }

  /// Throws `checksum` when the file is not the pinned one; pins it when there is no pin.
  ///
  /// A folder that cannot be written to keeps no pins, and the model is used all the same.
  func check(_ digest: FileDigest, of recipe: ModelRecipe, file: String) throws(InferenceError) {
    try compare(digest, of: recipe, file: file)
    guard try pins()[recipe.name] == nil, access(folder, W_OK) == 0 else { return }
    try set(digest, of: recipe.name, replacing: false)
    // Another process may have been first, with another file.
    try compare(digest, of: recipe, file: file)
  }

  /// Throws `checksum` when there is a pin and the file is not that one.
  func compare(_ digest: FileDigest, of recipe: ModelRecipe, file: String) throws(InferenceError) {
    guard let pinned = try pins()[recipe.name], pinned != digest.sha256 else { return }
    throw InferenceError(
      .checksum,
      "\(file) is not the file that was first used as model \(recipe.name): its SHA-256 is \(digest.sha256), not "
        + pinned,
      hint: "if the new file is meant, take \"\(recipe.name)\" out of \(path)")
  }

  /// Pins a file.
  func set(_ digest: FileDigest, of name: String, replacing: Bool) throws(InferenceError) {
    guard let lock = try FileLock(folder + "/.pins.lock") else { return }
    defer { withExtendedLifetime(lock) {} }
    var pins = try pins()
    guard replacing || pins[name] == nil else { return }
    pins[name] = digest.sha256
    let text = JSONText.object(pins.sorted { $0.key < $1.key }.map { ($0.key, .string($0.value)) })
    try ModelFiles.write(Array((text.rendered(pretty: true) + "\n").utf8), to: path)
  }

  private func pins() throws(InferenceError) -> [String: String] {
    guard let bytes = try ModelFiles.read(path) else { return [:] }
    let (root, problems) = StrictJSON.parse(SourceFile(name: path, text: bytes))
    guard !problems.hasErrors, let members = root?.objectValue else {
      throw InferenceError(
        .checksum, "\(path) cannot be read: \(problems.first?.message ?? "it is no object")",
        hint: "mend or remove it; without it models are pinned afresh")
    }
    var pins: [String: String] = [:]
    for member in members { pins[member.key] = member.value.stringValue }
    return pins
  }
}
