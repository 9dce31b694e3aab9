import PipelineKit

/// One way a job says which pictures it works on.
///
/// Relative paths are relative to the job file's folder. A declaration that yields no item is an error
/// (`input-empty`) unless `allowEmpty`.
public enum InputDeclaration: Sendable, Hashable {
  /// Paths and globs, expanded by this program. A glob that matches nothing is an error unless `allowEmpty`; a plain
  /// file that is missing always is.
  case files([String], allowEmpty: Bool = false)

  /// The pictures in a folder: regular files with an ending in `extensions` (without dots, in any case).
  ///
  /// `all` takes files with any ending or none; `recursive` goes into folders below.
  case directory(
    String, recursive: Bool = true, extensions: [String] = InputDeclaration.pictureEndings, all: Bool = false,
    allowEmpty: Bool = false)

  /// A text file with one path on each line (or NUL-separated), relative to that file's folder. `-` is standard
  /// input, with paths relative to the current folder.
  case list(String, allowEmpty: Bool = false)

  /// A table with one picture per row. `format` nil: by the file's ending. `column` nil: `path`, else `file`, else
  /// `input`, else the first.
  case manifest(String, format: ManifestFormat? = nil, column: String? = nil, allowEmpty: Bool = false)

  /// Addresses, http or https. What is not there fails when its turn comes.
  case addresses([String], allowEmpty: Bool = false)

  /// The objects of a bucket whose keys begin with a prefix.
  case bucket(BucketSearch, allowEmpty: Bool = false)

  /// What a search of Imgur's gallery finds.
  case imgur(ImgurSearch, allowEmpty: Bool = false)

  /// Whether inputs may be ones that are fetched.
  public var mayBeRemote: Bool {
    switch self {
    case .files, .directory: false
    // They may name addresses.
    case .list, .manifest: true
    case .addresses, .bucket, .imgur: true
    }
  }

  /// The endings of files that `directory` takes for pictures, in lower case.
  public static let pictureEndings = [
    "jpg", "jpeg", "jpe", "jfif", "png", "webp", "avif", "heic", "heif", "jxl", "tif", "tiff", "gif", "jp2", "j2k",
    "jpf", "jpx", "bmp",
  ]
}

/// How a manifest is written.
public enum ManifestFormat: String, Sendable, Hashable, CaseIterable {
  /// Comma-separated values as in RFC 4180, with a header row.
  case csv
  /// One JSON object on each line.
  case jsonl
}

/// One picture to work on.
public struct InputItem: Sendable, Hashable {
  /// The absolute path to open; the name of what is no file.
  public var path: PathBytes
  /// The path for people and the report: relative to the job's folder when it lies below it, else absolute.
  public var name: PathBytes
  /// The folder below the fixed part of the glob, the `directory`, or the list's folder; empty at its top.
  public var relativeDirectory: PathBytes
  /// The place in the run, from 0.
  public var index: Int
  /// A manifest's row, without the column `path`.
  public var columns: [String: String]
  /// Which declaration it came from, from 0.
  public var declaration: Int
  /// The line in the list or manifest, from 1.
  public var line: Int?
  /// Where the picture is fetched from; nil for files.
  public var remote: RemoteSource?
}

/// A file or folder that was found and not taken, and why.
public struct SkippedInput: Sendable, Hashable {
  public enum Reason: String, Sendable, Hashable, CaseIterable {
    /// Its name starts with a dot and the pattern does not say so.
    case hidden
    /// A link (or mount) that leads back to a folder it is in.
    case symlinkLoop
    /// A link to a folder that was already followed through another link.
    case folderSeenBefore
    case brokenLink
    case pipe
    case socket
    case device
    /// A folder where a file was looked for.
    case folder
    case unreadableFolder
    /// In a `directory`, a file whose ending is not a picture's.
    case notAPicture
    /// Longer than the system can open.
    case pathTooLong
    /// Several frames, where a picture was looked for.
    case animated
    case video
    /// Marked as not for everyone.
    case mature
    /// A page about a picture, and no link to the picture itself.
    case noDirectLink
    /// Found before in the same search.
    case foundBefore

    /// Whether this may have lost pictures that were meant, so that a run should warn.
    public var isProblem: Bool {
      switch self {
      case .brokenLink, .unreadableFolder, .pathTooLong: true
      default: false
      }
    }

    /// The reason in words, to follow a name and a colon.
    public var text: String {
      switch self {
      case .hidden: "hidden"
      case .symlinkLoop: "leads back to a folder it is in"
      case .folderSeenBefore: "its folder was already followed through another link"
      case .brokenLink: "a link to something that does not exist"
      case .pipe: "a pipe"
      case .socket: "a socket"
      case .device: "a device"
      case .folder: "a folder"
      case .unreadableFolder: "a folder that cannot be read"
      case .notAPicture: "not a picture by its ending"
      case .pathTooLong: "its path is too long to open"
      case .animated: "animated"
      case .video: "a video"
      case .mature: "marked as not for everyone"
      case .noDirectLink: "without a direct link to a picture"
      case .foundBefore: "found before in the same search"
      }
    }
  }

  /// The absolute path.
  public var path: PathBytes
  public var reason: Reason
  /// The system's own words, where it had any.
  public var detail: String?
  /// Which declaration met it, from 0.
  public var declaration: Int

  /// One line for people.
  public var text: String {
    "\(path.printable): \(reason.text)" + (detail.map { " (\($0))" } ?? "")
  }
}

/// Skipped inputs counted by reason, with a few examples of each: a walk may meet millions of them.
public struct SkipTally: Sendable, Hashable {
  public private(set) var counts: [SkippedInput.Reason: Int] = [:]
  public private(set) var examples: [SkippedInput.Reason: [SkippedInput]] = [:]
  private let exampleLimit: Int

  public init(examples limit: Int = 5) { exampleLimit = limit }

  public mutating func add(_ skipped: SkippedInput) {
    counts[skipped.reason, default: 0] += 1
    if examples[skipped.reason, default: []].count < exampleLimit {
      examples[skipped.reason, default: []].append(skipped)
    }
  }

  public var total: Int { counts.values.reduce(0, +) }

  /// How many may have lost pictures that were meant.
  public var problems: Int { counts.reduce(0) { $0 + ($1.key.isProblem ? $1.value : 0) } }

  /// `3 hidden, 1 a pipe`; empty where nothing was skipped.
  public var summary: String {
    SkippedInput.Reason.allCases.compactMap { reason in counts[reason].map { "\($0) \(reason.text)" } }
      .joined(separator: ", ")
  }
}
