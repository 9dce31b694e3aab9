import PipelineKit
import Transport

/// One walk over a job's inputs; made by `InputWalker.cursor`.
///
/// Not to be shared between threads.
public final class InputCursor {
  private enum Source {
    case tree(TreeWalk, isEmptyAllowed: Bool)
    case list(ListReader, TextInput, isEmptyAllowed: Bool)
    case manifest(ManifestReader, TextInput, isEmptyAllowed: Bool)
    case addresses(ArraySlice<String>, isEmptyAllowed: Bool)
    case listing(any RemoteListing, isEmptyAllowed: Bool)
  }

  private let walker: InputWalker
  private let onSkip: (SkippedInput) -> Void
  private var declaration = 0
  private var index = 0
  private var given = 0
  private var skips = SkipTally()
  private var source: Source?
  private var isOver = false
  /// The most names of files and folders held at once by any walk so far; for tests.
  private(set) var mostNamesHeld = 0
  /// The links to folders that the walks so far have followed.
  private(set) var linkedFolders: [PathBytes] = []

  /// After this many problems in one list or manifest the rest is not looked at.
  private static let mostProblems = 20

  init(_ walker: InputWalker, onSkip: @escaping (SkippedInput) -> Void) {
    self.walker = walker
    self.onSkip = onSkip
  }

  /// The next input; nil at the end, and after an error.
  ///
  /// Throws when a declaration cannot be read, or has ended without yielding anything. All problems of one
  /// declaration are in one error.
  public func next() throws(InputError) -> InputItem? {
    do {
      while !isOver {
        if source == nil {
          guard declaration < walker.declarations.count else { break }
          given = 0
          skips = SkipTally()
          source = try open(walker.declarations[declaration])
        }
        if let item = try advance() { return item }
        source = nil
        declaration += 1
      }
    } catch {
      isOver = true
      source = nil
      throw error
    }
    isOver = true
    return nil
  }

  private func open(_ declared: InputDeclaration) throws(InputError) -> Source {
    switch declared {
    case .files(let patterns, let isEmptyAllowed):
      return .tree(try openFiles(patterns), isEmptyAllowed: isEmptyAllowed)
    case .directory(let path, let recursive, let extensions, let all, let isEmptyAllowed):
      let walk = try openDirectory(path, recursive: recursive, endings: all ? nil : extensions)
      return .tree(walk, isEmptyAllowed: isEmptyAllowed)
    case .list(let path, let isEmptyAllowed):
      let input = try walker.openText(path, what: "list", declaration)
      do throws(TextFault) {
        return .list(try ListReader(input.stream), input, isEmptyAllowed: isEmptyAllowed)
      } catch {
        throw InputError(InputWalker.problem(error, .list, what: "list", input, declaration))
      }
    case .manifest(_, _, _, let isEmptyAllowed):
      let (input, reader) = try walker.openManifest(declared, declaration)
      return .manifest(reader, input, isEmptyAllowed: isEmptyAllowed)
    case .addresses(let texts, let isEmptyAllowed):
      let problems = InputWalker.check([declared])
      guard problems.isEmpty else { throw InputError(problems) }
      return .addresses(texts[...], isEmptyAllowed: isEmptyAllowed)
    case .bucket(let search, let isEmptyAllowed):
      return .listing(
        try open { services throws(StageError) in try BucketListing(search, services) }, isEmptyAllowed: isEmptyAllowed)
    case .imgur(let search, let isEmptyAllowed):
      return .listing(
        try open { services throws(StageError) in try ImgurListing(search, services) }, isEmptyAllowed: isEmptyAllowed)
    }
  }

