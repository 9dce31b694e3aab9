import Glibc
import Imaging
import JobSyntax
import PipelineKit

/// Has another program work on the picture.
public struct Exec: Stage {
  public static let spec = StageSpec(
    name: "exec",
    summary: "Has another program of this machine work on the picture, or on the encoded file.",
    notes: [
      "Arguments are handed over as they are: there is no shell, and a file's name with spaces or quotes in it stays one "
        + "argument. One that may begin with a dash could be read as an option: put `--` before it where the program "
        + "knows that.",
      "The program works in an empty folder of its own, which is removed afterwards. Its environment is PATH, LANG, TZ, "
        + "HOME and TMPDIR, and what `env` adds; `${secret.NAME}` may stand in `env` alone, as arguments can be read by "
        + "everyone on the machine.",
      "It runs on a core that would otherwise work on pictures: no more programs than workers run at once. It is "
        + "ended at `timeLimit`, when the item's time is over and when the run is stopped: first SIGTERM, after two seconds "
        + "SIGKILL. What it has started is ended with it, also what has left its process group, unless that has emptied its "
        + "environment too.",
      "Input and output are files, never pipes: no program can block on another. What comes back is read as inputs "
        + "are, within the job's limits, by its first bytes. Exit code, time, memory and the last 4 KiB of its standard "
        + "error are in the report.",
      "A picture that comes back keeps the metadata of the one that went, and loses its masks. Pictures are handed over "
        + "without compression: what comes back may be compressed or not.",
      "A missing program is found before work starts. The content of the program's file counts as a setting: a new "
        + "version makes pictures anew. Name scripts in `uses`.",
    ],
    fields: [
      command, give, format, take, from, ending, uses, env, timeLimit, memoryLimit, outputLimit, okCodes, dropCodes,
    ],
    examples: [
      #"{ "stage": "exec", "command": ["python3", "${job.dir}/vignette.py", "0.6"], "uses": ["vignette.py"] }"#,
      #"{ "stage": "exec", "command": ["./sharpen", "--in", "${file.in}", "--out", "${file.out}"], "format": "pam" }"#,
      """
      { "stage": "exec", "give": "encoded", "from": "in", "command": ["exiftool", "-q", "-overwrite_original", \
      "-Title=${item.stem}", "${file.in}"] }
      """,
      #"{ "stage": "exec", "command": ["cjxl", "${file.in}", "${file.out}"], "take": "encoded", "ending": "jxl" }"#,
      #"{ "stage": "exec", "command": ["./find-logo"], "take": "nothing", "dropCodes": [3], "timeLimit": 5 }"#,
    ])

  public static func plan(_ settings: Settings) -> StagePlan {
    let given = given(settings)
    let accepts: ItemTraits =
      switch given {
      case .picture: .picture
      case .encoded: .encoded
      case .nothing: .source
      }
    var plan: StagePlan
    switch taken(settings) {
    case .picture: plan = StagePlan(accepts: accepts, produces: .picture, removes: [.encoded, .matte])
    case .matte: plan = StagePlan(accepts: accepts, produces: [.alpha, .matte], removes: .encoded)
    case .encoded:
      plan = StagePlan(accepts: accepts, produces: .encoded)
      plan.encodedExtension = settings[ending]?.format?.fileExtension
      plan.keepsEncodedFormat = given == .encoded && settings[ending] == nil
    case .nothing: plan = StagePlan(accepts: accepts)
    }
    // The answer is one, as what was encoded is.
    plan.frames = given == .picture && taken(settings) != .encoded ? .each : .together
    if given == .picture, !settings[format].holdsTransparency {
      plan.refuses = Refusal(
        .alpha, at: "format", "\(settings[format].ending) cannot hold transparency, and the picture was cut out",
        hint: "use \"png\" or \"pam\", or lay it on a background with \"composite\" before")
    }
    // It asks first, and then there may be strays to be looked for.
    plan.endsWithin = ProgramRunner.patience + 2
    plan.workingSpace = WorkingSpace(depth: given == .picture ? .source : .eight)
    plan.helperFiles = settings[uses] + (localProgram(settings).map { [$0] } ?? [])
    let limit = settings[memoryLimit]
    // What is handed over and what comes back, once as a file and once as pixels each; and what the program itself
    // takes for a picture of that size, which is all that can be said of it where it has no limit.
    plan.workingBytes = { width, height in
      width * height * 16 + min(limit ?? .max, width * height * 16 + 32 << 20)
    }
    return plan
  }

