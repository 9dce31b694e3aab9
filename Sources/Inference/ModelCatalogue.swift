import Glibc

/// The models this program knows by name.
public enum ModelCatalogue {
  private static let imageNetMean = [0.485, 0.456, 0.406]
  private static let imageNetDeviation = [0.229, 0.224, 0.225]
  private static let rembgRelease = "github.com/danielgatis/rembg, release v0.0.0"

  /// Every recipe, in the order that lists show them.
  ///
  /// Sizes, means and checksums are those of rembg 2.0.86 (danielgatis/rembg, `rembg/sessions`); licences are those
  /// that the models' authors state for their repositories.
  public static let all: [ModelRecipe] = [
    ModelRecipe(
      name: "u2netp", fileName: "u2netp.onnx",
      sha256: "309c8469258dda742793dce0ebea8e6dd393174f89934733ecc8b14c76f4ddd8",
      md5: "8e83ca70e441ab06c318d82300c84806",
      source: "\(rembgRelease), u2netp.onnx", licence: "Apache-2.0 (xuebinqin/U-2-Net)", tested: true,
      width: 320, height: 320, mean: imageNetMean, deviation: imageNetDeviation,
      // Measured: plain white, grey and black and a smooth gradient peak at 0.002 to 0.058, the least sure of 75 photos
      // at 0.22. For the models below nothing was measured, so only a flat map counts as empty.
      emptyBelow: 0.1),
    ModelRecipe(
      name: "u2net", fileName: "u2net.onnx", md5: "60024c5c889badc19c04ad937298a77b",
      source: "\(rembgRelease), u2net.onnx", licence: "Apache-2.0 (xuebinqin/U-2-Net)",
      width: 320, height: 320, mean: imageNetMean, deviation: imageNetDeviation),
    ModelRecipe(
      name: "u2net_human_seg", fileName: "u2net_human_seg.onnx", md5: "c09ddc2e0104f800e3e1bb4652583d1f",
      source: "\(rembgRelease), u2net_human_seg.onnx", licence: "Apache-2.0 (xuebinqin/U-2-Net)",
      width: 320, height: 320, mean: imageNetMean, deviation: imageNetDeviation),
    ModelRecipe(
      name: "silueta", fileName: "silueta.onnx", md5: "55e59e0d8062d2f5d013f4725ee84782",
      source: "\(rembgRelease), silueta.onnx", licence: "none stated (a reduced U-2-Net, which is Apache-2.0)",
      width: 320, height: 320, mean: imageNetMean, deviation: imageNetDeviation),
    ModelRecipe(
      name: "isnet-general-use", fileName: "isnet-general-use.onnx", md5: "fc16ebd8b0c10d971d3513d564d01e29",
      source: "\(rembgRelease), isnet-general-use.onnx", licence: "Apache-2.0 (xuebinqin/DIS)",
      width: 1024, height: 1024, mean: [0.5, 0.5, 0.5], deviation: [1, 1, 1]),
    ModelRecipe(
      name: "isnet-anime", fileName: "isnet-anime.onnx", md5: "6f184e756bb3bd901c8849220a83e38e",
      source: "\(rembgRelease), isnet-anime.onnx", licence: "Apache-2.0 (SkyTNT/anime-segmentation)",
      width: 1024, height: 1024, mean: imageNetMean, deviation: [1, 1, 1]),
  ]

  /// The recipe of that name.
  public static func named(_ name: String) -> ModelRecipe? { all.first { $0.name == name } }

  /// The path of a model's file: the first found in the home's model folders.
  ///
  /// Throws `modelMissing`, naming every place looked in.
  public static func locate(_ recipe: ModelRecipe, home: PipelineHome = .current) throws(InferenceError) -> String {
    let places = home.modelFolders.map { $0 + "/" + recipe.fileName }
    if let found = places.first(where: { access($0, F_OK) == 0 }) { return found }
    let fetch = recipe.name == "u2netp" ? "`make demo` installs it, or put" : "put"
    throw InferenceError(
      .modelMissing, "model \(recipe.name) was not found; looked for \(places.joined(separator: ", "))",
      hint: "\(fetch) \(recipe.fileName) (\(recipe.source)) into \(home.models); `pipeline models list` shows all")
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
      /// There is no published checksum to hold it against.
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
    all.map { recipe in
      guard let path = try? locate(recipe, home: home) else {
        return Status(recipe: recipe, path: nil, digest: nil, state: .missing)
      }
      guard verify else { return Status(recipe: recipe, path: path, digest: nil, state: .present) }
      do throws(InferenceError) {
        let digest = try FileDigest.ofFile(path)
        do throws(InferenceError) { try recipe.check(digest, of: path) } catch {
          return Status(recipe: recipe, path: path, digest: digest, state: .wrong(error))
        }
        let published = recipe.sha256 != nil || recipe.md5 != nil
        return Status(recipe: recipe, path: path, digest: digest, state: published ? .verified : .unverified)
      } catch {
        return Status(recipe: recipe, path: path, digest: nil, state: .wrong(error))
      }
    }
  }
}
