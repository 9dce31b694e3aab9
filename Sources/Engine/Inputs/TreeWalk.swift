import Glibc
import PipelineKit

/// Walks the file system once for all patterns of a declaration, in the bytewise order of the paths.
///
/// The patterns are followed together, as a set of places in them, so that a folder is read once and a file given
/// once however many patterns lead to it. Only names that matter are kept, one folder's for each level of depth; a
/// folder is closed before anything in it is given out. Names without wildcards are looked up, not searched for, so
/// folders on the way need no right to be read.
struct TreeWalk {
  /// A pattern as the walk takes it.
  struct Pattern: Sendable {
    /// Absolute and normalised.
    var fixed: PathBytes
    var parts: [GlobPattern.Part]
    /// Whose match it is: the place within `files`.
    var element: Int
  }

  struct Found {
    var path: PathBytes
    /// The first pattern that matches.
    var element: Int
    /// The path below that pattern's fixed folder, without the file's name.
    var relativeDirectory: PathBytes
  }

  /// The longest path the system opens, in bytes, without the NUL.
  static let longestPath = 4_095

  private enum Step: Sendable {
    case exact([UInt8])
    case name(GlobComponent)
    case folders
  }

  private struct Route {
    var steps: [Step]
    var firstFolders: Int
    var fixedLength: Int
    var element: Int
  }

  /// A place in a pattern: the next step to match.
  private struct Place: Hashable, Comparable {
    var route: Int32
    var step: Int32

    static func < (left: Place, right: Place) -> Bool { (left.route, left.step) < (right.route, right.step) }
  }

  private enum EntryKind { case file, folder, linkedFolder, skipped }

  private struct Entry {
    var offset: Int
    var length: Int
    var kind: EntryKind
    var sortsAsFolder: Bool
    var route: Int32
    var reason: SkippedInput.Reason
    var detail: Int32
  }

  private struct Level {
    var pathLength: Int
    var identity: FileIdentity?
    /// Places whose next step may match several names.
    var searching: [Place] = []
    /// Places whose next step is one name. Apart, so that thousands of plain paths cost one look each.
    var exact: [[UInt8]: [Place]] = [:]
    var names: [UInt8] = []
    var entries: [Entry] = []
    var next = 0
  }

  private let routes: [Route]
  private let endings: Set<[UInt8]>?
  private var levels: [Level] = []
  private var path: [UInt8] = []
  private var followedLinks: Set<FileIdentity> = []
  private var pending: [SkippedInput] = []
  private let declaration: Int

  /// The links to folders that were followed, as walked.
  private(set) var linkedFolders: [PathBytes] = []
  /// For each element, whether any file matched it.
  private(set) var matched: [Bool]
  /// The most names held at once so far.
  private(set) var mostNamesHeld = 0
  private var namesHeld = 0

  /// - Parameter endings: in lower case, without dots: other files are skipped as `notAPicture`; nil takes all.
  init(_ patterns: [Pattern], elements: Int, endings: [String]? = nil, declaration: Int = 0) {
    self.declaration = declaration
    self.endings = endings.map { Set($0.map { Array($0.utf8) }) }
    matched = Array(repeating: false, count: elements)
    routes = patterns.map { pattern in
      let fixed: [Step] = pattern.fixed.components.map { .exact(Array($0)) }
      let rest: [Step] = pattern.parts.map { part in
        switch part {
        case .folders: .folders
        case .name(let component): component.literal.map { .exact($0) } ?? .name(component)
        }
      }
      let steps = fixed + rest
      let first = steps.firstIndex { if case .folders = $0 { true } else { false } }
      let length = pattern.fixed.components.reduce(0) { $0 + $1.count + 1 }
      return Route(
        steps: steps, firstFolders: first ?? Int.max,
        // A plain path is fixed as a whole; what it lies in is its top.
        fixedLength: rest.isEmpty ? Int.max : length, element: pattern.element)
    }
    var start: [Place] = []
    for route in routes.indices where !routes[route].steps.isEmpty {
      add(Place(route: Int32(route), step: 0), to: &start)
    }
    var root: FileIdentity?
    if case .success(let status) = FileStatus.of([Byte.slash], followingLinks: true) { root = status.identity }
    if !start.isEmpty { enter(start, identity: root) }
  }