  /// The path of a program of the job's own, from the job file's folder.
  private static func localProgram(_ settings: Settings) -> String? {
    guard let program = settings[command].first else { return nil }
    var path: [UInt8] = []
    for segment in program.segments {
      switch segment {
      case .literal(let bytes): path += bytes
      case .variable(.jobDir) where path.isEmpty: path.append(UInt8(ascii: "."))
      case .variable: return nil
      }
    }
    return path.contains(UInt8(ascii: "/")) ? String(validating: path, as: UTF8.self) : nil
  }

  public static func check(_ settings: Settings) -> [Diagnostic] { findings(settings) }

  public static func ingredients(_ settings: Settings) -> [String: String] {
    guard localProgram(settings) == nil, let name = settings[command].first?.text,
      let program = try? ExternalProgram.find(PathBytes(name), from: "/"), let hash = hash(of: program)
    else { return [:] }
    return ["program": hash]
  }

  private static func hash(of program: ExternalProgram) -> String? {
    (try? EncodedPicture.read(path: program.path.bytes))?.sha256
  }

  // MARK: Work

  private let program: ExternalProgram
  private let arguments: [Template]
  private let given: ProgramGift
  private let format: HandedFormat
  private let taken: ProgramAnswer
  private let place: AnswerPlace
  private let ending: AnswerEnding?
  private let isNamed: (input: Bool, output: Bool)
  private let variables: [NamedTemplate]
  private let timeLimit: Double
  private let memoryLimit: Int?
  private let outputLimit: Int
  private let okCodes: Set<Int>
  private let dropCodes: Set<Int>
  private let answers: DecodeOptions
  private let folder: PrivateFolder
  private let runner: ProgramRunner
  private let environment: [[UInt8]]

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    let command = settings[Self.command]
    guard let first = command.first else {
      throw StageError("internal-fault", "exec has no program", kind: .job)
    }
    let name = first.render { $0 == .jobDir ? resources.run.baseFolder.bytes : nil }
    program = try ExternalProgram.find(PathBytes(bytes: name ?? []), from: resources.run.baseFolder)
    for name in settings[Self.uses] { try Self.check(uses: name, from: resources.run.baseFolder) }
    arguments = Array(command.dropFirst())
    given = settings[Self.give]
    format = settings[Self.format]
    taken = Self.taken(settings)
    place = Self.place(settings)
    ending = settings[Self.ending]
    isNamed = (Self.names(.fileIn, settings), Self.names(.fileOut, settings))
    variables = settings[Self.env]
    timeLimit = settings[Self.timeLimit]
    memoryLimit = settings[Self.memoryLimit]
    outputLimit = settings[Self.outputLimit]
    okCodes = Set(settings[Self.okCodes])
    dropCodes = Set(settings[Self.dropCodes])
    answers = DecodeOptions(limits: resources.decodeLimits, space: resources.workingSpace)
    folder = try PrivateFolder("pipeline-exec")
    runner = ProgramRunner(run: resources.run.runID)
    var environment = [Array("LANG=C.UTF-8".utf8)]
    for name in ["PATH", "TZ"] {
      if let value = getenv(name) { environment.append(Array("\(name)=\(String(cString: value))".utf8)) }
    }
    self.environment = environment
    resources.facts.set(
      "program.\(program.name)",
      .object([
        ("path", .string(program.path.display)), ("sha256", Self.hash(of: program).map { .string($0) } ?? nil),
      ]))
  }

  /// A name that is mistyped would never change.
  private static func check(uses name: String, from folder: PathBytes) throws(StageError) {
    let path = folder.joining(name)
    var status = stat()
    let isThere = path.withCString { stat($0, &status) } == 0
    guard !isThere || status.st_mode & S_IFMT != S_IFREG else { return }
    throw StageError(
      "uses-missing", "\(path.printable), which exec uses, \(isThere ? "is no file" : "cannot be read")",
      kind: .environment, cause: isThere ? nil : String(cString: strerror(errno)))
  }

  public func finish() throws(StageError) {
    runner.close()
    folder.close()
  }

  /// What is at hand while the program works on one item.
  private struct Scene {
    var folder: PathBytes
    var input: PathBytes
    var output: PathBytes
    /// The ending of what was given, without the dot.
    var ending: String
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let picture = given == .picture ? try item.image(in: context) : nil
    let own = try folder.make()
    defer { folder.remove(own) }
    let ending =
      switch given {
      case .picture: format.ending
      case .encoded: item.encoded?.format.fileExtension ?? ""
      case .nothing: ""
      }
    let scene = Scene(
      folder: own, input: own.joining(ending.isEmpty ? "in" : "in.\(ending)"),
      output: own.joining("out.\(self.ending?.rawValue ?? (ending.isEmpty ? "png" : ending))"), ending: ending)
    let input = try ProgramOutput()
    // What is only shown to people is not held in memory, however much it is.
    let output = try taken == .nothing ? ProgramOutput(in: own) : ProgramOutput()
    let errors = try ProgramOutput(in: own)
    try handOver(item, picture, scene, input)
    let end = try runner.run(program, try call(item, scene, context, input, output, errors)) { context.isCancelled }
    let words = ProgramWords.tail(errors.tail(12 << 10), most: 4 << 10)
    note(end, words, taken == .nothing ? ProgramWords.tail(output.tail(12 << 10), most: 4 << 10) : "", context)
    if case .exit(let code) = end.reason, dropCodes.contains(code) {
      let last = ProgramWords.lastLine(words)
      return .dropped(reason: "\(program.name) ended with exit code \(code)" + (last.map { ": \($0)" } ?? ""))
    }
    if let failure = failure(end, words, largest: largest(scene, output, errors)) {
      throw failure
    }
    switch taken {
    case .nothing: return .next(picture.map { kept($0, item) } ?? item)
    case .picture: return .next(item.with(image: try answered(scene, output, like: picture), matte: nil, original: nil))
    case .matte:
      guard let picture else { throw StageError("internal-fault", "a mask came without a picture", kind: .job) }
      return .next(try cutOut(item, picture, try answered(scene, output, like: nil), context))
    case .encoded: return .next(try encoded(item, picture, scene, output))
    }
  }

  /// The item with its picture decoded, so that the next stage need not do it again.
  private func kept(_ picture: Image, _ item: Item) -> Item {
    if case .image = item.picture { return item }
    return item.with(image: picture, matte: item.matte, original: item.original, mattes: item.mattes)
  }

  // MARK: What the program gets

  private func handOver(
    _ item: Item, _ picture: Image?, _ scene: Scene, _ input: ProgramOutput
  ) throws(StageError) {
    guard given != .nothing else { return }
    var descriptor = input.descriptor
    if isNamed.input {
      descriptor = scene.input.withCString { open($0, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600) }
      guard descriptor >= 0 else { throw handOverError(scene) }
    }
    defer { if isNamed.input { close(descriptor) } }
    var isWritten = false
    if let picture {
      do throws(ImagingError) { isWritten = try write(picture, to: descriptor) } catch { throw StageError(error) }
    } else if let encoded = item.encoded {
      isWritten = encoded.bytes.withUnsafeBytes { ProgramOutput.write($0, to: descriptor) }
    } else {
      throw StageError("internal-fault", "nothing was encoded before exec", kind: .job)
    }
    guard isWritten else { throw handOverError(scene) }
    input.rewind()
  }

  private func write(_ picture: Image, to descriptor: Int32) throws(ImagingError) -> Bool {
    var picture = picture
    if !format.holdsTransparency, picture.hasAlpha {
      guard try picture.isOpaque() else {
        throw ImagingError(
          .encoder, "the picture has transparency, which \(format.ending) cannot hold",
          hint: "hand it over as \"png\" or \"pam\", or lay it on a background with \"composite\" before")
      }
      picture = try picture.withoutAlpha()
    }
    let options: EncodeOptions
    switch format {
    case .png: options = .png(EncodeOptions.PNG(compression: 0))
    case .jpeg: options = .jpeg(EncodeOptions.JPEG(quality: 95, chroma: .full))
    case .tiff:
      var tiff = EncodeOptions.TIFF()
      tiff.compression = .none
      options = .tiff(tiff)
    case .ppm, .pam:
      return try picture.converted(to: .srgb).withNetpbm(format == .pam ? .pam : .pnm) { header, samples in
        header.withUnsafeBytes { ProgramOutput.write($0, to: descriptor) }
          && ProgramOutput.write(samples, to: descriptor)
      }
    }
    let bytes = try picture.encoded(options, metadata: .none)
    return bytes.withUnsafeBytes { ProgramOutput.write($0, to: descriptor) }
  }

  private func handOverError(_ scene: Scene) -> StageError {
    StageError(
      "temporary-folder", "the picture could not be handed to \(program.name) in \(scene.folder.parent.printable)",
      kind: .temporary, cause: String(cString: strerror(errno)),
      hint: "free some space there, or set TMPDIR to another folder")
  }

  private func call(
    _ item: Item, _ scene: Scene, _ context: StageContext, _ input: ProgramOutput, _ output: ProgramOutput,
    _ errors: ProgramOutput
  ) throws(StageError) -> ExternalProgram.Call {
    func text(_ template: Template) throws(StageError) -> [UInt8] {
      var failure: StageError?
      let bytes = template.render { variable in
        switch variable {
        case .fileIn: return scene.input.bytes
        case .fileOut: return scene.output.bytes
        case .fileSource:
          if item.identity.remote == nil { return item.identity.path.bytes }
          failure = StageError(
            "template-value", "${file.source} is no file of this machine: the picture was fetched", kind: .job)
          return nil
        default:
          switch TemplateValues.value(of: variable, identity: item.identity, run: context.run, item: item) {
          case .success(let bytes): return bytes
          case .failure(let error):
            failure = error
            return nil
          }
        }
      }
      guard let bytes, !bytes.contains(0) else {
        throw failure ?? StageError("template-value", "\(template.text) cannot be filled in")
      }
      return bytes
    }
    var arguments: [[UInt8]] = []
    for argument in self.arguments { arguments.append(try text(argument)) }
    var named: [(name: String, value: [UInt8])] = [("HOME", scene.folder.bytes), ("TMPDIR", scene.folder.bytes)]
    for variable in variables { named.append((variable.name, try text(variable.template))) }
    var all = environment + named.map { Array("\($0.name)=".utf8) + $0.value }
    // Of two of a name programs see the first, and the job's word is the last.
    all.reverse()
    var seen: Set<[UInt8]> = []
    all = all.filter { seen.insert(Array($0.prefix { $0 != UInt8(ascii: "=") })).inserted }
    return ExternalProgram.Call(
      arguments: arguments, environment: all, folder: scene.folder, input: input.descriptor,
      output: output.descriptor, errors: errors.descriptor, seconds: timeLimit, memoryLimit: memoryLimit,
      outputLimit: outputLimit)
  }

  // MARK: How it went

  private func note(_ end: ExternalProgram.End, _ words: String, _ output: String, _ context: StageContext) {
    var facts: [(String, JSONText?)] = []
    switch end.reason {
    case .exit(let code): facts.append(("exitCode", .integer(code)))
    case .signal(let number): facts.append(("signal", .integer(Int(number))))
    case .timeLimit: facts.append(("ended", .string("timeLimit")))
    case .cancelled: facts.append(("ended", .string("cancelled")))
    }
    func rounded(_ seconds: Double) -> JSONText { .number((seconds * 1000).rounded() / 1000) }
    facts += [
      ("seconds", rounded(end.seconds)), ("cpuSeconds", rounded(end.cpuSeconds)),
      ("peakBytes", end.peakBytes.map { .integer($0) }), ("stderr", words.isEmpty ? nil : .string(words)),
      ("stdout", output.isEmpty ? nil : .string(output)),
    ]
    context.note(context.stage, .object(facts.compactMap { name, value in value.map { (name, $0) } }))
  }

  /// - Parameter largest: bytes of the largest file that it has written.
  private func failure(_ end: ExternalProgram.End, _ words: String, largest: Int) -> StageError? {
    let last = ProgramWords.lastLine(words)
    let cause = words.contains("\n") ? words : nil
    let memoryHint = memoryLimit.map {
      "\"memoryLimit\" allows it \($0) bytes of data; raise it if that was too little"
    }
    if largest > outputLimit {
      return StageError(
        "exec-output", "\(program.name) wrote more than \(outputLimit) bytes to one file", cause: cause,
        hint: "\"outputLimit\" sets the limit")
    }
    switch end.reason {
    case .exit(let code) where okCodes.contains(code): return nil
    case .exit(let code):
      return StageError(
        "exec-failed", "\(program.name) ended with exit code \(code)" + (last.map { ": \($0)" } ?? ""), cause: cause,
        hint: memoryHint)
    case .signal(let number):
      return StageError(
        "exec-signal", "\(program.name) was ended by signal \(number) (\(String(cString: strsignal(number))))",
        cause: words.isEmpty ? nil : words, hint: memoryHint)
    case .timeLimit:
      let limit = timeLimit == timeLimit.rounded() ? "\(Int(timeLimit))" : "\(timeLimit)"
      return StageError(
        "exec-timeout", "\(program.name) was not done after \(limit) s, and was ended",
        cause: words.isEmpty ? nil : words, hint: "\"timeLimit\" sets the limit")
    case .cancelled:
      // Whoever stops the run does not ask why.
      return StageError(
        "deadline", "the item's time was over, and \(program.name) was ended with it",
        cause: words.isEmpty ? nil : words, hint: "run.itemDeadline sets the limit")
    }
  }

  private func largest(_ scene: Scene, _ output: ProgramOutput, _ errors: ProgramOutput) -> Int {
    max(output.count, errors.count, size(of: scene.output), place == .inPlace ? size(of: scene.input) : 0)
  }

  private func size(of path: PathBytes) -> Int {
    var status = stat()
    return path.withCString { lstat($0, &status) } == 0 ? Int(status.st_size) : 0
  }

  // MARK: What comes back

  private func bytes(_ scene: Scene, _ output: ProgramOutput) throws(StageError) -> EncodedBytes {
    let descriptor: Int32
    let what: String
    switch place {
    case .stdout:
      (descriptor, what) = (output.descriptor, "nothing to its standard output")
    case .out, .inPlace:
      let path = place == .out ? scene.output : scene.input
      // What it left may be a link to elsewhere, or a pipe that would never be read to its end.
      descriptor = path.withCString { open($0, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) }
      what = "no file \(place == .out ? "${file.out}" : "${file.in}")"
    }
    defer { if descriptor >= 0, place != .stdout { close(descriptor) } }
    var status = stat()
    guard descriptor >= 0, fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_size > 0
    else {
      throw StageError(
        "exec-answer", "\(program.name) succeeded, but wrote \(what)",
        hint: taken == .nothing ? nil : "\"from\" says where the answer is looked for, \"take\": \"nothing\" wants none"
      )
    }
    return try StageError.imaging { () throws(ImagingError) in
      try EncodedBytes(reading: descriptor, count: Int(status.st_size))
    }
  }

  private func answered(_ scene: Scene, _ output: ProgramOutput, like picture: Image?) throws(StageError) -> Image {
    let bytes = try bytes(scene, output)
    do throws(ImagingError) {
      let plain = try bytes.withUnsafeBytes { (raw) throws(ImagingError) -> Image? in
        Netpbm.isPicture(raw) ? try Image(netpbm: raw, limits: answers.limits) : nil
      }
      var answer = if let plain { plain } else { try EncodedPicture(bytes: bytes, options: answers).pixels() }
      guard let picture else { return answer }
      // As deep as what it was made from: a program that knows 8 bits alone is no reason for later stages to change.
      if picture.bands >= 3, picture.space.holdsColour {
        answer = try answer.converted(to: picture.space).withDepth(picture.depth).materialised()
        answer = try answer.withMetadata(of: picture)
      }
      return try answer.materialised()
    } catch {
      throw answerError(error)
    }
  }

  private func answerError(_ error: ImagingError) -> StageError {
    var wrapped = StageError(error)
    guard wrapped.kind == .item else { return wrapped }
    wrapped.message = "what \(program.name) gave back cannot be used: \(error.message)"
    if error.code != .limit {
      wrapped.code = "exec-answer"
      // What helps with a picture of the user's does not help with this one.
      wrapped.hint = nil
    }
    return wrapped
  }

  private func cutOut(
    _ item: Item, _ picture: Image, _ answer: Image, _ context: StageContext
  ) throws(StageError) -> Item {
    let mask: ServiceMask?
    do throws(ImagingError) { mask = try ServiceMask(answer, .either) } catch { throw answerError(error) }
    guard let mask, mask.fits(width: picture.width, height: picture.height) else {
      throw StageError(
        "exec-answer",
        "\(program.name) gave back a mask of \(answer.width)×\(answer.height) pixels for a picture of "
          + "\(picture.width)×\(picture.height)")
    }
    guard !mask.isBlack else {
      throw StageError(
        "nothing-found", "\(program.name) found no subject in the picture: its mask is black",
        hint: "a program that says so with an exit code can drop the picture: \"dropCodes\"")
    }
    context.note(matte: mask.record(provider: "exec", model: program.name))
    return try StageError.imaging { () throws(ImagingError) in
      var matte = try Image(width: mask.width, height: mask.height, bands: 1, bytes: mask.bytes)
      if (matte.width, matte.height) != (picture.width, picture.height) {
        matte = try matte.stretched(width: picture.width, height: picture.height).materialised()
      }
      let cutout = try picture.cutOut(by: matte, cleaningColours: true)
      return item.with(image: cutout, matte: matte, original: picture, mattes: item.mattes)
    }
  }

  private func encoded(
    _ item: Item, _ picture: Image?, _ scene: Scene, _ output: ProgramOutput
  ) throws(StageError) -> Item {
    let bytes = try bytes(scene, output)
    let header: PictureHeader
    do throws(ImagingError) {
      header = try EncodedPicture(bytes: bytes, options: answers).header
    } catch {
      throw answerError(error)
    }
    let wanted = ending?.rawValue ?? scene.ending
    guard header.format.fileExtension == wanted else {
      throw StageError(
        "exec-answer",
        "\(program.name) gave back \(header.format.displayName) where a file that ends in .\(wanted) is expected",
        hint: header.format.canEncode ? "set \"ending\": \"\(header.format.fileExtension)\" if that is meant" : nil)
    }
    let held = picture.map { kept($0, item) } ?? item
    return held.with(
      encoded: .init(
        bytes: bytes, format: header.format, width: header.orientedWidth, height: header.orientedHeight))
  }
}
