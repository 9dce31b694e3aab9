import Glibc

/// System calls that change files, as a program made them: what `strace -f -y -xx` wrote, read back.
///
/// Only what succeeded, and only what lies below one folder. Calls stand in the order they ended in; of two that
/// overlapped, which comes first is not known, and this order is as good as the other.
public struct CallTrace: Sendable {
  public struct Call: Sendable {
    public var change: Change
    /// How many of the calls before this one in the list had ended when it began.
    public var began: Int
  }

  /// Paths are relative to the folder; `""` is the folder itself.
  public enum Change: Sendable, Hashable {
    case open(String, descriptor: Int, mode: mode_t, creates: Bool, truncates: Bool, appends: Bool)
    /// - Parameter offset: nil for where the descriptor stands.
    case write(String, descriptor: Int, offset: Int?, bytes: [UInt8])
    case seek(String, descriptor: Int, to: Int)
    /// Another descriptor of the same opened file.
    case duplicate(String, descriptor: Int, as: Int)
    case resize(String, to: Int)
    case flush(String)
    case rename(String, to: String)
    case link(String, to: String)
    case remove(String)
    case makeFolder(String, mode: mode_t)
    case changeMode(String, mode: mode_t)

    /// The path that is changed; of a rename, the old one.
    public var path: String {
      switch self {
      case .open(let path, _, _, _, _, _), .write(let path, _, _, _), .seek(let path, _, _),
        .duplicate(let path, _, _), .resize(let path, _), .flush(let path), .rename(let path, _), .link(let path, _),
        .remove(let path), .makeFolder(let path, _),
        .changeMode(let path, _):
        path
      }
    }
  }

  public private(set) var calls: [Call] = []

  /// Arguments for strace before the program's own; it writes to `file`.
  public static func arguments(to file: String) -> [String] {
    let calls =
      "open,openat,creat,write,pwrite64,writev,pwritev,pwritev2,lseek,fsync,fdatasync,rename,renameat,renameat2,link,"
      + "linkat,unlink,unlinkat,rmdir,mkdir,mkdirat,ftruncate,truncate,fallocate,chmod,fchmod,fchmodat,copy_file_range,"
      + "sendfile,dup,dup2,dup3,fcntl"
    return ["-f", "-y", "-xx", "-s", "100000000", "--seccomp-bpf", "-o", file, "-e", "trace=" + calls, "--"]
  }

  /// strace, where it is installed and this system lets it look into programs.
  public static let program: String? = {
    let path = "/usr/bin/strace"
    guard access(path, X_OK) == 0 else { return nil }
    let result = RunProgram.run(["-f", "-o", "/dev/null", "/bin/true"], program: path)
    return result.exitCode == 0 ? path : nil
  }()

  /// What went wrong in reading a trace.
  public struct Unreadable: Error, CustomStringConvertible { public var description: String }

  /// - Parameters:
  ///   - folder: absolute.
  ///   - current: the folder the program was started in; absolute.
  public init(_ text: [UInt8], below folder: String, current: String) throws(Unreadable) {
    var reader = Reader(folder: Self.parts(folder), current: current)
    for line in text.split(separator: UInt8(ascii: "\n")) { try reader.read(line) }
    calls = reader.calls
  }

  public init(_ changes: [Change]) {
    calls = changes.enumerated().map { Call(change: $1, began: $0) }
  }

  fileprivate static func parts(_ path: String) -> [Substring] {
    var parts: [Substring] = []
    for part in path.split(separator: "/") {
      switch part {
      case ".": break
      case "..": _ = parts.popLast()
      default: parts.append(part)
      }
    }
    return parts
  }

  /// Works on bytes: contents make lines of many thousands.
  private struct Reader {
    typealias Bytes = ArraySlice<UInt8>

    let folder: [Substring]
    let current: String
    var calls: [Call] = []
    /// Of each thread: what it has begun, and how many calls had ended then.
    var open: [Bytes: (text: Bytes, began: Int)] = [:]

