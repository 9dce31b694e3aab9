import Glibc
import Imaging
import JobSyntax
import PipelineKit

/// Writes encoded pictures to files, whole or not at all.
public struct Write: Stage {
  static let to = Field<Template>.template(
    "to", default: nil,
    help: "the file's path, seen from the job file, such as `out/${item.dir}/${item.stem}.${ext}`; folders are made")
  static let overwrite = Field<ExistingOutput>.choice(
    "overwrite", default: .replace, help: "what to do with a file that is there already")
  static let inPlace = Field<Bool>.boolean(
    "inPlace", default: false, help: "whether an output may replace an input, or land where the next run would read it"
  )
  static let verify = Field<Verification?>.choice(
    "verify",
    help: "how much of a written file is read back before it gets its name; `pixels` with `inPlace`, else `header`")

  static let mode = Field<String?>.text(
    "mode",
    help:
      "the file's permissions in octal, such as `\"0640\"`, whatever the umask; folders that are made get the same, "
      + "with `x` where there is `r`; 0666 and 0777 less the umask when left out")

  public static let spec = StageSpec(
    name: "write",
    summary: "Writes the encoded picture to a file.",
    notes: [
      "A reader, a kill or a power cut sees the old file, the new one, or none: never a part. The bytes go to a "
        + "temporary name in the same folder, reach the disk, are opened again and checked, and only then get their name. "
        + "A symbolic link at that name is replaced, not followed. A file that replaces another has the permissions of a "
        + "new one, not those of the old.",
      "Text in `to` may name any folder. What `${item.…}` brings in may name folders below, never `..` or an absolute "
        + "path.",
      "Two pictures of one run never write the same file: the second fails. Nor is anything replaced that the job reads: "
        + "inputs (unless `inPlace`), its list or manifest, a background, the job file.",
    ],
    fields: [to, overwrite, inPlace, verify, mode],
    examples: [
      #"{ "stage": "write", "to": "out/${item.dir}/${item.stem}.${ext}" }"#,
      #"{ "stage": "write", "to": "../site/img/${item.stem}-${image.width}.${ext}", "overwrite": "skip" }"#,
      #"{ "stage": "write", "to": "/srv/shared/${item.stem}.${ext}", "mode": "0640" }"#,
    ])

  public static func plan(_ settings: Settings) -> StagePlan {
    var plan = StagePlan(lane: .storage, accepts: .encoded, produces: .output)
    plan.outputs = [settings[to]]
    plan.existing = settings[overwrite]
    plan.mayReplaceInputs = settings[inPlace]
    return plan
  }

  public static func check(_ settings: Settings) -> [Diagnostic] {
    var findings: [Diagnostic] = []
    if OutputPath.namesFolder(settings[to]) {
      findings.append(
        settings.diagnostic(
          .error, "output-name", at: to, "\"to\" names a folder, not a file: \(settings[to].text)",
          hint: "end it in a name such as ${item.stem}.${ext}"))
    }
    if let text = settings[mode], Self.permissions(text) == nil {
      findings.append(
        settings.diagnostic(
          .error, "wrong-value", at: mode,
          "\"mode\" expects permissions in octal from \"0600\" to \"0777\", got \"\(text)\"",
          hint: "the owner must be able to read and write, since the file is checked and replaced"))
    }
    return findings
  }

  /// The permissions that three octal digits stand for, with or without a zero before them; nil for anything else, and
  /// where the owner could not read and write.
  private static func permissions(_ text: String) -> mode_t? {
    let digits = text.utf8.count == 4 && text.hasPrefix("0") ? text.dropFirst() : text[...]
    guard digits.utf8.count == 3, digits.utf8.allSatisfy({ (0x30...0x37).contains($0) }),
      let mode = mode_t(digits, radix: 8), mode & 0o600 == 0o600
    else { return nil }
    return mode
  }

  private let template: Template
  private let overwrite: ExistingOutput
  private let mayReplaceInput: Bool
  private let verification: Verification
  private let mode: mode_t?

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    template = settings[Self.to]
    overwrite = settings[Self.overwrite]
    mayReplaceInput = settings[Self.inPlace]
    verification = settings[Self.verify] ?? (mayReplaceInput ? .pixels : .header)
    mode = settings[Self.mode].flatMap { Self.permissions($0) }
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    guard !context.isCancelled else {
      throw StageError("cancelled", "the picture was given up before its file was begun")
    }
    guard let encoded = item.encoded else {
      throw StageError("internal-fault", "write got an item that was not encoded", kind: .job)
    }
    let path = try OutputPath.resolve(template, in: context.run.baseFolder) { variable in
      TemplateValues.value(of: variable, identity: item.identity, run: context.run, item: item)
    }
    // Lint has said so of an ending that the job itself gives.
    if case .variable = template.segments.last, let ending = path.fileExtension.string?.lowercased(),
      Decode.misleads(ending, about: encoded.format)
    {
      context.warn(
        "ending-mismatch", "the name ends in .\(ending), but the file is \(encoded.format.displayName)")
    }
    // The planner proves all this for names it knows beforehand; here it also holds for those made from sizes or hashes.
    var resolver = FolderResolver()
    let resolved = resolver.resolve(path)
    if let refusal = context.protected.refusal(of: path, resolved: resolved, mayReplaceInputs: mayReplaceInput) {
      throw refusal
    }
    guard context.claims.claim(resolved) else {
      throw StageError(
        "output-collision", "\(path.printable) is written already, for another picture or stage",
        hint: "make the names differ, with ${item.dir} or ${item.index}")
    }
    let before = FileAt(path)
    try refuse(before, at: path, for: item)
    if before != nil {
      switch overwrite {
      case .replace: break
      case .skip: return kept(path, item, context)
      case .error:
        // A run that was cut short may have written this very file and not come to book it.
        guard context.run.followsCutRun, Self.holds(encoded, path) else { throw Self.exists(path) }
        let isBooked = context.book(Self.record(of: encoded, at: path))
        guard isBooked else { throw StageError("cancelled", "the picture was given up") }
        return .next(item)
      }
    }

