import Engine
import Glibc
import Imaging
import Inference
import JobSyntax
import PipelineKit

/// `pipeline doctor`: what this machine has and lacks.
enum DoctorCommand {
  static let command = Command(
    name: "doctor", summary: "shows what this machine has and lacks",
    notes: [
      "Formats are tried, not only looked up: a small picture is written and read again. The runtime and the model for "
        + "local segmentation are loaded.",
      "Exit codes: 0 jobs with local segmentation can run, 2 wrong command line, 4 something they need is missing.",
    ],
    options: [JobOptions.format], run: run)

  private struct Check {
    enum State: String {
      case ok, lack
      /// Worth knowing; nothing fails without it.
      case note
    }
    var name: String
    var state: State
    var detail: String
    /// The command or step that mends it.
    var remedy: String?

    var json: JSONText {
      .object([
        ("name", .string(name)), ("state", .string(state.rawValue)), ("detail", .string(detail)),
        ("remedy", remedy.map { .string($0) } ?? nil),
      ])
    }
  }

  @Sendable private static func run(_ arguments: ParsedArguments, _ invocation: Invocation) throws(UsageError) -> Int32
  {
    let home = PipelineHome.current
    let checks = machine() + pictures() + inference(home) + places(home)
    let isFine = !checks.contains { $0.state == .lack }
    if arguments[JobOptions.format] == .json {
      invocation.output.print(
        JSONText.object([
          ("version", .string(ProgramVersion.text)), ("canRun", .bool(isFine)), ("checks", .array(checks.map(\.json))),
        ]).rendered(pretty: true))
    } else {
      let names = TextTable.rows(checks.map { [$0.state.rawValue, $0.name, ""] })
      for (check, head) in zip(checks, names) {
        invocation.output.print(head + Wording.oneLine(check.detail))
        if let remedy = check.remedy {
          invocation.output.print(String(repeating: " ", count: head.count) + "try: " + Wording.oneLine(remedy))
        }
      }
    }
    return (isFine ? ExitCode.done : .cannotStart).rawValue
  }

  private static func machine() -> [Check] {
    let limits = MachineLimits.read()
    func number(_ count: Double) -> String {
      count == count.rounded() ? "\(Int(count))" : "\((count * 100).rounded() / 100)"
    }
    let processors = limits.processors.map { "\(number($0.count)) by \($0.source)" }
    let memory = limits.memory.map { "\(Wording.bytes($0.bytes)) by \($0.source)" }
    return [
      Check(name: "pipeline", state: .ok, detail: ProgramVersion.text),
      Check(
        name: "processors", state: .ok, detail: "\(limits.processorCount): " + processors.joined(separator: ", ")),
      Check(
        name: "memory", state: .ok,
        detail: "\(Wording.bytes(limits.memoryBytes)): " + memory.joined(separator: ", ")),
    ]
  }

  // MARK: Pictures

  /// Without the others some jobs cannot run; without these hardly any can.
  private static let needed: [PictureFormat] = [.jpeg, .png, .webp]

  private static func pictures() -> [Check] {
    do throws(ImagingError) {
      try Libvips.start()
    } catch {
      return [
        Check(
          name: "libvips", state: .lack, detail: error.message, remedy: error.hint ?? "apt-get install libvips42")
      ]
    }
    var checks = [Check(name: "libvips", state: .ok, detail: Libvips.version)]
    for format in PictureFormat.allCases {
      // BMP and ICO need no library.
      let reads = format.loader.isEmpty || Libvips.supports(format.loader)
      var detail = reads ? "read" : "cannot be read"
      var isFine = reads
      if format.canEncode {
        do throws(ImagingError) {
          try roundTrip(format)
          detail += ", write"
        } catch {
          isFine = false
          detail += ", cannot be written: \(error.message)" + (error.detail.isEmpty ? "" : " (\(error.detail))")
        }
      }
      checks.append(
        Check(
          name: format.displayName, state: isFine ? .ok : needed.contains(format) ? .lack : .note, detail: detail,
          remedy: isFine ? nil : "apt-get install --reinstall libvips42"))
    }
    return checks
  }