  private func advance() throws(InputError) -> InputItem? {
    switch source {
    case .tree(var walk, let isEmptyAllowed):
      // The walk is a value; leaving a second reference in `source` would copy it at every step.
      source = nil
      let found = walk.next { self.skip($0) }
      mostNamesHeld = max(mostNamesHeld, walk.mostNamesHeld)
      if let found {
        source = .tree(walk, isEmptyAllowed: isEmptyAllowed)
        return item(found.path, relativeDirectory: found.relativeDirectory)
      }
      linkedFolders += walk.linkedFolders
      try finish(walk, isEmptyAllowed: isEmptyAllowed)
      return nil
    case .list(let reader, let input, let isEmptyAllowed):
      return try row(.list, what: "list", input, isEmptyAllowed: isEmptyAllowed) { () throws(TextFault) in
        try reader.next().map { ManifestReader.Row(path: $0.path, columns: [:], line: $0.line) }
      }
    case .manifest(let reader, let input, let isEmptyAllowed):
      return try row(.manifestRow, what: "manifest", input, isEmptyAllowed: isEmptyAllowed) { () throws(TextFault) in
        try reader.next()
      }
    case .addresses(var rest, let isEmptyAllowed):
      guard let text = rest.popFirst() else {
        if given == 0, !isEmptyAllowed { throw InputError(problem(.empty, "no addresses are named")) }
        return nil
      }
      source = .addresses(rest, isEmptyAllowed: isEmptyAllowed)
      do throws(TransportError) {
        let (remote, name) = try RemoteSource.address(text)
        return item(remote, named: name)
      } catch { throw InputError(problem(.address, "an address is none: \(error.message)")) }
    case .listing(let listing, let isEmptyAllowed):
      let found: RemoteFind?
      do throws(StageError) {
        found = try listing.next { name, reason in
          self.skip(SkippedInput(path: name, reason: reason, declaration: self.declaration))
        }
      } catch { throw InputError(problem(error)) }
      if let found { return item(found.remote, named: found.name, relativeDirectory: found.directory) }
      if given == 0, !isEmptyAllowed {
        throw InputError(
          problem(
            .empty, "\(listing.what) holds no pictures",
            hint: skips.total == 0 ? nil : "passed over: \(skips.summary)"))
      }
      return nil
    case nil: return nil
    }
  }

  private func open<L: RemoteListing>(
    _ make: (ServiceResources) throws(StageError) -> L
  ) throws(InputError) -> L {
    do throws(StageError) {
      return try make(ServiceResources(walker.network))
    } catch { throw InputError(problem(error)) }
  }

  private func problem(_ error: StageError) -> InputProblem {
    problem(.service, error.message + (error.cause.map { " (\($0))" } ?? ""), hint: error.hint)
  }

  private func item(
    _ remote: RemoteSource, named name: PathBytes, relativeDirectory: PathBytes = PathBytes(bytes: []),
    columns: [String: String] = [:], line: Int? = nil
  ) -> InputItem {
    defer {
      index += 1
      given += 1
    }
    return InputItem(
      path: name, name: name, relativeDirectory: relativeDirectory, index: index, columns: columns,
      declaration: declaration, line: line, remote: remote)
  }

  private func skip(_ skipped: SkippedInput) {
    skips.add(skipped)
    onSkip(skipped)
  }

  private func item(
    _ path: PathBytes, relativeDirectory: PathBytes, columns: [String: String] = [:], line: Int? = nil
  ) -> InputItem {
    defer {
      index += 1
      given += 1
    }
    return InputItem(
      path: path, name: path.isInside(walker.base) ? path.relative(to: walker.base) : path,
      relativeDirectory: relativeDirectory, index: index, columns: columns, declaration: declaration, line: line)
  }

  private func problem(
    _ code: InputProblem.Code, _ message: String, hint: String? = nil, element: Int? = nil
  ) -> InputProblem {
    InputProblem(code, message, hint: hint, declaration: declaration, element: element)
  }

  // MARK: Files and folders

