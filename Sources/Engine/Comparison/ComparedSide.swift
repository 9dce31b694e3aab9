import Glibc
import PipelineKit

/// One side of a comparison: pictures by the names that they are matched by.
public struct ComparedSide: Sendable {
  /// One picture of a side.
  public struct Entry: Sendable {
    /// Where it is; nil for one that is no file here.
    public var path: PathBytes?
    /// SHA-256 of what a run has written, 64 hex digits; nil where nobody has said.
    public var sha256: String?
    /// Where a service keeps it.
    public var link: String?
    /// Why there is no picture.
    public var problem: String?
  }

  /// As it was given.
  public let name: String
  public let entries: [String: Entry]
  /// Of a run: the versions that made the pictures.
  public let versions: [String: String]

  /// The pictures below a folder, by their paths in it. Names that begin with a dot are left out.
  ///
  /// - Throws: `compare-unreadable` of class environment.
  public init(folder: PathBytes, name: String) throws(StageError) {
    self.name = name
    versions = [:]
    var entries: [String: Entry] = [:]
    var folders = [PathBytes("")]
    while let below = folders.popLast() {
      let whole = below.isEmpty ? folder : folder.joining(below)
      guard let listing = whole.withCString({ opendir($0) }) else {
        throw StageError(
          "compare-unreadable", "the folder \(whole.printable) cannot be read", kind: .environment,
          cause: String(cString: strerror(errno)))
      }
      defer { closedir(listing) }
      while let entry = readdir(listing) {
        let bytes = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
        guard bytes.first != UInt8(ascii: ".") else { continue }
        let path = below.isEmpty ? PathBytes(bytes: bytes) : below.joining(PathBytes(bytes: bytes))
        let place = folder.joining(path)
        var status = stat()
        // A link to a folder may lead around in a circle; one to a file is that file.
        guard place.withCString({ lstat($0, &status) }) == 0 else { continue }
        if status.st_mode & S_IFMT == S_IFDIR {
          folders.append(path)
        } else {
          if status.st_mode & S_IFMT == S_IFLNK { _ = place.withCString { stat($0, &status) } }
          if status.st_mode & S_IFMT == S_IFREG { entries[path.display] = Entry(path: place) }
        }
      }
    }
    self.entries = entries
  }

  /// The outputs of a run, by the inputs they were made of.
  ///
  /// - Throws: `report-unreadable`, `report-format` of class environment.
  public init(report path: PathBytes, name: String) throws(StageError) {
    self.name = name
    let reader = try ReportReader(path)
    var versions: [String: String] = [:]
    for member in reader.run["versions"]?.objectValue ?? [] { versions[member.key] = member.value.stringValue }
    self.versions = versions
    var entries: [String: Entry] = [:]
    var named: [String: Int] = [:]
    while let record = try reader.next() {
      // A manifest may name an input more than once.
      let before = named[record.input, default: 0]
      named[record.input] = before + 1
      let input = before == 0 ? record.input : "\(record.input) (\(before + 1))"
      for (index, output) in record.outputs.enumerated() {
        let key = record.outputs.count == 1 ? input : "\(input) [\(index + 1)]"
        switch output.place {
        case .path(let path): entries[key] = Entry(path: path, sha256: output.sha256)
        case .link(let link): entries[key] = Entry(sha256: output.sha256, link: link)
        }
      }
      if record.outputs.isEmpty {
        let why = record.error?.message ?? record.reason
        entries[input] = Entry(problem: record.status.rawValue + (why.map { ": \($0)" } ?? ""))
      }
    }
    self.entries = entries
  }
}
