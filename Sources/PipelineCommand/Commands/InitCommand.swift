import Engine
import Glibc
import JobSyntax
import PipelineKit

/// A job to start from, which is part of the program: a file of `Templates`, commented, and the same that tests run.
struct JobTemplate: Sendable {
  let name: String
  let text: [UInt8]

  static let all: [JobTemplate] = [
    JobTemplate(name: "cutout", text: PackageResources.cutout_json),
    JobTemplate(name: "web", text: PackageResources.web_json),
    JobTemplate(name: "marketplace", text: PackageResources.marketplace_json),
    JobTemplate(name: "portrait", text: PackageResources.portrait_json),
    JobTemplate(name: "removebg-s3", text: PackageResources.removebg_s3_json),
    JobTemplate(name: "imgur", text: PackageResources.imgur_json),
  ]

  /// The file's first comment, without its full stop.
  var summary: String {
    let lines = String(decoding: text, as: UTF8.self).split(separator: "\n")
    let comment = lines.lazy.map { $0.drop { $0 == " " } }.first { $0.hasPrefix("//") } ?? ""
    let text = comment.dropFirst(2).drop { $0 == " " }
    return String(text.hasSuffix(".") ? text.dropLast() : text)
  }
}

/// `pipeline init [TEMPLATE]`: a job to start from.
enum InitCommand {
  static let to = Option<String>.text(
    "to", "FILE", help: "the job file to write (default job.json); - writes it to standard output")

  static let command = Command(
    name: "init", summary: "writes a job file to start from; lists the templates when none is named",
    notes: [
      "Beside the job file goes job.schema.json, by which editors complete and explain what stands in it. Nothing that "
        + "is there is overwritten.",
      "Exit codes: 0 written, 2 wrong command line, 4 the file is there already, or cannot be written.",
    ],
    operand: Operand(name: "TEMPLATE", help: "which job: " + names, count: 0...1), options: [to],
    examples: ["pipeline init", "pipeline init cutout", "pipeline init web --to site/job.json"],
    run: run)

  private static var names: String {
    let names = JobTemplate.all.map(\.name)
    return names.dropLast().joined(separator: ", ") + " or " + (names.last ?? "")
  }
  private static let defaultFile = "job.json"
  private static let schemaFile = "job.schema.json"

  @Sendable private static func run(_ arguments: ParsedArguments, _ invocation: Invocation) throws(UsageError) -> Int32
  {
    guard let name = arguments.operands.first else {
      guard arguments[to] == nil else {
        throw UsageError("--to needs a template: pipeline init TEMPLATE --to FILE", hint: "one of \(names)")
      }
      for line in TextTable.definitions(JobTemplate.all.map { ($0.name, $0.summary) }) {
        invocation.output.print(String(line.dropFirst(2)))
      }
      invocation.output.flush()
      StandardStreams.writeError("\nWrite one with: pipeline init TEMPLATE, to job.json, or --to FILE.\n")
      return ExitCode.done.rawValue
    }
    guard let template = JobTemplate.all.first(where: { $0.name == name }) else {
      let near = NearestName.suggestion(for: name, among: JobTemplate.all.map(\.name))
      throw UsageError(
        "unknown template \"\(name)\"", hint: near.map { "did you mean \"\($0)\"?" } ?? "one of \(names)")
    }
    let file = arguments[to] ?? defaultFile
    if file == "-" {
      invocation.output.print(String(decoding: template.text.dropLast(), as: UTF8.self))
      return ExitCode.done.rawValue
    }
    do throws(StageError) {
      try write(template, to: file, invocation)
      return ExitCode.done.rawValue
    } catch {
      StandardStreams.complain(error.description)
      return ExitCode.cannotStart.rawValue
    }
  }

