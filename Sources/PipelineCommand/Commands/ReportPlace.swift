import Engine
import Glibc
import PipelineKit

/// Makes sure, before any work starts, that a report can be written where it is wanted.
enum ReportPlace {
  /// - Parameter kind: what is to be written there.
  /// - Returns: the absolute path.
  /// - Throws: `report-place` of class environment: the folder is missing or not writable, or something is there that
  ///   must not be replaced.
  static func check(
    _ text: String, jobFile: String, job: Job, plan: RunPlan, tag: String, kind: ResultKind = .report
  ) throws(StageError) -> PathBytes {
    let path = try absolute(text, kind)
    var status = stat()
    if path.withCString({ stat($0, &status) }) == 0 {
      guard status.st_mode & S_IFMT == S_IFREG, text.utf8.last != UInt8(ascii: "/") else {
        throw kind.failure(text, status.st_mode & S_IFMT == S_IFDIR ? "it is a folder" : "it is not a regular file")
      }
      var other = stat()
      if PathBytes(jobFile).withCString({ stat($0, &other) }) == 0, isSame(status, other) {
        throw kind.failure(text, "it is the job file")
      }
      for (file, use) in filesRead(by: job) {
        if file.withCString({ stat($0, &other) }) == 0, isSame(status, other) {
          throw kind.failure(text, "it is \(use)")
        }
      }
      let name = path.lastComponent
      for input in plan.inputs where input.path.lastComponent == name {
        if input.path.withCString({ stat($0, &other) }) == 0, isSame(status, other) {
          throw kind.failure(text, "it is one of the inputs")
        }
      }
      // Inputs of other shards are known by their hashes only.
      var resolver = FolderResolver()
      let places = resolver.places(of: path)
      if places.contains(where: { plan.protected.refusal(of: path, resolved: $0, mayReplaceInputs: false) != nil }) {
        throw kind.failure(text, "it is one of the inputs")
      }
    }
    try kind.check(path, named: text)
    // Trying is the only test that also knows read-only mounts and full quotas.
    let folder = path.parent
    let probe = folder.joining(".pipeline-\(tag)-report.tmp")
    let descriptor = probe.withCString { open($0, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600) }
    guard descriptor >= 0 else {
      throw kind.failure(
        text, "the folder \(folder.printable) cannot be written to: \(String(cString: strerror(errno)))")
    }
    close(descriptor)
    _ = probe.withCString { unlink($0) }
    return path
  }

  /// A path as it stands on the command line, from the root.
  ///
  /// - Throws: `report-place` of class environment where the current folder is gone.
  static func absolute(_ text: String, _ kind: ResultKind = .report) throws(StageError) -> PathBytes {
    let written = PathBytes(text)
    guard let current = written.isAbsolute ? PathBytes("/") : PathBytes.currentFolder else {
      throw kind.failure(text, "the current folder does not exist any more")
    }
    return current.joining(written)
  }

  /// The files besides inputs that a run of the job depends on.
  private static func filesRead(by job: Job) -> [(PathBytes, String)] {
    var files: [(PathBytes, String)] = []
    switch job.input {
    case .list(let path, _) where path != "-":
      files.append((job.inputFolder.joining(PathBytes(path)), "the list of inputs"))
    case .manifest(let path, _, _, _) where path != "-":
      files.append((job.inputFolder.joining(PathBytes(path)), "the manifest of inputs"))
    default: break
    }
    for stage in job.stages {
      for path in stage.plan.helperFiles {
        files.append((job.baseFolder.joining(PathBytes(path)), "a file that stage \"\(stage.label)\" reads"))
      }
    }
    return files
  }

  private static func isSame(_ a: stat, _ b: stat) -> Bool { a.st_dev == b.st_dev && a.st_ino == b.st_ino }
}
