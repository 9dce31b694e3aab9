import CSystem
import Glibc
import PipelineKit

/// Where a job keeps what it knows from one run to the next: the ledger, its lock, and results worth keeping.
public struct StateFolder: Sendable, Hashable {
  /// The state folder, which shards share; absolute.
  public let path: PathBytes
  /// Where the ledger and its lock are: the same, or `shard-I-of-N` below it.
  public let ledgerFolder: PathBytes

  /// The folder for a path; touches nothing.
  ///
  /// - Parameters:
  ///   - path: absolute, or relative to the current folder.
  ///   - shard: from 1 on, and how many there are.
  public static func locate(_ path: PathBytes, shard: (index: Int, count: Int)? = nil) -> StateFolder {
    let path = (PathBytes.currentFolder ?? "/").joining(path).normalised
    let ledgerFolder = shard.map { path.joining("shard-\($0.index)-of-\($0.count)") } ?? path
    return StateFolder(path: path, ledgerFolder: ledgerFolder)
  }

  /// The database's file.
  public var ledgerFile: PathBytes { ledgerFolder.joining("ledger.db") }
  public var lockFile: PathBytes { ledgerFolder.joining("lock") }

  /// The database's file with those SQLite keeps beside it.
  var ledgerFiles: [PathBytes] {
    ["-wal", "-shm", "-journal", ""].map { PathBytes(bytes: ledgerFile.bytes + Array($0.utf8)) }
  }

  /// Makes the folder where it is missing, and those above it; only its owner may look into it. Git is told to leave it
  /// alone.
  ///
  /// - Throws: `state-folder` of class environment: something else has the name, it cannot be written to, or everybody
  ///   may write to it.
  public func make() throws(StageError) {
    try Self.make(path, isOurs: true)
    if ledgerFolder != path { try Self.make(ledgerFolder, isOurs: false) }
    // Also where they were there: a run that was killed may have made them and not come to this.
    for folder in Set([path.parent, path, ledgerFolder]) { try? AtomicFile.flush(folder: folder) }
  }

  private static func make(_ path: PathBytes, isOurs: Bool) throws(StageError) {
    var status = stat()
    if path.withCString({ stat($0, &status) }) != 0 {
      guard errno == ENOENT else { throw failure(path, String(cString: strerror(errno))) }
      do throws(StageError) {
        try AtomicFile.makeFolders(path.parent)
      } catch {
        throw failure(path, error.message, cause: error.cause)
      }
      if path.withCString({ mkdir($0, 0o700) }) == 0 {
        // The umask may have taken even the owner's permissions.
        _ = path.withCString { chmod($0, 0o700) }
        if isOurs { writeIgnoreFile(in: path) }
      } else if errno != EEXIST {
        throw failure(path, String(cString: strerror(errno)))
      }
      guard path.withCString({ stat($0, &status) }) == 0 else { throw failure(path, String(cString: strerror(errno))) }
    }
    guard status.st_mode & S_IFMT == S_IFDIR else { throw failure(path, "it is not a folder") }
    guard status.st_mode & S_IWOTH == 0 else {
      throw failure(
        path, "everybody may write to it", hint: "chmod o-w \(path.printable), or choose another with --state DIR")
    }
    // The answer of access counts read-only file systems in.
    guard path.withCString({ access($0, R_OK | W_OK | X_OK) }) == 0 else {
      throw failure(path, errno == EROFS ? "the file system is read-only" : "it cannot be written to")
    }
  }

  private static func writeIgnoreFile(in folder: PathBytes) {
    let file = folder.joining(".gitignore").withCString { open($0, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600) }
    guard file >= 0 else { return }
    _ = write(file, "*\n", 2)
    close(file)
  }

  private static func failure(
    _ path: PathBytes, _ reason: String, cause: String? = nil, hint: String = "choose another folder with --state DIR"
  ) -> StageError {
    StageError(
      "state-folder", "the state folder \(path.printable) cannot be used: \(reason)", kind: .environment, cause: cause,
      hint: hint)
  }

  // MARK: What is there