  /// The next file; nil at the end. Skipped names are told as they are met, in order with the files.
  mutating func next(onSkip: (SkippedInput) -> Void) -> Found? {
    while true {
      for skipped in pending { onSkip(skipped) }
      pending.removeAll()
      guard let top = levels.indices.last else { return nil }
      guard levels[top].next < levels[top].entries.count else {
        namesHeld -= levels[top].entries.count
        levels.removeLast()
        continue
      }
      let entry = levels[top].entries[levels[top].next]
      levels[top].next += 1
      path.removeLast(path.count - levels[top].pathLength)
      path.append(Byte.slash)
      path += levels[top].names[entry.offset..<(entry.offset + entry.length)]
      switch entry.kind {
      case .skipped:
        onSkip(skipped(entry.reason, error: entry.detail))
      case _ where path.count > Self.longestPath:
        onSkip(skipped(.pathTooLong))
      case .file:
        return found(routes[Int(entry.route)], folderLength: levels[top].pathLength)
      case .folder, .linkedFolder:
        descend(level: top, entry)
      }
    }
  }

  private func found(_ route: Route, folderLength: Int) -> Found {
    let start = route.fixedLength == Int.max ? folderLength : min(route.fixedLength + 1, folderLength)
    return Found(
      path: PathBytes(bytes: path), element: route.element,
      relativeDirectory: PathBytes(bytes: Array(path[start..<folderLength])))
  }

  private func skipped(_ reason: SkippedInput.Reason, error: Int32 = 0) -> SkippedInput {
    SkippedInput(
      path: PathBytes(bytes: path.isEmpty ? [Byte.slash] : path), reason: reason,
      detail: error == 0 ? nil : SystemError(code: error).text, declaration: declaration)
  }

  // MARK: Places

  /// Adds a place and, where it stands before `**`, the one behind it: `**` may be no folder at all.
  private func add(_ place: Place, to places: inout [Place]) {
    places.append(place)
    if case .folders = routes[Int(place.route)].steps[Int(place.step)] {
      places.append(Place(route: place.route, step: place.step + 1))
    }
  }

  private func isLast(_ place: Place) -> Bool { Int(place.step) + 1 == routes[Int(place.route)].steps.count }

  /// Whether the folder `name` satisfies the step at `place`. A hidden name needs a pattern that says so, unless
  /// `showingHidden`.
  private func matches(
    _ place: Place, _ name: UnsafeBufferPointer<UInt8>, showingHidden: Bool = false
  ) -> Bool {
    let isHidden = name.first == Byte.dot && !showingHidden
    switch routes[Int(place.route)].steps[Int(place.step)] {
    case .folders: return !isHidden
    case .exact(let exact):
      return exact.withUnsafeBufferPointer { Self.compare($0, name) == 0 && $0.count == name.count }
    case .name(let component): return (!isHidden || component.namesHiddenFiles) && component.matches(name)
    }
  }

  /// The places of a level that `name` may match, in the order of the patterns.
  private func candidates(_ level: Level, _ name: UnsafeBufferPointer<UInt8>) -> [Place] {
    guard !level.exact.isEmpty, let exact = level.exact[Array(name)] else { return level.searching }
    return level.searching.isEmpty ? exact : (level.searching + exact).sorted()
  }

  /// Compares as far as the shorter name goes.
  private static func compare(_ left: UnsafeBufferPointer<UInt8>, _ right: UnsafeBufferPointer<UInt8>) -> Int32 {
    guard let first = left.baseAddress, let second = right.baseAddress else { return 0 }
    return memcmp(first, second, min(left.count, right.count))
  }

