import Imaging
import JobSyntax
import PipelineKit

/// What a program is given.
enum ProgramGift: String, FieldChoice {
  case picture, encoded, nothing

  var help: String {
    switch self {
    case .picture: "the picture, as a file of `format`"
    case .encoded: "what `encode` made before, byte by byte"
    case .nothing: "nothing but its arguments"
    }
  }
}

/// What is taken back from a program.
enum ProgramAnswer: String, FieldChoice {
  case picture, encoded, matte, nothing

  var help: String {
    switch self {
    case .picture: "a picture in any format that `decode` reads without permission, or PGM, PPM or PAM"
    case .encoded: "the bytes of a picture file, which stay as they are"
    case .matte: "a mask of the picture, by its transparency or else its brightness; the picture is cut out with it"
    case .nothing: "nothing: the picture goes on as it is, and what the program says is in the report"
    }
  }
}

/// Where a program's answer is.
enum AnswerPlace: String, FieldChoice {
  case stdout, out
  case inPlace = "in"

  var help: String {
    switch self {
    case .stdout: "what it writes to its standard output"
    case .out: "the file `${file.out}`"
    case .inPlace: "the file `${file.in}`, which it changes in place"
    }
  }
}

/// How a picture is handed over.
enum HandedFormat: String, FieldChoice {
  case png, jpeg, tiff, ppm, pam

  var help: String {
    switch self {
    case .png: "exact, without compression, with transparency, 16 bits and colour profile"
    case .jpeg: "of quality 95 with full colour; no transparency"
    case .tiff: "exact, without compression; what PNG has"
    case .ppm: "plain samples in sRGB, of masks and of pictures without transparency; costs nothing"
    case .pam: "the same with transparency"
    }
  }

  var ending: String {
    switch self {
    case .png: "png"
    case .jpeg: "jpg"
    case .tiff: "tif"
    case .ppm: "ppm"
    case .pam: "pam"
    }
  }

  var holdsTransparency: Bool { self != .jpeg && self != .ppm }
}

/// The endings of files that are written.
enum AnswerEnding: String, FieldChoice {
  case jpg, png, webp, avif, jxl, tif, gif, ppm, pam

  var help: String {
    switch self {
    case .ppm, .pam: "for `${file.out}` of a picture or a mask"
    default: format.map(\.displayName) ?? rawValue
    }
  }

  /// nil for those that are none of a finished file.
  var format: PictureFormat? { PictureFormat.allCases.first { $0.canEncode && $0.fileExtension == rawValue } }
}

extension Exec {
  static let command = Field<[Template]>(
    "command", type: .array(.text(.argument), count: 1...1000), absent: nil,
    help:
      "the program and its arguments, each a text of its own; no shell takes part. A program without a slash is looked up "
      + "on `PATH`, one with a slash from the job file's folder. `${file.in}` is the file that it reads, `${file.out}` the "
      + "one it writes, `${file.source}` the input itself, `${job.dir}` the job file's folder"
  ) { node, _ in
    node.arrayValue?.compactMap { $0.stringValue.flatMap { Template.parse($0).template } }
  }
  static let give = Field<ProgramGift>.choice(
    "give", default: .picture,
    help: "what it gets: in the file `${file.in}` where an argument names it, else on its standard input")
  static let format = Field<HandedFormat>.choice(
    "format", default: .png, when: FieldCondition("give", in: ["picture"]), help: "what the picture is handed over as")
  static let take = Field<ProgramAnswer?>.choice(
    "take", help: "what is taken back; left out, what was given")
  static let from = Field<AnswerPlace?>.choice(
    "from", help: "where that is; left out, the file `${file.out}` where an argument names it, else `stdout`")
  static let ending = Field<AnswerEnding?>.choice(
    "ending", help: "the ending of `${file.out}`, and what `encoded` must be; left out, that of what was given")
  static let uses = Field<[String]>.texts(
    "uses", .path, default: [],
    help: "files that the result depends on, such as a script: when one changes, pictures are made anew")
  static let env = Field<[NamedTemplate]>.templates(
    "env", allowsSecrets: true,
    help: "environment variables besides PATH, LANG, TZ, and HOME and TMPDIR, which are the folder it works in")
  static let timeLimit = Field<Double>.number(
    "timeLimit", in: 0.01...86_400, default: 60, unit: "seconds",
    help: "after this it is ended, with all it has started")
  static let memoryLimit = Field<Int?>.integer(
    "memoryLimit", in: 1 << 20...1 << 50, unit: "bytes", help: "the most data that each of its processes may hold")
  static let outputLimit = Field<Int>.integer(
    "outputLimit", in: 1...1 << 40, default: 500_000_000, unit: "bytes",
    help: "the most that each file it writes may have")
  static let okCodes = Field<[Int]>.codes("okCodes", default: [0], help: "exit codes that mean success")
  static let dropCodes = Field<[Int]>.codes(
    "dropCodes", default: [], help: "exit codes that mean that the picture is left out of the run, on purpose")

