import Digest
import PipelineKit

/// The inputs of a run, packed: a run may have millions, and an `InputItem` is four blocks of memory and a dictionary.
///
/// The last names of all paths stand in one buffer. What the inputs of a folder share is kept once; columns, lines and
/// numbers only where there are any. An input costs its last name and 12 bytes, and comes out as it was put in.
public struct InputList: Sendable, RandomAccessCollection {
  /// What inputs of one folder have in common.
  private struct Folder: Hashable {
    /// The path up to the last name, with its slash.
    var path: [UInt8]
    /// The same of the name.
    var name: [UInt8]
    var relativeDirectory: PathBytes
    var declaration: Int
  }

  private var folders: [Folder] = []
  private var folderNumbers: [Folder: UInt32] = [:]
  private var lastNames: [UInt8] = []
  /// Where in `lastNames` each input's begins.
  private var starts: [Int] = []
  private var places: [UInt32] = []

  // Empty as long as no input has any; from the first on one for each.
  private var lines: [UInt32] = []
  /// Where an input's number in the run is not its place here.
  private var numbers: [Int] = []
  /// Where in `columnBytes` an input's columns begin; -1 for none.
  private var columnStarts: [Int] = []
  private var columnBytes: [UInt8] = []
  /// What kind of source each input has that is no file; 0 for files. Its location then stands where a path does.
  private var remoteKinds: [UInt8] = []
  /// What listings say of the content of such inputs.
  private var remoteVersions: [FileStamp?] = []
  /// The sets of names that columns have had, each in order: a manifest has one.
  private var columnNames: [[String]] = []

  public init() {}

  public init(_ items: some Sequence<InputItem>) {
    for item in items { append(item) }
    finish()
  }

  public var startIndex: Int { 0 }
  public var endIndex: Int { places.count }

  public subscript(position: Int) -> InputItem {
    let folder = folders[Int(places[position])]
    let last = lastName(position)
    let name = PathBytes(bytes: folder.name + last)
    var path = PathBytes(bytes: folder.path + last)
    var remote: RemoteSource?
    if !remoteKinds.isEmpty, let kind = RemoteSource.Kind(rawValue: remoteKinds[position]) {
      remote = RemoteSource(
        kind, String(decoding: path.bytes, as: UTF8.self),
        version: remoteVersions.isEmpty ? nil : remoteVersions[position])
      path = name
    }
    return InputItem(
      path: path, name: name, relativeDirectory: folder.relativeDirectory,
      index: numbers.isEmpty ? position : numbers[position],
      columns: columns(position), declaration: folder.declaration,
      line: lines.isEmpty || lines[position] == 0 ? nil : Int(lines[position]), remote: remote)
  }

  /// Whether any input is fetched.
  public var hasRemote: Bool { !remoteKinds.isEmpty }

  /// The path of an input; nil for one that is no file here.
  public func file(at index: Int) -> PathBytes? {
    guard indices.contains(index), self[index].remote == nil else { return nil }
    return self[index].path
  }

  func isRemote(at position: Int) -> Bool { !remoteKinds.isEmpty && remoteKinds[position] != 0 }

  /// The path of an input alone; for files.
  func path(at position: Int) -> PathBytes {
    PathBytes(bytes: folders[Int(places[position])].path + lastName(position))
  }

  private func lastName(_ position: Int) -> ArraySlice<UInt8> {
    lastNames[starts[position]..<(position + 1 < starts.count ? starts[position + 1] : lastNames.count)]
  }

  // MARK: Adding