  /// The places inside the folder `name`. `named` keeps to those that no `**` led to.
  private func places(after level: Level, _ name: UnsafeBufferPointer<UInt8>, named: Bool) -> [Place] {
    var result: [Place] = []
    for place in candidates(level, name) {
      if named, Int(place.step) >= routes[Int(place.route)].firstFolders { continue }
      guard matches(place, name) else { continue }
      if case .folders = routes[Int(place.route)].steps[Int(place.step)] {
        add(place, to: &result)
      } else if !isLast(place) {
        add(Place(route: place.route, step: place.step + 1), to: &result)
      }
    }
    result.sort()
    var previous: Place?
    result.removeAll { place in
      defer { previous = place }
      return place == previous
    }
    return result
  }

  // MARK: Folders

  private mutating func descend(level: Int, _ entry: Entry) {
    let status: FileStatus
    switch FileStatus.of(path, followingLinks: true) {
    case .success(let value): status = value
    case .failure(let error):
      pending.append(skipped(.unreadableFolder, error: error.code))
      return
    }
    let isLink = entry.kind == .linkedFolder
    let loops = levels.contains { $0.identity == status.identity }
    // Under `**` a link is followed once. That ends loops, and keeps links beside each other from doubling the work
    // at every level. A folder that a pattern names is entered all the same: its names bound the depth.
    let seen = isLink && followedLinks.contains(status.identity)
    let places = levels[level].names.withUnsafeBufferPointer { names in
      self.places(
        after: levels[level], .init(rebasing: names[entry.offset..<(entry.offset + entry.length)]),
        named: loops || seen)
    }
    guard !places.isEmpty else {
      pending.append(skipped(loops ? .symlinkLoop : .folderSeenBefore))
      return
    }
    if isLink {
      followedLinks.insert(status.identity)
      linkedFolders.append(PathBytes(bytes: path))
    }
    enter(places, identity: status.identity)
  }

  private mutating func enter(_ places: [Place], identity: FileIdentity?) {
    var level = Level(pathLength: path.count, identity: identity)
    for place in places {
      switch routes[Int(place.route)].steps[Int(place.step)] {
      case .exact(let name): level.exact[name, default: []].append(place)
      case .name, .folders: level.searching.append(place)
      }
    }
    if level.searching.isEmpty || !list(&level) { lookUp(in: &level) }
    sort(&level)
    namesHeld += level.entries.count
    mostNamesHeld = max(mostNamesHeld, namesHeld)
    levels.append(level)
  }

  /// Reads the folder at `path`; false where that is not possible.
  private mutating func list(_ level: inout Level) -> Bool {
    let descriptor = withCPath(path.isEmpty ? [Byte.slash] : path) {
      open($0, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK)
    }
    guard descriptor >= 0, let folder = fdopendir(descriptor) else {
      pending.append(skipped(.unreadableFolder, error: errno))
      if descriptor >= 0 { close(descriptor) }
      return false
    }
    defer { closedir(folder) }
    guard let nameOffset = MemoryLayout<dirent>.offset(of: \.d_name) else { return false }
    while true {
      errno = 0
      guard let entry = readdir(folder) else {
        if errno != 0 { pending.append(skipped(.unreadableFolder, error: errno)) }
        return true
      }
      // The entry is as long as its name, not as the struct: the name is read through its address.
      let start = UnsafeRawPointer(entry) + nameOffset
      let name = UnsafeBufferPointer(
        start: start.assumingMemoryBound(to: UInt8.self), count: strlen(start.assumingMemoryBound(to: CChar.self)))
      if name.elementsEqual(".".utf8) || name.elementsEqual("..".utf8) { continue }
      consider(name, FileKind(directoryEntry: entry.pointee.d_type), in: &level, folder: descriptor)
    }
  }

  private mutating func lookUp(in level: inout Level) {
    for name in level.exact.keys {
      let whole = path + [Byte.slash] + name
      guard whole.count <= Self.longestPath,
        case .success(let status) = FileStatus.of(whole, followingLinks: false)
      else { continue }
      name.withUnsafeBufferPointer { consider($0, status.kind, in: &level, folder: nil) }
    }
  }