  private func openFiles(_ patterns: [String]) throws(InputError) -> TreeWalk {
    var problems: [InputProblem] = []
    var compiled: [TreeWalk.Pattern] = []
    for (element, text) in patterns.enumerated() {
      let name = PathBytes(text).printable
      let pattern: GlobPattern
      do throws(GlobSyntaxError) {
        if let file = GlobPattern.existing(text, base: walker.base) {
          pattern = file
        } else {
          pattern = try GlobPattern(text)
        }
      } catch {
        problems.append(problem(.globSyntax, "\(name): \(error.message)", hint: error.hint, element: element))
        continue
      }
      let fixed = PathBytes.resolving(pattern.fixed, from: walker.base)
      if pattern.isPlain {
        if let wrong = check(plain: fixed, written: text, element: element) {
          problems.append(wrong)
        } else {
          compiled.append(.init(fixed: fixed, parts: [], element: element))
        }
        continue
      }
      for parts in pattern.alternatives {
        compiled.append(.init(fixed: fixed, parts: parts, element: element))
      }
    }
    guard problems.isEmpty else { throw InputError(problems) }
    return TreeWalk(compiled, elements: patterns.count, declaration: declaration)
  }

  private func check(plain path: PathBytes, written text: String, element: Int) -> InputProblem? {
    let name = PathBytes(text).printable
    switch FileStatus.of(path.bytes, followingLinks: true) {
    case .success(let status) where status.kind == .regular:
      return nil
    case .success(let status):
      return problem(
        .wrongKind, "\(name) is \(status.kind.text), not a file",
        hint: status.kind == .folder ? "use \"directory\", or end it in /**" : nil, element: element)
    case .failure(let error) where error.isMissing:
      let escapes =
        text.contains("\\") ? "a backslash takes the next character for itself; folders are separated by /" : nil
      return problem(
        .missing, "\(name) does not exist", hint: escapes ?? NearName.hint(for: path), element: element)
    case .failure(let error):
      return problem(.unreadable, "\(name) cannot be looked at: \(error.text)", element: element)
    }
  }

  private func openDirectory(_ text: String, recursive: Bool, endings: [String]?) throws(InputError) -> TreeWalk {
    let name = PathBytes(text).printable
    guard !text.isEmpty, !text.utf8.contains(0) else {
      throw InputError(problem(.missing, "the path of the folder is empty", hint: "write . for the job's own folder"))
    }
    let path = PathBytes.resolving(PathBytes(text), from: walker.base)
    switch FileStatus.of(path.bytes, followingLinks: true) {
    case .success(let status) where status.kind == .folder: break
    case .success(let status):
      throw InputError(
        problem(
          .wrongKind, "\(name) is \(status.kind.text), not a folder",
          hint: status.kind == .regular ? "name files in \"files\"" : nil))
    case .failure(let error) where error.isMissing:
      throw InputError(problem(.missing, "the folder \(name) does not exist", hint: NearName.hint(for: path)))
    case .failure(let error):
      throw InputError(problem(.unreadable, "the folder \(name) cannot be looked at: \(error.text)"))
    }
    let any = GlobPattern.Part.name(GlobComponent(tokens: [.anyRun], isLast: true))
    return TreeWalk(
      [.init(fixed: path, parts: recursive ? [.folders, any] : [any], element: 0)], elements: 1,
      endings: endings?.map { $0.lowercased() }, declaration: declaration)
  }

  private func finish(_ walk: TreeWalk, isEmptyAllowed: Bool) throws(InputError) {
    let declared = walker.declarations[declaration]
    var problems: [InputProblem] = []
    let passed = skips.total == 0 ? nil : "passed over: \(skips.summary)"
    switch declared {
    case .files(let patterns, _):
      if patterns.isEmpty, !isEmptyAllowed { problems.append(problem(.empty, "no files are named")) }
      for (element, text) in patterns.enumerated() where !walk.matched[element] {
        let name = PathBytes(text).printable
        // A plain path was there when the walk began.
        let isPlain = (GlobPattern.existing(text, base: walker.base) ?? (try? GlobPattern(text)))?.isPlain ?? false
        if isPlain {
          problems.append(problem(.missing, "\(name) is gone", element: element))
        } else if !isEmptyAllowed {
          problems.append(
            problem(.empty, "\(name) matches no file", hint: hint(forEmpty: text) ?? passed, element: element))
        }
      }
    case .directory(let text, let recursive, _, let all, _):
      if !walk.matched[0], !isEmptyAllowed {
        let what = all ? "files" : "pictures"
        problems.append(
          problem(
            .empty, "there are no \(what) in \(PathBytes(text).printable)\(recursive ? " or below it" : "")",
            hint: passed))
      }
    case .list, .manifest, .addresses, .bucket, .imgur: break
    }
    if !problems.isEmpty { throw InputError(problems) }
  }

