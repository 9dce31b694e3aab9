import Digest
import Dispatch
import Glibc
import Imaging
import JobSyntax
import PipelineKit
import Synchronization

/// Two runs or folders, picture by picture.
public struct Comparison: Sendable {
  public enum Kind: String, Sendable, CaseIterable {
    /// More than the threshold apart, or not to be compared.
    case changed
    /// Only in the first.
    case missing
    /// Only in the second.
    case added
    /// Other bytes, and no more than the threshold apart.
    case alike
    /// The same bytes.
    case identical

    public var isDifference: Bool { self != .alike && self != .identical }
  }

  /// What was found about the pictures of one name.
  public struct Finding: Sendable {
    public var name: String
    public var kind: Kind
    public var first: ComparedSide.Entry?
    public var second: ComparedSide.Entry?
    /// Width and height in pixels, as far as they are known.
    public var firstSize: (width: Int, height: Int)?
    public var secondSize: (width: Int, height: Int)?
    public var difference: PictureDifference?
    /// What else is to be said.
    public var reason: String?
  }

  public let first: ComparedSide
  public let second: ComparedSide
  public let threshold: Double
  /// The worst first; then what is missing, added, alike and identical.
  public let findings: [Finding]

  public func count(_ kind: Kind) -> Int { findings.count { $0.kind == kind } }
  public var isSame: Bool { findings.allSatisfy { !$0.kind.isDifference } }

  /// Compares two sides, on all processors.
  ///
  /// - Parameters:
  ///   - threshold: the largest `PictureDifference.amount` that is let pass.
  ///   - first: what was before.
  ///   - second: what came after.
  /// - Throws: `libvips-missing` of class environment.
  public init(_ first: ComparedSide, _ second: ComparedSide, threshold: Double) throws(StageError) {
    do throws(ImagingError) { try Libvips.start() } catch {
      throw StageError("libvips-missing", error.message, kind: .environment, cause: error.detail, hint: error.hint)
    }
    self.first = first
    self.second = second
    self.threshold = threshold
    // One picture a processor.
    Libvips.setConcurrency(1)
    let names = Set(first.entries.keys).union(second.entries.keys).sorted()
    let found = Mutex<[Finding]>([])
    DispatchQueue.concurrentPerform(iterations: names.count) { index in
      let name = names[index]
      let finding = Self.look(name, first.entries[name], second.entries[name], threshold)
      found.withLock { $0.append(finding) }
    }
    findings = found.withLock { $0 }.sorted { a, b in
      if a.kind != b.kind { return Self.rank(a.kind) < Self.rank(b.kind) }
      let (left, right) = (a.difference?.amount ?? .infinity, b.difference?.amount ?? .infinity)
      return left == right ? a.name < b.name : left > right
    }
  }

  private static func rank(_ kind: Kind) -> Int { Kind.allCases.firstIndex(of: kind) ?? 0 }

  private static func look(
    _ name: String, _ a: ComparedSide.Entry?, _ b: ComparedSide.Entry?, _ threshold: Double
  ) -> Finding {
    var finding = Finding(name: name, kind: .changed, first: a, second: b)
    guard let a, let b else {
      finding.kind = a == nil ? .added : .missing
      // What failed on both sides is nothing new; on the one side that knows of it, it is.
      if let problem = (a ?? b)?.problem { finding.reason = "no picture: \(problem)" }
      return finding
    }
    switch (a.problem, b.problem) {
    case (let one?, let two?):
      finding.kind = one == two ? .identical : .changed
      finding.reason = one == two ? "no picture on either side: \(one)" : "no picture on either side: \(one); \(two)"
      return finding
    case (nil, let problem?):
      finding.kind = .missing
      finding.reason = "no picture in the second: \(problem)"
      return finding
    case (let problem?, nil):
      finding.kind = .added
      finding.reason = "no picture in the first: \(problem)"
      return finding
    case (nil, nil): break
    }
    if let one = a.sha256, one == b.sha256 {
      finding.kind = .identical
      return finding
    }
    guard let pathA = a.path, let pathB = b.path else {
      finding.reason = "other bytes, and not to be looked at: it is kept by a service"
      return finding
    }
    do throws(ImagingError) {
      try compare(pathA, pathB, &finding, threshold)
    } catch {
      // Hints are about jobs.
      finding.reason = "cannot be compared: \(error.message)"
    }
    return finding
  }

  /// The bytes of a file as they were written.
  private static func read(
    _ path: PathBytes, _ entry: ComparedSide.Entry?, _ side: String, _ finding: inout Finding
  ) throws(ImagingError) -> EncodedBytes? {
    let bytes = try EncodedPicture.read(path: path.bytes)
    if let expected = entry?.sha256, bytes.sha256 != expected {
      finding.reason = "the file of the \(side) is no longer what its run has written: \(path.printable)"
      return nil
    }
    return bytes
  }