  /// The folder's own ledger and those of its shards, as far as they are there: without shards first, then by their
  /// number.
  public static func ledgers(in path: PathBytes) -> [StateFolder] {
    let whole = locate(path)
    var shards: [(index: Int, count: Int)] = []
    for name in whole.path.entryNames.compactMap(\.string) {
      let parts = name.split(separator: "-", omittingEmptySubsequences: false)
      guard parts.count == 4, parts[0] == "shard", parts[2] == "of", let index = Int(parts[1]),
        let count = Int(parts[3]), name == "shard-\(index)-of-\(count)"
      else { continue }
      shards.append((index, count))
    }
    shards.sort { ($0.count, $0.index) < ($1.count, $1.index) }
    return ([whole] + shards.map { locate(path, shard: $0) }).filter { folder in
      folder.ledgerFile.withCString { access($0, F_OK) } == 0
    }
  }

  /// Bytes of the database and of the files SQLite keeps beside it.
  public var ledgerBytes: Int {
    ledgerFiles.reduce(0) { sum, file in
      var status = stat()
      return sum + (file.withCString { lstat($0, &status) } == 0 ? Int(status.st_size) : 0)
    }
  }

  /// Moves the ledger, whatever its state, into a folder of its own beside it, so that the next run starts with an
  /// empty one. Nothing is deleted. The caller holds the lock.
  ///
  /// - Parameter time: seconds since 1970, for the folder's name.
  /// - Returns: that folder.
  /// - Throws: `state-write` of class environment.
  public func setAside(at time: Double) throws(StageError) -> PathBytes {
    let place = ledgerFolder.joining("set-aside-" + RunClock.identifier(of: time))
    func failure(_ what: String) -> StageError {
      StageError("state-write", what, kind: .environment, cause: String(cString: strerror(errno)))
    }
    guard place.withCString({ mkdir($0, 0o700) }) == 0 else { throw failure("cannot make \(place.printable)") }
    // The database last: without it what is beside it would be taken for a new one's.
    for file in ledgerFiles {
      let target = place.joining(file.lastComponent)
      guard file.withCString({ from in target.withCString { rename(from, $0) } }) == 0 || errno == ENOENT else {
        throw failure("cannot move \(file.printable) to \(place.printable)")
      }
    }
    try? AtomicFile.flush(folder: place)
    try? AtomicFile.flush(folder: ledgerFolder)
    return place
  }

  // MARK: File systems

  /// Whether other machines may have the folder open too, as far as its file system tells. One that is missing is
  /// where the nearest folder above it is.
  public var isOnNetwork: Bool { fileSystem.isNetwork }

  /// The name of the file system the folder is on, and whether it is one of those that machines share. What a program
  /// serves (FUSE) counts as shared: most of it is.
  public var fileSystem: (name: String, isNetwork: Bool) {
    var folder = ledgerFolder
    var number: UInt32 = 0
    while true {
      let code = folder.withCString { csystem_file_system($0, &number) }
      if code == 0 { return Self.fileSystem(number) }
      let parent = folder.parent
      guard code == ENOENT, parent != folder else { return ("unknown", false) }
      folder = parent
    }
  }

  /// By the numbers of Linux' `statfs` and of the file systems' own headers.
  static func fileSystem(_ number: UInt32) -> (name: String, isNetwork: Bool) {
    switch number {
    case 0x6969: ("nfs", true)
    case 0xFF53_4D42: ("cifs", true)
    case 0xFE53_4D42: ("smb2", true)
    case 0x517B: ("smb", true)
    case 0x6573_5546: ("fuse", true)
    case 0x0BD0_0BD0: ("lustre", true)
    case 0x4750_4653: ("gpfs", true)
    case 0x1983_0326: ("beegfs", true)
    case 0x00C3_6400: ("ceph", true)
    case 0x5346_414F, 0x6B41_4653: ("afs", true)
    case 0x0102_1997: ("9p", true)
    case 0x013661: ("gluster", true)
    case 0x7375_7245: ("coda", true)
    case 0x564C: ("ncp", true)
    case 0x0116_1970: ("gfs2", true)
    case 0x7461_636F: ("ocfs2", true)
    case 0xAAD7_AAEA: ("panfs", true)
    case 0x786F_4256: ("vboxsf", true)
    case 0xEF53: ("ext4", false)
    case 0x5846_5342: ("xfs", false)
    case 0x9123_683E: ("btrfs", false)
    case 0x0102_1994: ("tmpfs", false)
    case 0x794C_7630: ("overlay", false)
    case 0x2FC1_2FC1: ("zfs", false)
    case 0xF2F5_2010: ("f2fs", false)
    case 0x4D44: ("vfat", false)
    case 0x2011_BAB0: ("exfat", false)
    default: ("0x" + String(number, radix: 16), false)
    }
  }
}