  private static func write(_ template: JobTemplate, to file: String, _ invocation: Invocation) throws(StageError) {
    guard let current = PathBytes.currentFolder else {
      throw StageError("init", "the current folder does not exist any more", kind: .environment)
    }
    let path = current.joining(PathBytes(file)).normalised
    var status = stat()
    if path.withCString({ stat($0, &status) }) == 0, status.st_mode & S_IFMT == S_IFDIR {
      throw StageError(
        "init", "\(PathBytes(file).printable) is a folder", kind: .environment,
        hint: "name a file, such as --to \(PathBytes(file).joining(defaultFile).printable)")
    }
    // Looked at first, so that a name that is taken leaves nothing else behind.
    guard path.withCString({ lstat($0, &status) }) != 0 else { throw taken(file) }
    try AtomicFile.makeFolders(path.parent)
    guard try template.text.writeNew(to: path) else { throw taken(file) }
    var said = ["wrote \(PathBytes(file).printable): \(template.summary)"]

    let schema = Array((JobSpec.schema(invocation.registry).rendered(pretty: true) + "\n").utf8)
    let schemaPath = path.parent.joining(schemaFile)
    let schemaName = file.contains("/") ? PathBytes(file).parent.joining(schemaFile).printable : schemaFile
    if try schema.writeNew(to: schemaPath) {
      said.append("wrote \(schemaName), by which editors complete and explain what stands in it")
    } else {
      let known = schemaPath.withCString { FileText.read($0, most: schema.count + 1) }
      if known != schema {
        said.append("\(schemaName) was there and stays as it is; refresh it with: pipeline schema > \(schemaName)")
      }
    }
    StandardStreams.writeError(
      (said + [""] + next(template, file: file)).joined(separator: "\n") + "\n")
  }

  private static func taken(_ file: String) -> StageError {
    StageError(
      "init", "\(PathBytes(file).printable) is there already, and stays as it is", kind: .environment,
      hint: "choose another name with --to FILE")
  }

  /// What is still to be done before the job runs.
  private static func next(_ template: JobTemplate, file: String) -> [String] {
    let needs = JobNeeds(text: template.text)
    let name = shellWord(file)
    var lines = ["Next:", "  put pictures into \(folderOfInputs(file)), or change \"input\" in the file"]
    for secret in needs.secrets {
      let isSet = getenv(secret).map { $0.pointee != 0 } ?? false
      lines.append(isSet ? "  \(secret) is set" : "  export \(secret)=…")
    }
    if !needs.awsProfiles.isEmpty {
      lines.append("  export AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=…, or write a profile with: aws configure")
    }
    lines += [
      "  pipeline doctor \(name)     # what this machine lacks for it",
      "  pipeline plan \(name)       # what would be done; does nothing",
      "  pipeline run \(name)",
    ]
    return lines
  }

  private static func folderOfInputs(_ file: String) -> String {
    let parent = PathBytes(file).parent
    let isHere = !file.contains("/")
    return (isHere ? "photos" : parent.joining("photos").printable) + "/"
  }

  /// A word as a shell reads it back.
  static func shellWord(_ text: String) -> String {
    let plain = text.unicodeScalars.allSatisfy { scalar in
      scalar.properties.isAlphabetic || (scalar.value >= 0x30 && scalar.value <= 0x39)
        || "/._-+=:,@%".unicodeScalars.contains(scalar)
    }
    return plain && !text.isEmpty ? text : "'" + text.replacing("'", with: "'\\''") + "'"
  }
}

extension [UInt8] {
  /// Writes a file that must not be there yet; false where it is.
  fileprivate func writeNew(to path: PathBytes) throws(StageError) -> Bool {
    let result: Result<Bool, StageError> = withUnsafeBytes { bytes in
      do throws(StageError) {
        return .success(try AtomicFile.write(bytes, to: path, existing: .keep, tag: "init"))
      } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }
}

/// Small files that commands look into.
enum FileText {
  /// The bytes of a file, as far as `most`; nil where it cannot be read.
  static func read(_ path: UnsafePointer<CChar>, most: Int) -> [UInt8]? {
    // A pipe without a writer would hold up the open itself.
    let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var result: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 1 << 14)
    while result.count < most {
      let count = Glibc.read(descriptor, &piece, Swift.min(piece.count, most - result.count))
      guard count >= 0 else { return nil }
      if count == 0 { break }
      result += piece[..<count]
    }
    return result
  }

  static func read(_ path: String, most: Int = 1 << 20) -> [UInt8]? { path.withCString { read($0, most: most) } }
}