    try AtomicFile.makeFolders(path.parent, mode: mode.map { $0 | ($0 & 0o444) >> 2 })
    let tag = context.run.runID + (context.run.shard.map { "-\($0)" } ?? "")
    let isWritten = try encoded.bytes.withUnsafeBytes { (bytes) throws(StageError) in
      try AtomicFile.write(
        bytes, to: path, existing: overwrite == .replace ? .replace : .keep, tag: tag,
        temporaries: context.temporaries, mode: mode
      ) { (temporary) throws(StageError) in
        try Self.verify(temporary, holds: encoded, for: path, verification)
        // The last moment at which nothing has happened yet.
        guard !context.isCancelled else {
          throw StageError("cancelled", "the picture was given up before \(path.printable) was in place")
        }
      }
    }
    guard isWritten else {
      // It appeared while this run was at work.
      if overwrite == .skip { return kept(path, item, context) }
      throw Self.exists(path)
    }
    let isBooked = context.book(Self.record(of: encoded, at: path))
    // The item was given up while the file got its name, and its report is closed. What was replaced can't come back,
    // and the file is whole; where nothing was before, nothing stays.
    if !isBooked, before == nil { _ = path.withCString { unlink($0) } }
    return .next(item)
  }

  private static func record(of encoded: Item.Encoded, at path: PathBytes) -> OutputRecord {
    OutputRecord(
      place: .path(path), format: encoded.format.rawValue, width: encoded.width, height: encoded.height,
      bytes: encoded.bytes.count, sha256: encoded.bytes.sha256)
  }

  /// Whether a file is byte for byte what was encoded.
  private static func holds(_ encoded: Item.Encoded, _ path: PathBytes) -> Bool {
    guard let file = try? EncodedPicture.read(path: path.bytes, maxBytes: encoded.bytes.count) else { return false }
    return file.count == encoded.bytes.count && file.sha256 == encoded.bytes.sha256
  }

  private func kept(_ path: PathBytes, _ item: Item, _ context: StageContext) -> Outcome {
    context.warn("output-kept", "\(path.printable) was there already and stays as it is")
    return .next(item)
  }

  private static func exists(_ path: PathBytes) -> StageError {
    StageError(
      "output-exists", "the output \(path.printable) exists already",
      hint: "\"overwrite\": \"replace\" or \"skip\" would go on")
  }

  /// Refuses what must not be replaced by a picture.
  private func refuse(_ existing: FileAt?, at path: PathBytes, for item: Item) throws(StageError) {
    guard let existing else { return }
    if let refusal = OutputPath.refusal(of: path, standing: existing.kind) { throw refusal }
    // The item's own file is also known by its number, through mounts and where case does not count.
    guard !mayReplaceInput, item.identity.remote == nil else { return }
    let input = FileAt(item.identity.path, following: true)
    if item.identity.path == path || (existing.links == 1 && existing.isSame(as: input)) {
      throw StageError(
        "output-overwrites-input", "the output \(path.printable) is the input itself",
        hint: "write elsewhere, or set \"inPlace\": true to replace inputs")
    }
  }

  /// Reads the temporary file back.
  private static func verify(
    _ temporary: PathBytes, holds encoded: Item.Encoded, for path: PathBytes, _ verification: Verification
  ) throws(StageError) {
    let found: String
    do throws(ImagingError) {
      let header =
        verification == .pixels
        ? try EncodedPicture.verifyPixels(path: temporary.bytes, limits: .unlimited)
        : try EncodedPicture.verifyHeader(path: temporary.bytes, limits: .unlimited)
      guard
        header.format != encoded.format || header.width != encoded.width || header.height != encoded.height
      else { return }
      found = "holds \(header.format.displayName) of \(header.width)×\(header.height) pixels"
    } catch {
      found = "cannot be read: \(error.message)"
    }
    throw StageError(
      "output-verify",
      "\(path.printable) was written as \(encoded.format.displayName) of \(encoded.width)×\(encoded.height) pixels, "
        + "but read back it \(found)", kind: .temporary, hint: "check the disk; the file was not put in place")
  }
}

/// What stands at a path.
private struct FileAt {
  /// `S_IFREG`, `S_IFDIR`, …
  var kind: mode_t
  var links: UInt64
  private var device: UInt64
  private var number: UInt64

  /// Nil where nothing is, or nothing can be seen.
  init?(_ path: PathBytes, following: Bool = false) {
    var status = stat()
    guard path.withCString({ following ? stat($0, &status) : lstat($0, &status) }) == 0 else { return nil }
    kind = status.st_mode & S_IFMT
    links = UInt64(status.st_nlink)
    device = UInt64(status.st_dev)
    number = UInt64(status.st_ino)
  }

  func isSame(as other: FileAt?) -> Bool { device == other?.device && number == other?.number }
}

/// How much of a written file is read back.
enum Verification: String, FieldChoice {
  case header, pixels

  var help: String {
    switch self {
    case .header: "its format and sides"
    case .pixels: "all of it, decoded row by row"
    }
  }
}

extension ExistingOutput: FieldChoice {
  public var help: String {
    switch self {
    case .replace: "it is replaced, atomically"
    case .skip:
      "it stays, and a picture whose outputs are all there is not worked on and counts as skipped; where `to` holds "
        + "${image.…} or ${item.hash}, the name is known only after the work, so the picture is worked on, counts as done "
        + "and gets the warning output-kept"
    case .error: "it stays, and the picture fails"
    }
  }
}
