import Glibc
import Imaging
import JobSyntax
import PipelineKit

/// Where details and small pictures of a page go: into it, or into files beside it.
struct PageStore {
  /// Pictures whose details are read together.
  static let blockSize = 100
  private static let mark = "pipeline-page"

  let isInside: Bool
  /// What follows the page's scripts.
  private(set) var blocks: [UInt8] = []
  /// Bytes in files beside the page.
  private(set) var fileBytes = 0
  /// All files beside the page, whichever of its versions they are of.
  private let whole: PathBytes
  /// Those of this version.
  private let own: PathBytes?
  private let tag: String

  /// `NAME.files`; nil where everything is inside the page.
  var folder: PathBytes? { own == nil ? nil : whole }

  /// How the page reaches its files.
  var address: String? { own.map { PageLink(file: $0, from: whole.parent).address } }

  /// - Throws: `output-…` errors where the folder for files beside the page cannot be made.
  init(path: PathBytes, isInside: Bool, tag: String) throws(StageError) {
    self.isInside = isInside
    self.tag = tag
    whole = ReportPage.filesFolder(of: path)
    try AtomicFile.makeFolders(path.parent)
    guard !isInside else {
      own = nil
      return
    }
    try AtomicFile.makeFolders(whole)
    var number = 1
    while true {
      let folder = whole.joining(number == 1 ? tag : "\(tag)-\(number)")
      if folder.withCString({ mkdir($0, 0o777) }) == 0 {
        own = folder
        break
      }
      guard errno == EEXIST, number < 10_000 else {
        throw StageError(
          "output-failed", "cannot make the folder \(folder.printable)", kind: .environment,
          cause: String(cString: strerror(errno)))
      }
      number += 1
    }
    try put(Array("Files of a page. Whoever writes the page anew removes them.\n".utf8), Self.mark)
  }

  /// Takes the details and pictures of some items, of which the first has the place `first` on the page.
  mutating func add(
    details: [JSONText], pictures: [ReportPage.Pictures], from first: Int
  ) throws(StageError) {
    let block = first / Self.blockSize
    guard isInside else {
      let script = Array("reportDetails(\(block),".utf8) + Page.inert(.array(details)).bytes + Array(");\n".utf8)
      try put(script, "details-\(block).js")
      for (index, item) in pictures.enumerated() {
        for (side, picture) in ([item.before] + item.after).enumerated() {
          guard case .picture(let bytes, _, _) = picture else { continue }
          try put(bytes.array, "\(first + index)-\(side).webp")
        }
      }
      return
    }
    blocks += Page.block("details-\(block)", .array(details)).bytes
    let sources = pictures.map { item -> JSONText in
      .array(
        ([item.before] + item.after).map { picture in
          guard case .picture(let bytes, let width, let height) = picture else { return nil }
          return .string(PagePicture(bytes, type: "image/webp", width: width, height: height).source)
        })
    }
    blocks += Page.block("pictures-\(block)", .array(sources)).bytes
  }

  /// Writes a file, atomically.
  static func write(_ bytes: [UInt8], to path: PathBytes, tag: String, isDurable: Bool) throws(StageError) {
    let result = bytes.withUnsafeBytes { all -> Result<Bool, StageError> in
      do throws(StageError) {
        return .success(try AtomicFile.write(all, to: path, tag: tag, isDurable: isDurable))
      } catch {
        return .failure(error)
      }
    }
    _ = try result.get()
  }

  private mutating func put(_ bytes: [UInt8], _ name: String) throws(StageError) {
    guard let own else { return }
    try Self.write(bytes, to: own.joining(name), tag: tag, isDurable: false)
    fileBytes += bytes.count
  }

  /// Removes the files of versions of the page that this one has replaced: only what this program has made.
  func removeOlder() {
    for name in Self.names(in: whole) where whole.joining(name) != own {
      let folder = whole.joining(name)
      guard folder.joining(Self.mark).withCString({ access($0, F_OK) }) == 0 else { continue }
      for file in Self.names(in: folder)
      where file.fileExtension == "webp" || file.fileExtension == "js" || file == PathBytes(Self.mark) {
        _ = folder.joining(file).withCString { unlink($0) }
      }
      _ = folder.withCString { rmdir($0) }
    }
    if own == nil { _ = whole.withCString { rmdir($0) } }
  }

  private static func names(in folder: PathBytes) -> [PathBytes] {
    guard let listing = folder.withCString({ opendir($0) }) else { return [] }
    defer { closedir(listing) }
    var names: [PathBytes] = []
    while let entry = readdir(listing) {
      let name = withUnsafeBytes(of: &entry.pointee.d_name) { PathBytes(bytes: Array($0.prefix { $0 != 0 })) }
      if name != ".", name != ".." { names.append(name) }
    }
    return names
  }
}