  private static func roundTrip(_ format: PictureFormat) throws(ImagingError) {
    let options: EncodeOptions
    switch format {
    case .jpeg: options = .jpeg(.init())
    case .png: options = .png(.init())
    case .webp: options = .webp(.init())
    case .avif: options = .avif(.init())
    case .jxl: options = .jxl(.init())
    case .tiff: options = .tiff(.init())
    case .gif: options = .gif(.init())
    case .heic, .jp2, .bmp, .ico, .svg, .pdf: return
    }
    let side = 16
    let image = try Image(
      width: side, height: side, bands: 3, bytes: (0..<side * side * 3).map { UInt8($0 % 256) })
    let read = try EncodedPicture(bytes: try image.encoded(options)).decode().materialised()
    guard read.width == side, read.height == side else {
      throw ImagingError(.encoder, "a \(format.displayName) picture came back in another size")
    }
  }

  // MARK: Inference

  private static func inference(_ home: PipelineHome) -> [Check] {
    var checks: [Check] = []
    var hasRuntime = false
    do throws(InferenceError) {
      let path = try home.locateRuntime()
      hasRuntime = true
      checks.append(Check(name: "OpenVINO", state: .ok, detail: path))
    } catch {
      checks.append(Check(name: "OpenVINO", state: .lack, detail: error.message, remedy: error.hint))
    }
    // The catalogue is long, and of most models there is nothing to say but that they are not here.
    let statuses = ModelCatalogue.status(verify: true, home: home)
    for status in statuses where status.state != .missing || status.recipe.name == ModelCatalogue.defaultName {
      let name = status.recipe.name
      // Jobs name the others only by choice.
      let isNeeded = name == ModelCatalogue.defaultName
      var check = Check(name: name, state: .ok, detail: "")
      switch status.state {
      case .missing:
        check.state = isNeeded ? .lack : .note
        check.detail = "not installed"
        if isNeeded {
          check.remedy = "make demo, or pipeline models pull \(name)"
        }
      case .present, .unverified: check.detail = "unverified: there is no published checksum; \(status.path ?? "")"
      case .verified: check.detail = "verified, \(status.path ?? "")"
      case .wrong(let error):
        check.state = isNeeded ? .lack : .note
        check.detail = error.message
        check.remedy = error.hint
      }
      if check.state == .ok, hasRuntime, isNeeded {
        do throws(InferenceError) {
          let model = try Model(recipe: status.recipe, precision: .fast, requests: 1, threads: 1, home: home)
          if let place = checks.firstIndex(where: { $0.name == "OpenVINO" }) {
            checks[place].detail = model.runtimeVersion + ", " + checks[place].detail
          }
          check.detail +=
            model.precisionUsed == "f32" ? "; f32 only on this processor" : "; f32 and \(model.precisionUsed)"
        } catch {
          check.state = .lack
          check.detail = error.message
          check.remedy = error.hint
        }
      }
      checks.append(check)
    }
    return checks
  }

  // MARK: Places

  private static func places(_ home: PipelineHome) -> [Check] {
    var checks = [
      Check(name: "home", state: .ok, detail: home.root + (getenv("PIPELINE_HOME") == nil ? "" : " (PIPELINE_HOME)"))
    ]
    guard let current = PathBytes.currentFolder else {
      checks.append(Check(name: "folder", state: .note, detail: "the current folder does not exist any more"))
      return checks
    }
    var space = statvfs()
    let isWritable = current.withCString { access($0, W_OK | X_OK) } == 0
    var detail = current.printable + (isWritable ? ", writable" : ", not writable")
    if current.withCString({ statvfs($0, &space) }) == 0 {
      detail +=
        ", \(Wording.bytes(Int(clamping: UInt64(space.f_bavail).multipliedReportingOverflow(by: UInt64(space.f_frsize)).partialValue))) free"
    }
    checks.append(Check(name: "folder", state: isWritable ? .ok : .note, detail: detail))
    checks.append(state(StateFolder.locate(current.joining(StatePlace.defaultName))))
    return checks
  }

  /// The state folder that jobs in the current folder have.
  private static func state(_ folder: StateFolder) -> Check {
    let (fileSystem, isOnNetwork) = folder.fileSystem
    let isThere = folder.path.withCString { access($0, F_OK) } == 0
    let detail =
      folder.path.printable + (isThere ? "" : ", not made yet") + "; \(fileSystem), "
      + (isOnNetwork
        ? "which machines may share: the ledger has a rollback journal and locks by fcntl"
        : "local: the ledger has a write-ahead log")
    return Check(
      name: "state", state: isOnNetwork ? .note : .ok, detail: detail,
      remedy: isOnNetwork ? "--state DIR with a folder on a local disk, which is faster" : nil)
  }
}