  public mutating func append(_ item: InputItem) {
    let position = places.count
    let path = item.remote.map { Array($0.location.utf8) } ?? item.path.bytes
    let name = item.name.bytes
    var cut = path.lastIndex(of: UInt8(ascii: "/")).map { $0 + 1 } ?? 0
    // A name that ends otherwise than its path shares nothing.
    if !name.hasSuffix(path[cut...]) { cut = path.count }
    let length = path.count - cut
    let number = folderNumber(
      item, path: path[..<cut], name: name[..<(name.count - length)])
    starts.append(lastNames.count)
    lastNames += path[cut...]
    places.append(number)
    if item.remote != nil, remoteKinds.isEmpty { remoteKinds = [UInt8](repeating: 0, count: position) }
    if item.remote != nil || !remoteKinds.isEmpty { remoteKinds.append(item.remote?.kind.rawValue ?? 0) }
    let version = item.remote?.version
    if version != nil, remoteVersions.isEmpty { remoteVersions = [FileStamp?](repeating: nil, count: position) }
    if version != nil || !remoteVersions.isEmpty { remoteVersions.append(version) }
    if item.line != nil, lines.isEmpty { lines = [UInt32](repeating: 0, count: position) }
    if item.line != nil || !lines.isEmpty { lines.append(UInt32(clamping: item.line ?? 0)) }
    if item.index != position, numbers.isEmpty { numbers = Array(0..<position) }
    if item.index != position || !numbers.isEmpty { numbers.append(item.index) }
    if !item.columns.isEmpty, columnStarts.isEmpty { columnStarts = [Int](repeating: -1, count: position) }
    if !item.columns.isEmpty || !columnStarts.isEmpty {
      columnStarts.append(item.columns.isEmpty ? -1 : columnBytes.count)
      put(item.columns)
    }
  }

  /// Lets go of what only adding needs.
  mutating func finish() { folderNumbers = [:] }

  private mutating func folderNumber(
    _ item: InputItem, path: ArraySlice<UInt8>, name: ArraySlice<UInt8>
  ) -> UInt32 {
    // Those of one folder most often come together.
    if let place = places.last {
      let last = folders[Int(place)]
      if last.declaration == item.declaration, last.path[...] == path, last.name[...] == name,
        last.relativeDirectory == item.relativeDirectory
      {
        return place
      }
    }
    let folder = Folder(
      path: Array(path), name: Array(name), relativeDirectory: item.relativeDirectory, declaration: item.declaration)
    if let known = folderNumbers[folder] { return known }
    let number = UInt32(folders.count)
    folders.append(folder)
    folderNumbers[folder] = number
    return number
  }

  // MARK: Columns

  private mutating func put(_ columns: [String: String]) {
    guard !columns.isEmpty else { return }
    let names = columns.keys.sorted()
    let set: Int
    if let known = columnNames.lastIndex(of: names) {
      set = known
    } else {
      set = columnNames.count
      columnNames.append(names)
    }
    put(set)
    for name in names {
      let value = (columns[name] ?? "").utf8
      put(value.count)
      columnBytes += value
    }
  }

  /// Seven bits a byte, the lowest first; the top bit says that more follow.
  private mutating func put(_ number: Int) {
    var rest = UInt(bitPattern: number)
    while rest > 0x7f {
      columnBytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    columnBytes.append(UInt8(rest))
  }

  private func columns(_ position: Int) -> [String: String] {
    guard !columnStarts.isEmpty, columnStarts[position] >= 0 else { return [:] }
    var place = columnStarts[position]
    func number() -> Int {
      var value: UInt = 0
      var shift: UInt = 0
      while true {
        let byte = columnBytes[place]
        place += 1
        value |= UInt(byte & 0x7f) << shift
        if byte < 0x80 { return Int(bitPattern: value) }
        shift += 7
      }
    }
    var columns: [String: String] = [:]
    for name in columnNames[number()] {
      let count = number()
      columns[name] = String(decoding: columnBytes[place..<place + count], as: UTF8.self)
      place += count
    }
    return columns
  }
}

extension [UInt8] {
  fileprivate func hasSuffix(_ end: ArraySlice<UInt8>) -> Bool {
    count >= end.count && self[(count - end.count)...] == end
  }
}