    mutating func read(_ line: Bytes) throws(Unreadable) {
      guard let space = line.firstIndex(of: UInt8(ascii: " ")) else { return }
      let thread = line[..<space]
      var text = line[space...].drop { $0 == UInt8(ascii: " ") }
      // Signals and ends of threads.
      guard !text.starts(with: "---".utf8), !text.starts(with: "+++".utf8) else { return }
      let unfinished = " <unfinished ...>".utf8
      if text.suffix(unfinished.count).elementsEqual(unfinished) {
        open[thread] = (text.dropLast(unfinished.count), calls.count)
        return
      }
      var began = calls.count
      if text.starts(with: "<... ".utf8) {
        guard let mark = text.firstIndex(of: UInt8(ascii: ">")), let beginning = open.removeValue(forKey: thread) else {
          return
        }
        text = beginning.text + text[(mark + 1)...]
        began = beginning.began
      }
      guard let change = try change(text) else { return }
      calls.append(Call(change: change, began: began))
    }

    private func change(_ text: Bytes) throws(Unreadable) -> Change? {
      guard let bracket = text.firstIndex(of: UInt8(ascii: "(")), let equals = text.lastIndex(of: UInt8(ascii: "=")),
        let close = text[..<equals].lastIndex(of: UInt8(ascii: ")")), bracket < close,
        let value = Int(Self.string(text[(equals + 2)...].prefix { $0 != 32 && $0 != UInt8(ascii: "<") })), value >= 0
      else { return nil }
      let name = Self.string(text[..<bracket])
      let arguments = text[(bracket + 1)..<close].split(separator: UInt8(ascii: ","), omittingEmptySubsequences: false)
        .map { $0.drop { $0 == 32 } }
      func argument(_ index: Int) throws(Unreadable) -> Bytes {
        guard index < arguments.count else {
          throw Unreadable(description: "too few arguments: \(Self.string(text.prefix(200)))")
        }
        return arguments[index]
      }
      func number(_ index: Int) throws(Unreadable) -> Int {
        let text = Self.string(try argument(index))
        guard let value = text.hasPrefix("0") ? Int(text, radix: 8) : Int(text) else {
          throw Unreadable(description: "no number: \(text)")
        }
        return value
      }
      func descriptor(_ index: Int) throws(Unreadable) -> Int {
        Int(Self.string(try argument(index).prefix { $0 != UInt8(ascii: "<") })) ?? -1
      }
      // The file of a descriptor; nil for one without a name.
      func file(_ index: Int) throws(Unreadable) -> String? { inside(Self.place(try argument(index))) }
      func named(_ index: Int, at folder: Int? = nil) throws(Unreadable) -> String? {
        let name = Self.string(try contents(index)[...])
        if name.hasPrefix("/") { return inside(name) }
        guard let folder, let place = Self.place(try argument(folder)) else { return inside(current + "/" + name) }
        return inside(place + "/" + name)
      }
      func contents(_ index: Int) throws(Unreadable) -> [UInt8] {
        let text = try argument(index)
        guard text.first == UInt8(ascii: "\""), text.last == UInt8(ascii: "\""), text.count >= 2 else {
          throw Unreadable(description: "no whole string: \(Self.string(text.prefix(200)))")
        }
        return Self.unescaped(text.dropFirst().dropLast())
      }

      switch name {
      case "open", "openat", "creat":
        let at = name == "openat" ? 1 : 0
        guard let path = try named(at, at: at == 1 ? 0 : nil) else { return nil }
        let flags =
          name == "creat"
          ? ["O_CREAT", "O_TRUNC"] : Set(Self.string(try argument(at + 1)).split(separator: "|").map(String.init))
        // Without a name, or nothing that can be written to.
        guard !flags.contains("O_TMPFILE"), !flags.contains("O_RDONLY") || flags.contains("O_CREAT") else { return nil }
        if !flags.isDisjoint(with: ["O_SYNC", "O_DSYNC", "O_DIRECT"]) {
          throw Unreadable(description: "\(path) is opened with \(flags), which is not modelled")
        }
        let creates = flags.contains("O_CREAT")
        return .open(
          path, descriptor: value, mode: creates ? mode_t(try number(arguments.count - 1)) : 0, creates: creates,
          truncates: flags.contains("O_TRUNC"), appends: flags.contains("O_APPEND"))
      case "write":
        guard let path = try file(0) else { return nil }
        return .write(
          path, descriptor: try descriptor(0), offset: nil, bytes: Array(try contents(1).prefix(value)))
      case "pwrite64":
        guard let path = try file(0) else { return nil }
        return .write(
          path, descriptor: try descriptor(0), offset: try number(3), bytes: Array(try contents(1).prefix(value)))
      case "lseek":
        guard let path = try file(0) else { return nil }
        return .seek(path, descriptor: try descriptor(0), to: value)
      case "dup", "dup2", "dup3", "fcntl":
        guard let path = try file(0) else { return nil }
        if name == "fcntl" {
          guard Self.string(try argument(1)).hasPrefix("F_DUPFD") else { return nil }
        }
        return .duplicate(path, descriptor: try descriptor(0), as: value)
      case "ftruncate":
        guard let path = try file(0) else { return nil }
        return .resize(path, to: try number(1))
      case "truncate":
        guard let path = try named(0) else { return nil }
        return .resize(path, to: try number(1))
      case "fsync", "fdatasync": return try file(0).map { .flush($0) }
      case "rename", "link": return try pair(try named(0), try named(1), name)
      case "renameat", "renameat2", "linkat": return try pair(try named(1, at: 0), try named(3, at: 2), name)
      case "unlink", "rmdir": return try named(0).map { .remove($0) }
      case "unlinkat": return try named(1, at: 0).map { .remove($0) }
      case "mkdir", "chmod", "mkdirat", "fchmodat":
        let at = name.hasSuffix("at") ? 1 : 0
        guard let path = try named(at, at: at == 1 ? 0 : nil) else { return nil }
        let mode = mode_t(try number(at + 1))
        return name.hasPrefix("mkdir") ? .makeFolder(path, mode: mode) : .changeMode(path, mode: mode)
      case "fchmod":
        guard let path = try file(0) else { return nil }
        return .changeMode(path, mode: mode_t(try number(1)))
      default:
        // Of another kind: the model would have to know what it does.
        for argument in arguments {
          if let path = inside(Self.place(argument)) {
            throw Unreadable(description: "\(name) on \(path) is not modelled")
          }
        }
        return nil
      }
    }