  // MARK: Lint

  static func given(_ settings: Settings) -> ProgramGift { settings[give] }

  static func taken(_ settings: Settings) -> ProgramAnswer {
    settings[take]
      ?? {
        switch settings[give] {
        case .picture: .picture
        case .encoded: .encoded
        case .nothing: .nothing
        }
      }()
  }

  static func place(_ settings: Settings) -> AnswerPlace {
    settings[from] ?? (names(.fileOut, settings) ? .out : .stdout)
  }

  static func names(_ variable: TemplateVariable, _ settings: Settings) -> Bool {
    settings[command].contains { $0.variables.contains(variable) }
  }

  static func findings(_ settings: Settings) -> [Diagnostic] {
    var findings: [Diagnostic] = []
    func refuse(_ code: String, _ field: any FieldDeclaration, _ message: String, hint: String? = nil) {
      findings.append(settings.diagnostic(.error, code, at: field, message, hint: hint))
    }
    guard let program = settings[command].first else { return [] }
    if program.text.isEmpty || program.variables.contains(where: { $0 != .jobDir }) {
      refuse(
        "wrong-value", command, "the program must be the same for every picture, and have a name: \"\(program.text)\"",
        hint: "only ${job.dir} may stand in it")
    }
    if settings[give] == .nothing, names(.fileIn, settings) {
      refuse("not-applicable", command, "${file.in} has no meaning with \"give\": \"nothing\"")
    }
    let taken = taken(settings)
    switch place(settings) {
    case _ where taken == .nothing:
      if settings.isSet(from) { refuse("not-applicable", from, "\"from\" has no meaning where nothing is taken back") }
    case .stdout: break
    case .out:
      if !names(.fileOut, settings) {
        refuse("missing-key", from, "no argument names ${file.out}, so the program cannot know where to write")
      }
    case .inPlace:
      if !names(.fileIn, settings) {
        refuse("missing-key", from, "no argument names ${file.in}, so there is no file that the program could change")
      }
    }
    if taken == .matte, settings[give] != .picture {
      refuse("conflicting-keys", take, "a mask is one of a picture: \"give\" must be \"picture\"")
    }
    if taken == .encoded {
      if settings[give] != .encoded, !settings.isSet(ending) {
        refuse(
          "missing-key", take, "\"ending\" must say what kind of file comes back",
          hint: "such as \"ending\": \"webp\"")
      }
      if let wanted = settings[ending], wanted.format == nil {
        refuse(
          "wrong-value", ending, "\"encoded\" bytes are those of a finished file, which .\(wanted.rawValue) is not")
      }
    }
    if let both = settings[okCodes].first(where: settings[dropCodes].contains) {
      refuse("conflicting-keys", dropCodes, "exit code \(both) cannot mean success and drop the picture at once")
    }
    for variable in settings[env] where !TemplateVariable.isEnvironmentName(variable.name) {
      refuse("wrong-value", env, "\"\(variable.name)\" cannot be the name of an environment variable")
    }
    findings += shellFindings(settings)
    return findings
  }

  private static let shells: Set<String> = ["sh", "bash", "dash", "zsh", "ksh", "ash", "busybox"]

  /// A file's name that is filled into a shell's script is run as a part of it.
  private static func shellFindings(_ settings: Settings) -> [Diagnostic] {
    let arguments = settings[command]
    guard let program = arguments.first?.text.split(separator: "/").last, shells.contains(String(program)),
      let flag = arguments.firstIndex(where: { $0.text.hasPrefix("-") && $0.text.hasSuffix("c") }),
      flag + 1 < arguments.count
    else { return [] }
    let risky = arguments[flag + 1].variables.filter {
      switch $0 {
      case .itemPath, .itemDir, .itemStem, .itemName, .itemExt, .itemColumn: true
      default: false
      }
    }
    guard let first = risky.first else { return [] }
    return [
      settings.diagnostic(
        .error, "shell-injection", at: command,
        "${\(first.name)} is filled into a script: a file called \"$(…)\" would be run as a command",
        hint: "hand it over as an argument of the script, \"$1\": [\"sh\", \"-c\", \"… \\\"$1\\\"\", \"sh\", "
          + "\"${\(first.name)}\"]")
    ]
  }
}

extension Field where Value == [Int] {
  /// Exit codes of a program.
  fileprivate static func codes(_ name: String, default value: [Int], help: String) -> Self {
    .init(
      name, type: .array(.integer(0...255), count: 0...256), absent: value,
      defaultText: .array(value.map { .integer($0) }), help: help
    ) { node, _ in node.arrayValue?.compactMap { $0.numberValue?.integer } }
  }
}
