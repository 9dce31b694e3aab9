import Glibc
import JobSyntax

/// The models this program knows by name: those of `models.json`, which is part of the program, and those that were
/// added on this machine.
///
/// Sizes, means and checksums of `u2net` to `bria-rmbg` are those of rembg 2.0.86 (danielgatis/rembg,
/// `rembg/sessions`); the other recipes are their publishers'. Licences are those that the models' authors state.
///
/// What `emptyBelow` is for u2netp was measured: plain white, grey and black and a smooth gradient peak at 0.002 to
/// 0.058, the least sure of 75 photos at 0.22. For models of classes it is the half below which no class is likelier
/// than not. For other mattes nothing was measured, so only a flat map counts as empty.
public enum ModelCatalogue {
  /// The program's own recipes, in the order that lists show them.
  public static let all: [ModelRecipe] = builtIn.recipes

  /// The model that jobs use when they name none.
  public static let defaultName = "u2netp"

  /// Names of one class, folded, group by group.
  static let classAliases: [Set<String>] = builtIn.aliases

  /// What is wrong with `models.json`; nothing, as a test proves.
  static let problems: [String] = builtIn.problems

  private static let builtIn = read(PackageResources.models_json)

  /// Reads a catalogue; entries that are not whole are left out and reported.
  static func read(_ text: [UInt8]) -> (recipes: [ModelRecipe], aliases: [Set<String>], problems: [String]) {
    let file = "models.json"
    let (root, found) = StrictJSON.parse(SourceFile(name: file, text: text))
    var problems = found.map(\.message)
    var recipes: [ModelRecipe] = []
    for entry in root?["models"]?.arrayValue ?? [] {
      let (draft, findings) = RecipeDraft.read(entry, file: file, isEntry: true)
      problems += findings.map { "\($0.path ?? ""): \($0.message)" }
      guard let name = draft.name, let fileName = draft.fileName else {
        problems.append("\(entry.path): an entry needs \"name\" and \"file\"")
        continue
      }
      do throws(InferenceError) {
        recipes.append(try draft.completed(with: nil, name: name, fileName: fileName))
      } catch {
        problems.append(error.description)
      }
    }
    let aliases = (root?["classAliases"]?.arrayValue ?? []).map { group in
      Set((group.arrayValue ?? []).compactMap(\.stringValue))
    }
    return (recipes, aliases, problems)
  }

  /// The program's own recipe of that name.
  public static func named(_ name: String) -> ModelRecipe? { all.first { $0.name == name } }

  /// The recipe of that name, of the program's own or of those added on this machine.
  ///
  /// Throws `modelInvalid` when an added recipe cannot be read.
  public static func named(_ name: String, home: PipelineHome) throws(InferenceError) -> ModelRecipe? {
    if let recipe = named(name) { return recipe }
    guard AddedModels.isName(name) else { return nil }
    return try AddedModels.recipe(name, home: home)
  }

  /// Every name that jobs may use on this machine.
  public static func names(home: PipelineHome) -> [String] { all.map(\.name) + AddedModels.names(home: home) }

  /// The path of a model's file: the first found in the home's model folders.
  ///
  /// Throws `modelMissing`, naming every place looked in.
  public static func locate(_ recipe: ModelRecipe, home: PipelineHome = .current) throws(InferenceError) -> String {
    let places = home.modelFolders.map { $0 + "/" + recipe.fileName }
    if let found = places.first(where: { access($0, F_OK) == 0 }) { return found }
    let fetch =
      recipe.url == nil
      ? "put \(recipe.fileName) (\(recipe.source)) into \(home.models)"
      : "`pipeline models pull \(recipe.name)` fetches it, or put \(recipe.fileName) (\(recipe.source)) into "
        + home.models
    throw InferenceError(
      .modelMissing, "model \(recipe.name) was not found; looked for \(places.joined(separator: ", "))",
      hint: (recipe.name == defaultName ? "`make demo` installs it; " : "") + fetch)
  }

  /// One line of `pipeline models`.
  public struct Status: Sendable {
    public enum State: Sendable, Hashable {
      /// No file is there.
      case missing
      /// A file is there; it was not hashed.
      case present
      /// Its checksum is the published one.
      case verified
      /// There is no published checksum to hold it against; it is the file that was pinned, if one was.
      case unverified
      /// It is another file, or cannot be read.
      case wrong(InferenceError)
    }
    public let recipe: ModelRecipe
    public let path: String?
    /// nil unless hashed.
    public let digest: FileDigest?
    public let state: State
  }

  /// Which models this machine has; `verify` reads and hashes every file there, else only names are looked at.
  public static func status(verify: Bool, home: PipelineHome = .current) -> [Status] {
    var statuses = all.map { status(of: $0, verify: verify, home: home) }
    for name in AddedModels.names(home: home) {
      do throws(InferenceError) {
        guard let recipe = try AddedModels.recipe(name, home: home) else { continue }
        statuses.append(status(of: recipe, verify: verify, home: home))
      } catch {
        let unknown = ModelRecipe(
          name: name, fileName: "-", source: "added on this machine", licence: "not stated", width: 0, height: 0,
          mean: [], deviation: [])
        statuses.append(Status(recipe: unknown, path: nil, digest: nil, state: .wrong(error)))
      }
    }
    return statuses
  }

  /// What this machine has of one model.
  public static func status(of recipe: ModelRecipe, verify: Bool, home: PipelineHome = .current) -> Status {
    guard let path = try? locate(recipe, home: home) else {
      return Status(recipe: recipe, path: nil, digest: nil, state: .missing)
    }
    guard verify else { return Status(recipe: recipe, path: path, digest: nil, state: .present) }
    do throws(InferenceError) {
      let digest = try FileDigest.ofFile(path)
      do throws(InferenceError) {
        try recipe.check(digest, of: path)
        if !recipe.hasChecksum { try ModelPins(home).compare(digest, of: recipe, file: path) }
      } catch {
        return Status(recipe: recipe, path: path, digest: digest, state: .wrong(error))
      }
      return Status(recipe: recipe, path: path, digest: digest, state: recipe.hasChecksum ? .verified : .unverified)
    } catch {
      return Status(recipe: recipe, path: path, digest: nil, state: .wrong(error))
    }
  }
}