  /// Why a pattern may have matched nothing: its folder is not there, or is there with the wildcards in its name.
  private func hint(forEmpty text: String) -> String? {
    guard let pattern = try? GlobPattern(text) else { return nil }
    let fixed = PathBytes.resolving(pattern.fixed, from: walker.base)
    guard case .success = FileStatus.of(fixed.bytes, followingLinks: true) else { return NearName.hint(for: fixed) }
    var folder = PathBytes(text).isAbsolute ? PathBytes("/") : walker.base
    for name in PathBytes(text).components {
      folder = folder.joining(PathBytes(name))
      guard case .success = FileStatus.of(folder.bytes, followingLinks: true) else { break }
      if name.contains(where: { "*?[{".utf8.contains($0) }) {
        return "there is a folder named \(PathBytes(name).printable); write \\ before the special characters"
      }
    }
    return nil
  }

  // MARK: Lists and manifests

  /// The next row that is no pipe or device; problems are collected to the end and thrown together.
  private func row(
    _ code: InputProblem.Code, what: String, _ input: TextInput, isEmptyAllowed: Bool,
    _ read: () throws(TextFault) -> ManifestReader.Row?
  ) throws(InputError) -> InputItem? {
    var problems: [InputProblem] = []
    while problems.count < Self.mostProblems {
      do throws(TextFault) {
        guard let row = try read() else { break }
        if let item = try item(row, input, what: what), problems.isEmpty { return item }
      } catch {
        problems.append(InputWalker.problem(error, code, what: what, input, declaration))
        guard case .line(_, _, _, canContinue: true) = error else { break }
      }
    }
    if !problems.isEmpty { throw InputError(problems) }
    if given == 0, !isEmptyAllowed {
      throw InputError(
        InputProblem(
          .empty, "the \(what) \(input.name.printable) names no pictures",
          hint: skips.total == 0 ? nil : "passed over: \(skips.summary)", declaration: declaration, file: input.name))
    }
    return nil
  }

  /// A file that is missing stays an item, so that it fails and is counted by itself.
  private func item(_ row: ManifestReader.Row, _ input: TextInput, what: String) throws(TextFault) -> InputItem? {
    if RemoteSource.isAddress(row.path) {
      guard let text = String(validating: row.path, as: UTF8.self) else {
        throw .line(row.line, "an address that is not UTF-8", hint: "save the \(what) as UTF-8")
      }
      do throws(TransportError) {
        let (remote, name) = try RemoteSource.address(text)
        return item(remote, named: name, columns: row.columns, line: row.line)
      } catch {
        throw .line(row.line, "an address is none: \(error.message)")
      }
    }
    let path = PathBytes.resolving(PathBytes(bytes: row.path), from: input.folder)
    if case .success(let status) = FileStatus.of(path.bytes, followingLinks: true) {
      let reason: SkippedInput.Reason? =
        switch status.kind {
        case .pipe: .pipe
        case .socket: .socket
        case .device: .device
        case .regular, .folder, .link, .unknown: nil
        }
      if let reason {
        skip(SkippedInput(path: path, reason: reason, declaration: declaration))
        return nil
      }
    }
    let folder = path.parent
    let below = folder.isInside(input.folder) && folder != input.folder
    return item(
      path, relativeDirectory: below ? folder.relative(to: input.folder) : PathBytes(bytes: []),
      columns: row.columns, line: row.line)
  }
}
