import CSystem
import Engine
import Glibc
import Imaging
import Inference
import JobSyntax
import PipelineKit
import Transport

/// `pipeline doctor`: what this machine has and lacks.
enum DoctorCommand {
  static let command = Command(
    name: "doctor", summary: "shows what this machine has and lacks",
    notes: [
      "Formats are tried, not only looked up: a small picture is written and read again. The runtime and the model for "
        + "local segmentation are loaded.",
      "With a job file it also looks at what that job asks for: credentials, which are named and never shown, models, "
        + "time zone, its state folder.",
      "Exit codes: 0 jobs with local segmentation, or the job, can run; 2 wrong command line; 4 something they need is "
        + "missing.",
    ],
    operand: Operand(name: "JOB", help: "a job file", count: 0...1), options: [JobOptions.format],
    examples: ["pipeline doctor", "pipeline doctor job.json --format json"], run: run)

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
    let file = arguments.operands.first
    let needs = file.flatMap { FileText.read($0, most: 256 << 20) }.map { JobNeeds(text: $0) }
    var checks = machine() + clock() + pictures()
    checks += inference(home, needing: file == nil ? [ModelCatalogue.defaultName] : needs?.models ?? [])
    checks += places(home) + credentials(needs, invocation.registry)
    if let file { checks += job(file, invocation.registry) }
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
      controlGroup(), openFiles(),
    ]
  }

  /// The group this process is in, as the kernel names it; what it limits stands under processors and memory.
  private static func controlGroup() -> Check {
    let lines = (FileText.read("/proc/self/cgroup").map { String(decoding: $0, as: UTF8.self) } ?? "").split(
      separator: "\n")
    // `0::/path` is version 2; of version 1 there is a line for each controller.
    if let line = lines.first(where: { $0.hasPrefix("0::") }) {
      return Check(name: "cgroup", state: .ok, detail: "version 2, \(line.dropFirst(3))")
    }
    let memory = lines.first {
      $0.split(separator: ":").dropFirst().first?.split(separator: ",").contains("memory") ?? false
    }
    guard let path = memory?.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false).last else {
      return Check(name: "cgroup", state: .ok, detail: "none, so no limits by one")
    }
    return Check(name: "cgroup", state: .ok, detail: "version 1, \(path)")
  }

  /// A run has some files open for each worker, and a connection for each request.
  private static let fewFiles = 256

  private static func openFiles() -> Check {
    var limit = rlimit()
    guard getrlimit(__rlimit_resource_t(UInt32(RLIMIT_NOFILE.rawValue)), &limit) == 0 else {
      return Check(name: "open files", state: .note, detail: "the limit is not known")
    }
    let count = limit.rlim_cur == rlim_t.max ? "no limit" : "at most \(limit.rlim_cur) at once"
    let isFew = limit.rlim_cur < fewFiles
    return Check(
      name: "open files", state: isFew ? .note : .ok, detail: count,
      remedy: isFew ? "ulimit -n 1024, or LimitNOFILE= in the service" : nil)
  }

  // MARK: Clock

  private static let oldestPlausibleYear = 2026

  private static func clock() -> [Check] {
    let now = RunClock.now()
    let text = RunClock.timestamp(of: now)
    var time = Check(name: "clock", state: .ok, detail: text)
    if Int(text.prefix(4)) ?? 0 < oldestPlausibleYear {
      time.state = .note
      time.detail += ", which is before this version was made: certificates and signatures will be refused"
      time.remedy = "set the clock, such as by timedatectl set-ntp true"
    } else {
      switch csystem_clock_state() {
      case 1: time.detail += ", synchronised"
      case 0: time.detail += ", not synchronised as far as the kernel knows"
      default: time.detail += ", whether it is synchronised is not known"
      }
    }
    let zone = RunClock.localZone
    let hasZones = RunClock.hasZones
    return [
      time,
      Check(
        name: "time zone", state: hasZones ? .ok : .note,
        detail: "\(zone); ${run.date} is in UTC unless run.timeZone says otherwise"
          + (hasZones ? "" : "; the time zone database is missing, so it can say nothing else than UTC"),
        remedy: hasZones ? nil : "apt-get install tzdata"),
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

  /// - Parameter needed: the models without which something cannot run.
  private static func inference(_ home: PipelineHome, needing needed: [String]) -> [Check] {
    var checks: [Check] = []
    var hasRuntime = false
    let runtimeState: Check.State = needed.isEmpty ? .note : .lack
    do throws(InferenceError) {
      let path = try home.locateRuntime()
      hasRuntime = true
      checks.append(Check(name: "OpenVINO", state: .ok, detail: path))
    } catch {
      checks.append(Check(name: "OpenVINO", state: runtimeState, detail: error.message, remedy: error.hint))
    }
    // The catalogue is long, and of most models there is nothing to say but that they are not here.
    let statuses = ModelCatalogue.status(verify: true, home: home)
    let usual = ModelCatalogue.defaultName
    for status in statuses
    where status.state != .missing || status.recipe.name == usual || needed.contains(status.recipe.name) {
      let name = status.recipe.name
      // Jobs name the others only by choice.
      let isNeeded = needed.contains(name)
      var check = Check(name: name, state: .ok, detail: "")
      switch status.state {
      case .missing:
        check.state = isNeeded ? .lack : .note
        check.detail = "not installed"
        if isNeeded {
          check.remedy = (name == usual ? "make demo, or " : "") + "pipeline models pull \(name)"
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
    if let free = freeBytes(PathBytes(home.root)) { checks[0].detail += ", \(Wording.bytes(free)) free" }
    let temporary = getenv("TMPDIR").map { String(cString: $0) }.flatMap { $0.isEmpty ? nil : $0 } ?? "/tmp"
    checks.append(space("temporary", PathBytes(temporary)))
    guard let current = PathBytes.currentFolder else {
      checks.append(Check(name: "folder", state: .note, detail: "the current folder does not exist any more"))
      return checks
    }
    checks.append(space("folder", current))
    checks.append(state(StateFolder.locate(current.joining(StatePlace.defaultName))))
    return checks
  }

  /// Below this a batch of photos may fill the disk.
  private static let littleSpace = 1_000_000_000

  private static func space(_ name: String, _ folder: PathBytes) -> Check {
    let isWritable = folder.withCString { access($0, W_OK | X_OK) } == 0
    let free = freeBytes(folder)
    let isLittle = free.map { $0 < littleSpace } ?? false
    return Check(
      name: name, state: isWritable && !isLittle ? .ok : .note,
      detail: folder.printable + (isWritable ? ", writable" : ", not writable")
        + (free.map { ", \(Wording.bytes($0)) free" } ?? ""),
      remedy: isLittle ? "free some space: a run that fills the disk stops, and goes on when run again" : nil)
  }

  /// Of the file system that a folder is on, or will be on when it is made.
  private static func freeBytes(_ folder: PathBytes) -> Int? {
    var space = statvfs()
    var folder = folder
    while folder.withCString({ statvfs($0, &space) }) != 0 {
      guard errno == ENOENT, folder.parent != folder else { return nil }
      folder = folder.parent
    }
    return Int(clamping: UInt64(space.f_bavail).multipliedReportingOverflow(by: UInt64(space.f_frsize)).partialValue)
  }

  /// The state folder that jobs in the current folder have.
  private static func state(_ folder: StateFolder) -> Check {
    let (fileSystem, isOnNetwork) = folder.fileSystem
    let isThere = folder.path.withCString { access($0, F_OK) } == 0
    let detail =
      folder.path.printable + (isThere ? "" : ", not made yet")
      + (freeBytes(folder.path).map { ", \(Wording.bytes($0)) free" } ?? "") + "; \(fileSystem), "
      + (isOnNetwork
        ? "which machines may share: the ledger has a rollback journal and locks by fcntl"
        : "local: the ledger has a write-ahead log")
    return Check(
      name: "state", state: isOnNetwork ? .note : .ok, detail: detail,
      remedy: isOnNetwork ? "--state DIR with a folder on a local disk, which is faster" : nil)
  }

  // MARK: Credentials

  /// What jobs get credentials from: named, never shown.
  ///
  /// - Parameter needs: of a job, without which nothing is missing and the names are those that examples use.
  private static func credentials(_ needs: JobNeeds?, _ registry: StageRegistry) -> [Check] {
    func isSet(_ name: String) -> Bool { getenv(name).map { $0.pointee != 0 } ?? false }
    var checks: [Check] = []
    if let needs {
      for name in needs.secrets + needs.variables {
        checks.append(
          Check(
            name: name, state: isSet(name) ? .ok : .lack, detail: isSet(name) ? "set" : "not set, or empty",
            remedy: isSet(name) ? nil : "export \(name)=…"))
      }
    } else {
      let texts =
        registry.all.flatMap(\.spec.examples).map { Array("{\"stages\":[\($0)]}".utf8) } + JobTemplate.all.map(\.text)
      var names: [String] = []
      for name in texts.flatMap({ JobNeeds(text: $0).secrets }) where !names.contains(name) { names.append(name) }
      let groups = [("set", names.filter(isSet)), ("not set", names.filter { !isSet($0) })]
      checks.append(
        Check(
          name: "credentials", state: .ok,
          detail: groups.filter { !$0.1.isEmpty }.map { "\($0.0): \($0.1.joined(separator: ", "))" }
            .joined(separator: "; ")))
    }
    for profile in needs?.awsProfiles ?? [nil] {
      do throws(S3Refusal) {
        let found = try AWSSettings().credentials(profile: profile)
        checks.append(Check(name: "AWS", state: .ok, detail: "keys of \(found.origin)"))
      } catch {
        checks.append(Check(name: "AWS", state: needs == nil ? .note : .lack, detail: error.message))
      }
    }
    return checks
  }

  // MARK: A job

  private static func job(_ file: String, _ registry: StageRegistry) -> [Check] {
    let name = PathBytes(file).printable
    do throws(StageError) {
      let loaded = try JobLoader(registry: registry).load(path: file)
      let errors = loaded.diagnostics.count { $0.severity == .error }
      let warnings = loaded.diagnostics.count - errors
      var checks = [
        Check(
          name: "job", state: errors > 0 ? .lack : .ok,
          detail: name + ": "
            + (errors > 0
              ? Wording.count(errors, "error")
              : warnings > 0 ? Wording.count(warnings, "warning") : "no problems"),
          remedy: errors + warnings > 0 ? "pipeline lint \(InitCommand.shellWord(file))" : nil)
      ]
      if let job = loaded.job {
        let folder = job.stateFolder ?? job.baseFolder.joining(StatePlace.defaultName)
        var check = state(StateFolder.locate(folder))
        check.name = "job's state"
        checks.append(check)
      }
      return checks
    } catch {
      return [Check(name: "job", state: .lack, detail: error.message + (error.cause.map { " (\($0))" } ?? ""))]
    }
  }
}