  /// Keeps a name if any pattern wants it, as a file or as a folder on the way to one.
  private mutating func consider(
    _ name: UnsafeBufferPointer<UInt8>, _ kind: FileKind, in level: inout Level, folder: Int32?
  ) {
    let places = candidates(level, name)
    var file: Int32?
    var entersFolder = false
    for place in places where matches(place, name) {
      if isLast(place) {
        file = file ?? place.route
      } else {
        entersFolder = true
      }
    }
    var hiddenFile = false
    var hiddenFolder = false
    if name.first == Byte.dot, file == nil || !entersFolder {
      for place in places where matches(place, name, showingHidden: true) {
        if isLast(place) { hiddenFile = true } else { hiddenFolder = true }
      }
    }
    guard file != nil || entersFolder || hiddenFile || hiddenFolder else { return }

    var kind = kind
    var isLink = false
    var failure: Int32 = 0
    if kind == .unknown || kind == .link {
      func status(followingLinks: Bool) -> FileKind {
        let answer =
          folder.map { FileStatus.of(Array(name), in: $0, followingLinks: followingLinks) }
          ?? FileStatus.of(path + [Byte.slash] + name, followingLinks: followingLinks)
        switch answer {
        case .success(let status): return status.kind
        case .failure(let error):
          failure = error.code
          return .unknown
        }
      }
      if kind == .unknown { kind = status(followingLinks: false) }
      if kind == .link {
        isLink = true
        kind = status(followingLinks: true)
      }
    }

    func keep(_ kind: EntryKind, asFolder: Bool = false, reason: SkippedInput.Reason = .hidden) {
      level.entries.append(
        Entry(
          offset: level.names.count, length: name.count, kind: kind, sortsAsFolder: asFolder, route: file ?? 0,
          reason: reason, detail: reason == .brokenLink && failure != ENOENT ? failure : 0))
      level.names += name
    }
    switch kind {
    case .regular:
      guard file != nil else {
        if hiddenFile { keep(.skipped, reason: .hidden) }
        return
      }
      guard isWanted(name) else { return keep(.skipped, reason: .notAPicture) }
      for place in places where isLast(place) && matches(place, name) {
        matched[routes[Int(place.route)].element] = true
      }
      keep(.file)
    case .folder:
      if entersFolder {
        keep(isLink ? .linkedFolder : .folder, asFolder: true)
      } else if hiddenFolder {
        keep(.skipped, asFolder: true, reason: .hidden)
      } else if file != nil {
        keep(.skipped, asFolder: true, reason: .folder)
      }
    case .pipe where file != nil: keep(.skipped, reason: .pipe)
    case .socket where file != nil: keep(.skipped, reason: .socket)
    case .device where file != nil: keep(.skipped, reason: .device)
    case .link, .unknown:
      // A link on the way (`entersFolder`) counts too: behind it there may have been pictures.
      guard isLink, file != nil || entersFolder else { return }
      keep(.skipped, reason: failure == ELOOP ? .symlinkLoop : .brokenLink)
    case .pipe, .socket, .device: return
    }
  }

  private func isWanted(_ name: UnsafeBufferPointer<UInt8>) -> Bool {
    guard let endings else { return true }
    let ending = PathBytes(name).fileExtension.bytes.map(GlobComponent.lowercased)
    return endings.contains(ending)
  }

  /// Puts a level in the order of whole paths, in which a folder's name is followed by a slash.
  private func sort(_ level: inout Level) {
    let entries = level.entries
    level.names.withUnsafeBufferPointer { names in
      level.entries = entries.sorted { left, right in
        let shared = min(left.length, right.length)
        guard let base = names.baseAddress else { return false }
        let order = memcmp(base + left.offset, base + right.offset, shared)
        if order != 0 { return order < 0 }
        // One name is the other's beginning; -1 stands before every byte.
        func next(_ entry: Entry) -> Int {
          if entry.length > shared { return Int(names[entry.offset + shared]) }
          return entry.sortsAsFolder ? Int(Byte.slash) : -1
        }
        return next(left) < next(right)
      }
    }
  }
}
