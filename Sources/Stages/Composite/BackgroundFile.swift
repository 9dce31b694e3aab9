import Glibc
import Imaging
import JobSyntax
import PipelineKit

/// Picture files that backgrounds are made from.
enum BackgroundFile {
  /// Its pixels in memory; `name` is seen from the job file.
  ///
  /// - Throws: `io`, `unsupported`, `damaged` and the other codes of decoding, with the path.
  static func picture(_ name: String, _ resources: StageResources) throws(ImagingError) -> Image {
    let path = resources.run.baseFolder.joining(name).normalised
    do throws(ImagingError) {
      let source = try EncodedPicture(
        bytes: EncodedPicture.read(path: path.bytes),
        options: DecodeOptions(limits: resources.decodeLimits, space: resources.workingSpace))
      return try source.pixels()
    } catch {
      throw ImagingError(
        error.code, "the background \(path.printable) cannot be used: \(error.message)", detail: error.detail,
        hint: error.code == .unsupported ? "use a PNG, or another picture of pixels" : error.hint ?? nearName(path))
    }
  }

  /// A hint that names the file of the same folder which may have been meant by one that is not there.
  private static func nearName(_ path: PathBytes) -> String? {
    guard path.withCString({ access($0, F_OK) }) != 0, let name = path.lastComponent.string,
      let listing = path.parent.withCString({ opendir($0) }),
      let nameOffset = MemoryLayout<dirent>.offset(of: \.d_name)
    else { return nil }
    defer { closedir(listing) }
    var known: [String] = []
    // A folder with more names than this is not worth the wait.
    while known.count < 20_000, let entry = readdir(listing) {
      let start = (UnsafeRawPointer(entry) + nameOffset).assumingMemoryBound(to: CChar.self)
      if let other = String(validatingCString: start), other != ".", other != ".." { known.append(other) }
    }
    return NearestName.suggestion(for: name, among: known).map { "did you mean \(path.parent.joining($0).printable)?" }
  }
}
