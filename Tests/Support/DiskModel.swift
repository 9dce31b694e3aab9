import Glibc

/// A file system of which only what was flushed is sure to outlive a power cut.
///
/// The contents and size of a file reach the disk by a flush of the file; a name, or that it is gone, by a flush of the
/// folder it stands in. This is what POSIX promises and no more. A journalling file system such as ext4 keeps more,
/// by chance: names of one folder in the order they were made, and pages of files in any order. Modes are kept as
/// the calls set them.
public struct DiskModel: Sendable {
  /// What a power cut leaves of that which was not flushed.
  public enum World: Sendable, Hashable {
    /// Nothing.
    case onlyFlushed
    /// All names, no contents: what a file system does that writes its journal at once and data late.
    case names
    /// All contents, no names.
    case contents
    /// Everything: the program was killed, and the machine stays up.
    case everything
    /// Names up to some moment in each folder, and pages of files as they were at some moment, each at its own. Some
    /// pages are torn where sectors end.
    case some(seed: UInt64)
  }

  /// What stands at a path.
  public enum Node: Sendable, Hashable {
    case folder(mode: mode_t)
    case file([UInt8], mode: mode_t)
  }

  private enum DataChange {
    case write(offset: Int, bytes: [UInt8])
    case resize(Int)

    func apply(to content: inout [UInt8]) {
      switch self {
      case .write(let offset, let bytes):
        // Writing nothing makes no file longer.
        guard !bytes.isEmpty else { return }
        if content.count < offset + bytes.count {
          content += [UInt8](repeating: 0, count: offset + bytes.count - content.count)
        }
        content.replaceSubrange(offset..<offset + bytes.count, with: bytes)
      case .resize(let count):
        if count < content.count {
          content.removeLast(content.count - count)
        } else {
          content += [UInt8](repeating: 0, count: count - content.count)
        }
      }
    }
  }

  private struct Inode {
    var isFolder: Bool
    var mode: mode_t
    /// As programs see it.
    var content: [UInt8] = []
    /// As it is on the disk.
    var flushed: [UInt8] = []
    /// What leads from the one to the other, with the number of the call.
    var pending: [(call: Int, change: DataChange)] = []
  }

  /// Paths that a call gives to inodes or takes from them.
  private struct NameChange {
    var call: Int
    var names: [(path: String, inode: Int?)]
  }

  private struct Descriptor: Hashable {
    var number: Int
    var inode: Int
  }

  /// What descriptors that were made of one another share.
  private struct OpenFile {
    var position = 0
    var appends = false
  }

  private var inodes: [Inode] = []
  private var names: [String: Int] = [:]
  private var flushedNames: [String: Int] = [:]
  private var pendingNames: [NameChange] = []
  private var descriptors: [Descriptor: Int] = [:]
  private var openFiles: [OpenFile] = []
  private var callCount = 0
  private let umask: mode_t

  /// - Parameter tree: what is there and on the disk; paths are relative, folders stand in it too, all but the first.
  public init(_ tree: [String: Node] = [:], umask: mode_t = 0o022) {
    self.umask = umask
    add("", .folder(mode: 0o755))
    for (path, node) in tree { add(path, node) }
  }

  private mutating func add(_ path: String, _ node: Node) {
    switch node {
    case .folder(let mode): inodes.append(Inode(isFolder: true, mode: mode))
    case .file(let bytes, let mode):
      inodes.append(Inode(isFolder: false, mode: mode, content: bytes, flushed: bytes))
    }
    names[path] = inodes.count - 1
    flushedNames[path] = inodes.count - 1
  }

  // MARK: Running

  /// Does what a call did. Calls on files that the model does not know are passed over.
  public mutating func apply(_ call: CallTrace.Call) {
    defer { callCount += 1 }
    switch call.change {
    case .open(let path, let descriptor, let mode, let creates, let truncates, let appends):
      if names[path] == nil {
        guard creates else { return }
        inodes.append(Inode(isFolder: false, mode: mode & ~umask))
        rename([(path, inodes.count - 1)])
      }
      guard let inode = names[path] else { return }
      descriptors[Descriptor(number: descriptor, inode: inode)] = openFiles.count
      openFiles.append(OpenFile(appends: appends))
      if truncates, !inodes[inode].content.isEmpty { change(inode, .resize(0)) }
    case .write(let path, let descriptor, let offset, let bytes):
      guard let inode = names[path], !inodes[inode].isFolder else { return }
      if let offset {
        change(inode, .write(offset: offset, bytes: bytes))
      } else if let opened = descriptors[Descriptor(number: descriptor, inode: inode)] {
        let place = openFiles[opened].appends ? inodes[inode].content.count : openFiles[opened].position
        change(inode, .write(offset: place, bytes: bytes))
        openFiles[opened].position = place + bytes.count
      }
    case .seek(let path, let descriptor, let to):
      guard let inode = names[path] else { return }
      if let opened = descriptors[Descriptor(number: descriptor, inode: inode)] { openFiles[opened].position = to }
    case .duplicate(let path, let descriptor, let other):
      guard let inode = names[path] else { return }
      descriptors[Descriptor(number: other, inode: inode)] = descriptors[Descriptor(number: descriptor, inode: inode)]
    case .resize(let path, let count):
      if let inode = names[path] { change(inode, .resize(count)) }
    case .flush(let path):
      guard let inode = names[path] else { return }
      if inodes[inode].isFolder { flush(folder: path, until: call.began) } else { flush(inode, until: call.began) }
    case .rename(let from, let to):
      // Folders are not renamed by what is tested here, so no path below has to follow.
      guard let inode = names[from] else { return }
      rename([(from, nil), (to, inode)])
    case .link(let from, let to):
      if let inode = names[from] { rename([(to, inode)]) }
    case .remove(let path): rename([(path, nil)])
    case .makeFolder(let path, let mode):
      inodes.append(Inode(isFolder: true, mode: mode & ~umask))
      rename([(path, inodes.count - 1)])
    case .changeMode(let path, let mode):
      if let inode = names[path] { inodes[inode].mode = mode }
    }
  }

