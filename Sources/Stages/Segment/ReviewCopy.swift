import Glibc
import Imaging
import JobSyntax
import PipelineKit

/// Puts a copy of a picture's input aside for a person.
struct ReviewCopy: Sendable {
  static let to = Field<Template>.template(
    "to", default: nil,
    help: "the copy's path, seen from the job file, such as `review/${item.dir}/${item.name}`; folders are made")
  static let field = Field<Settings?>.optionalObject(
    "review", ObjectShape([to]), when: FieldCondition("otherwise", in: ["review"]),
    help: "where inputs are copied that nothing good was made of; the input stays, and no other file is ever replaced")

  let template: Template

  /// What is wrong with the path, whatever the picture.
  static func check(_ settings: Settings) -> [Diagnostic] {
    guard let review = settings[field] else { return [] }
    let template = review[to]
    if template.variables.contains(.ext) {
      return [
        review.diagnostic(
          .error, "variable-not-allowed", at: to, "\"to\" names a copy of the input, which is not encoded: no ${ext}",
          hint: "use ${item.name}, which has the input's own ending")
      ]
    }
    guard OutputPath.namesFolder(template) else { return [] }
    return [
      review.diagnostic(
        .error, "output-name", at: to, "\"to\" names a folder, not a file: \(template.text)",
        hint: "end it in a name such as ${item.name}")
    ]
  }

  /// Copies the input, whole or not at all. A file of the same bytes that is there already is the copy.
  ///
  /// - Returns: the copy's path.
  /// - Throws: `output-exists` where another file is there, `output-collision`, `output-overwrites-input` and the
  ///   other errors of outputs, `io` where the input cannot be read any more.
  func put(_ item: Item, in context: StageContext) throws(StageError) -> PathBytes {
    guard !context.isCancelled else {
      throw StageError("cancelled", "the picture was given up before it was copied for review")
    }
    let path = try OutputPath.resolve(template, in: context.run.baseFolder) { variable in
      TemplateValues.value(of: variable, identity: item.identity, run: context.run, item: item)
    }
    var resolver = FolderResolver()
    let resolved = resolver.resolve(path)
    if var refusal = context.protected.refusal(of: path, resolved: resolved, mayReplaceInputs: false) {
      refusal.hint = "copy to another folder"
      throw refusal
    }
    guard context.claims.claim(resolved) else {
      throw StageError(
        "output-collision", "\(path.printable) is written already, for another picture or stage",
        hint: "make the names differ, with ${item.dir} or ${item.index}")
    }
    let bytes: EncodedBytes
    if let fetched = item.fetchedBytes {
      bytes = fetched
    } else {
      bytes = try StageError.imaging { () throws(ImagingError) in
        try EncodedPicture.read(path: item.identity.path.bytes)
      }
    }
    var status = stat()
    var isThere = path.withCString { lstat($0, &status) } == 0
    if isThere, let refusal = OutputPath.refusal(of: path, standing: status.st_mode & S_IFMT) { throw refusal }
    if !isThere {
      try AtomicFile.makeFolders(path.parent)
      let tag = context.run.runID + (context.run.shard.map { "-\($0)" } ?? "")
      let isWritten = try bytes.withUnsafeBytes { (bytes) throws(StageError) in
        try AtomicFile.write(bytes, to: path, existing: .keep, tag: tag, temporaries: context.temporaries)
      }
      // It appeared while this run was at work.
      isThere = !isWritten
    }
    guard !isThere || Self.holds(path, bytes) else {
      throw StageError(
        "output-exists", "\(path.printable) is another file, so the picture cannot be copied there for review",
        hint: "make the names differ, or take the old file away")
    }
    let isBooked = context.book(Self.record(of: path, bytes, item))
    if !isBooked, !isThere { _ = path.withCString { unlink($0) } }
    return path
  }

  private static func holds(_ path: PathBytes, _ bytes: EncodedBytes) -> Bool {
    guard let there = try? EncodedPicture.read(path: path.bytes), there.count == bytes.count else { return false }
    return bytes.withUnsafeBytes { ours in
      there.withUnsafeBytes { theirs in
        guard let one = ours.baseAddress, let other = theirs.baseAddress else { return ours.isEmpty }
        return memcmp(one, other, ours.count) == 0
      }
    }
  }

  private static func record(of path: PathBytes, _ bytes: EncodedBytes, _ item: Item) -> OutputRecord {
    // The input was decoded in this run; should its header not be read again, the picture's own size stands in.
    let header = (try? EncodedPicture(bytes: bytes, options: DecodeOptions(limits: .unlimited)))?.header
    return OutputRecord(
      place: .path(path), format: header?.format.rawValue ?? item.identity.name.fileExtension.display,
      width: header?.width ?? item.size?.width ?? 0, height: header?.height ?? item.size?.height ?? 0,
      bytes: bytes.count, sha256: bytes.sha256)
  }
}

extension OutputPath {
  /// Whether a template ends in what can only be a folder, whatever is filled in.
  static func namesFolder(_ template: Template) -> Bool {
    guard case .literal(let end) = template.segments.last else { return false }
    // A name that ends in what a variable gives is only known later.
    let isWhole = template.segments.count == 1
    let name = end.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).last ?? []
    let isDots = name.elementsEqual(".".utf8) || name.elementsEqual("..".utf8)
    return name.isEmpty || (isDots && (isWhole || end.count > name.count))
  }
}