    private func pair(_ from: String?, _ to: String?, _ name: String) throws(Unreadable) -> Change? {
      if from == nil, to == nil { return nil }
      guard let from, let to else {
        throw Unreadable(description: "\(name) across the folder's border: \(from ?? to ?? "")")
      }
      return name.hasPrefix("link") ? .link(from, to: to) : .rename(from, to: to)
    }

    /// The path relative to the folder; nil outside.
    private func inside(_ path: String?) -> String? {
      guard let path, path.hasPrefix("/") else { return nil }
      let parts = CallTrace.parts(path)
      guard parts.starts(with: folder) else { return nil }
      return parts.dropFirst(folder.count).joined(separator: "/")
    }

    private static func string(_ bytes: Bytes) -> String { String(decoding: bytes, as: UTF8.self) }

    /// What `3<\x2f…>` names; nil for a file that has no name any more.
    private static func place(_ argument: Bytes) -> String? {
      guard let start = argument.firstIndex(of: UInt8(ascii: "<")), argument.last == UInt8(ascii: ">") else {
        return nil
      }
      return string(unescaped(argument[(start + 1)...].dropLast())[...])
    }

    /// `\x2f\x74` as bytes.
    private static func unescaped(_ text: Bytes) -> [UInt8] {
      func digit(_ character: UInt8) -> UInt8 {
        character >= UInt8(ascii: "a") ? character - UInt8(ascii: "a") + 10 : character &- UInt8(ascii: "0")
      }
      var bytes: [UInt8] = []
      bytes.reserveCapacity(text.count / 4)
      var index = text.startIndex
      while index < text.endIndex {
        if text[index] == UInt8(ascii: "\\"), index + 3 < text.endIndex {
          bytes.append(digit(text[index + 2]) << 4 | digit(text[index + 3]))
          index += 4
        } else {
          bytes.append(text[index])
          index += 1
        }
      }
      return bytes
    }
  }
}