  private mutating func rename(_ changes: [(path: String, inode: Int?)]) {
    for (path, inode) in changes { names[path] = inode }
    pendingNames.append(NameChange(call: callCount, names: changes))
  }

  private mutating func change(_ inode: Int, _ change: DataChange) {
    change.apply(to: &inodes[inode].content)
    inodes[inode].pending.append((callCount, change))
  }

  /// A flush answers for what had ended when it began.
  private mutating func flush(_ inode: Int, until call: Int) {
    for (_, change) in inodes[inode].pending.prefix(while: { $0.call < call }) {
      change.apply(to: &inodes[inode].flushed)
    }
    inodes[inode].pending.removeAll { $0.call < call }
  }

  private mutating func flush(folder: String, until call: Int) {
    for change in pendingNames
    where change.call < call && change.names.contains(where: { Self.parent($0.path) == folder }) {
      for (path, inode) in change.names { flushedNames[path] = inode }
    }
    pendingNames.removeAll { change in
      change.call < call && change.names.contains { Self.parent($0.path) == folder }
    }
  }

  static func parent(_ path: String) -> String { path.lastIndex(of: "/").map { String(path[..<$0]) } ?? "" }

  // MARK: A power cut

  /// What is there after a power cut: paths relative to the folder, without the folder itself.
  public func survivors(in world: World) -> [String: Node] {
    var random = SeededGenerator(state: 0)
    if case .some(let seed) = world { random = SeededGenerator(state: seed) }
    var names: [String: Int]
    switch world {
    case .onlyFlushed, .contents: names = flushedNames
    case .names, .everything: names = self.names
    case .some: names = someNames(&random)
    }
    names[""] = nil
    var tree: [String: Node] = [:]
    // Sorted: folders before what is in them, and the same random numbers for the same file each time.
    for (path, number) in names.sorted(by: { $0.key < $1.key }) {
      let parent = Self.parent(path)
      // What lies in a folder that was lost is lost.
      guard parent.isEmpty || tree[parent] != nil else { continue }
      let inode = inodes[number]
      guard !inode.isFolder else {
        tree[path] = .folder(mode: inode.mode)
        continue
      }
      let content: [UInt8] =
        switch world {
        case .onlyFlushed, .names: inode.flushed
        case .contents, .everything: inode.content
        case .some: Self.someContent(inode, &random)
        }
      tree[path] = .file(content, mode: inode.mode)
    }
    return tree
  }

  private func someNames(_ random: inout SeededGenerator) -> [String: Int] {
    var names = flushedNames
    let folders = Set(pendingNames.flatMap { $0.names.map { Self.parent($0.path) } }).sorted()
    var cuts: [String: Int] = [:]
    for folder in folders { cuts[folder] = Int.random(in: 0...pendingNames.count, using: &random) }
    for (index, change) in pendingNames.enumerated()
    where change.names.allSatisfy({ index < cuts[Self.parent($0.path), default: 0] }) {
      for (path, inode) in change.names { names[path] = inode }
    }
    return names
  }

  private static func someContent(_ inode: Inode, _ random: inout SeededGenerator) -> [UInt8] {
    let changes = inode.pending.map(\.change)
    guard !changes.isEmpty else { return inode.flushed }
    var whole = inode.flushed
    // Sizes are kept in order, contents are not.
    let cut = Int.random(in: 0...changes.count, using: &random)
    for change in changes[..<cut] { change.apply(to: &whole) }
    let count = whole.count
    var content = [UInt8](repeating: 0, count: count)
    let piece = Bool.random(using: &random) ? 4_096 : 512
    var start = 0
    while start < count {
      let end = min(count, start + piece)
      var version = inode.flushed
      for change in changes[..<Int.random(in: 0...changes.count, using: &random)] { change.apply(to: &version) }
      let known = min(end, version.count)
      if start < known { content.replaceSubrange(start..<known, with: version[start..<known]) }
      start = end
    }
    return content
  }
}

extension TemporaryFolder {
  /// Every file and folder below, with bytes and permissions.
  public func contents() -> [String: DiskModel.Node] {
    var nodes: [String: DiskModel.Node] = [:]
    for name in tree() {
      let isFolder = name.hasSuffix("/")
      let path = isFolder ? String(name.dropLast()) : name
      var status = stat()
      guard lstat(self[path], &status) == 0 else { continue }
      let mode = status.st_mode & 0o7777
      nodes[path] = isFolder ? .folder(mode: mode) : .file(read(path) ?? [], mode: mode)
    }
    return nodes
  }

  /// Makes the folder hold just this. Files that are as wanted are not touched, so that their times stay.
  public func become(_ wanted: [String: DiskModel.Node]) {
    let present = contents()
    for path in present.keys.sorted(by: >) where wanted[path] != present[path] {
      if case .folder = present[path] {
        if case .folder = wanted[path] { continue }
        rmdir(self[path])
      } else {
        unlink(self[path])
      }
    }
    for (path, node) in wanted.sorted(by: { $0.key < $1.key }) {
      guard present[path] != node else { continue }
      switch node {
      case .folder(let mode):
        makeFolder(path)
        chmod(self[path], mode)
      case .file(let bytes, let mode):
        write(bytes, to: path)
        chmod(self[path], mode)
      }
    }
  }
}
