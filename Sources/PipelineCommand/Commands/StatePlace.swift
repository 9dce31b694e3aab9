import Engine
import Glibc
import Imaging
import JobSyntax
import PipelineKit

/// Which state folder a command is about.
enum StatePlace {
  /// Beside the job file, where the job names no other.
  static let defaultName = ".pipeline"

  static let option = Option<String>.text(
    "state", "DIR", help: "the state folder, instead of the job's; relative to the current folder")

  /// The folder of `--state`, else that of a job file, else the one in the current folder.
  ///
  /// - Throws: `state-place` of class environment: the job file cannot be read, or does not say it plainly.
  static func locate(_ state: String?, job: String?) throws(StageError) -> PathBytes {
    guard let current = PathBytes.currentFolder else {
      throw failure("the current folder does not exist any more")
    }
    if let state { return current.joining(PathBytes(state)) }
    guard let job else { return current.joining(defaultName) }
    let file = current.joining(PathBytes(job))
    var status = stat()
    guard file.withCString({ stat($0, &status) }) == 0 else {
      throw failure("cannot read \(PathBytes(job).printable): \(String(cString: strerror(errno)))")
    }
    guard let text = try? EncodedPicture.read(path: file.bytes, maxBytes: 256 << 20).array else {
      throw failure(
        "\(PathBytes(job).printable) is not a job file", hint: "name a job file, or a state folder with --state DIR")
    }
    // A job with mistakes has a state folder too.
    let written = StrictJSON.parse(SourceFile(name: job, text: text)).root?["state"]?.stringValue
    if let written, written.contains("${") {
      throw failure("\(PathBytes(job).printable) names its state folder by a variable", hint: "use --state DIR")
    }
    return file.parent.joining(PathBytes(written ?? defaultName))
  }

  private static func failure(_ message: String, hint: String? = nil) -> StageError {
    StageError("state-place", message, kind: .environment, hint: hint)
  }

  /// Takes the lock of a ledger for a command; nil where another holds it, which is said.
  static func lock(_ folder: StateFolder, command: String) throws(StageError) -> StateLock? {
    switch try StateLock.acquire(folder, run: command, job: "") {
    case .acquired(let lock): return lock
    case .held(let holder):
      StandardStreams.complain(
        "\(folder.ledgerFolder.printable) is in use" + (holder.map { " by \($0.description)" } ?? ""))
      return nil
    }
  }
}