  /// Nothing is the same bytes too, though no picture.
  private static func isEmpty(_ path: PathBytes) -> Bool {
    var status = stat()
    return path.withCString { stat($0, &status) } == 0 && status.st_mode & S_IFMT == S_IFREG && status.st_size == 0
  }

  private static func compare(
    _ pathA: PathBytes, _ pathB: PathBytes, _ finding: inout Finding, _ threshold: Double
  ) throws(ImagingError) {
    if isEmpty(pathA), isEmpty(pathB) {
      finding.kind = .identical
      return
    }
    guard let one = try read(pathA, finding.first, "first", &finding),
      let two = try read(pathB, finding.second, "second", &finding)
    else { return }
    let isSame = one.withUnsafeBytes { a in
      two.withUnsafeBytes { b in a.count == b.count && a.elementsEqual(b) }
    }
    if isSame {
      finding.kind = .identical
      return
    }
    let options = DecodeOptions(frames: .all)
    let (a, b): (EncodedPicture, EncodedPicture)
    do throws(ImagingError) {
      (a, b) = (try EncodedPicture(bytes: one, options: options), try EncodedPicture(bytes: two, options: options))
    } catch {
      finding.reason = "other bytes, and not to be looked at: \(error.message)"
      return
    }
    let sizeA = (a.header.orientedWidth, a.header.orientedHeight)
    let sizeB = (b.header.orientedWidth, b.header.orientedHeight)
    (finding.firstSize, finding.secondSize) = (sizeA, sizeB)
    guard sizeA == sizeB else {
      finding.reason = "\(sizeA.0) × \(sizeA.1) pixels became \(sizeB.0) × \(sizeB.1)"
      return
    }
    let (framesA, framesB) = (try a.animation().frames, try b.animation().frames)
    guard framesA.count == framesB.count else {
      finding.reason = "\(framesA.count) frames became \(framesB.count)"
      return
    }
    for (frameA, frameB) in zip(framesA, framesB) {
      let difference = try PictureDifference.between(frameA, frameB)
      if difference.amount >= finding.difference?.amount ?? 0 { finding.difference = difference }
    }
    // What a decoder had to make up is no part of what was compared.
    let damage = a.damageWarnings.union(b.damageWarnings).sorted()
    if !damage.isEmpty {
      finding.reason = damage.joined(separator: "; ")
      return
    }
    if let amount = finding.difference?.amount, amount <= threshold { finding.kind = .alike }
    if a.header.format != b.header.format {
      finding.reason = "\(a.header.format.displayName) became \(b.header.format.displayName)"
    }
  }

  // MARK: JSON

  public var json: JSONText {
    .object([
      ("first", .string(first.name)), ("second", .string(second.name)), ("threshold", .number(threshold)),
      ("same", .bool(isSame)), ("counts", .object(Kind.allCases.map { ($0.rawValue, .integer(count($0))) })),
      ("pictures", .array(findings.filter { $0.kind != .identical }.map(Self.json))),
    ])
  }

  private static func json(_ finding: Finding) -> JSONText {
    func rounded(_ value: Double) -> JSONText { .number((value * 10_000).rounded() / 10_000) }
    func side(_ entry: ComparedSide.Entry?, _ size: (width: Int, height: Int)?) -> JSONText {
      guard let entry else { return .null }
      var members: [(String, JSONText)] = []
      if let path = entry.path { members.append(("path", .string(path.display))) }
      if let link = entry.link { members.append(("link", .string(link))) }
      if let size { members += [("width", .integer(size.width)), ("height", .integer(size.height))] }
      if let problem = entry.problem { members.append(("problem", .string(problem))) }
      return .object(members)
    }
    var members: [(String, JSONText)] = [("name", .string(finding.name)), ("kind", .string(finding.kind.rawValue))]
    if let difference = finding.difference {
      members += [
        ("amount", rounded(difference.amount)), ("colour", rounded(difference.colour)),
        ("worstColour", rounded(difference.worstColour)),
        ("worstAt", .object([("x", .integer(difference.worstX)), ("y", .integer(difference.worstY))])),
        ("worstAlpha", rounded(difference.worstAlpha)), ("similarity", rounded(difference.similarity)),
      ]
    }
    if let reason = finding.reason { members.append(("reason", .string(reason))) }
    members += [
      ("first", side(finding.first, finding.firstSize)), ("second", side(finding.second, finding.secondSize)),
    ]
    return .object(members)
  }
}
