import Engine
import Inference
import PipelineKit

/// `pipeline man`: the manual page, from the same declarations as the help pages.
enum ManCommand {
  static let command = Command(
    name: "man", summary: "prints the manual page, for man",
    notes: ["`make install` lays it. Exit codes: 0 printed, 2 wrong command line."],
    examples: ["pipeline man | man -l -", "pipeline man > /usr/local/share/man/man1/pipeline.1"]
  ) { (_, invocation) throws(UsageError) in
    invocation.output.print(page(PipelineCommand.commands, invocation.registry))
    return ExitCode.done.rawValue
  }

  /// Environment variables that the program itself looks at; what libraries look at is said with what they do.
  static let variables: [(name: String, help: String)] = [
    ("PIPELINE_HOME", "the folder of models and runtime; else pipeline below XDG_DATA_HOME, else below ~/.local/share"),
    ("PIPELINE_OPENVINO", "the folder of the OpenVINO libraries, instead of those in the home"),
    (ModelPull.mirrorVariable, "an address that models are fetched from instead of where they are published"),
    ("NO_COLOR", "when set and not empty, nothing is coloured"),
    ("CI", "when set and not empty or false, progress is plain lines"),
    ("COLUMNS", "the width of output that is no terminal"),
    ("SSL_CERT_FILE, CURL_CA_BUNDLE", "authorities that are trusted, instead of the system's"),
    ("http_proxy, https_proxy, all_proxy, no_proxy", "proxies for requests, and hosts that are asked without one"),
    (
      "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_PROFILE, AWS_REGION, "
        + "AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE", "keys for buckets, as the AWS tools have them"
    ),
    ("NAME", "what jobs name as ${env.NAME}, and credentials as ${secret.NAME}"),
  ]

  static func page(_ commands: [Command], _ registry: StageRegistry) -> String {
    var page = Troff()
    page.title(
      "PIPELINE", date: ProgramVersion.date, source: "pipeline " + ProgramVersion.text, manual: "User Commands")
    page.section("NAME")
    page.text("pipeline - takes many pictures through a declared chain of stages")
    page.section("SYNOPSIS")
    for (index, command) in commands.enumerated() {
      if index > 0 { page.macro("br") }
      page.bold(command.usage)
    }
    page.section("DESCRIPTION")
    page.text(
      "A job file says in JSON what happens to each picture: decode, resize, cut out the subject with a model on this "
        + "machine or a service, put it on a new background, encode, write or upload. pipeline does it to all pictures of "
        + "the job at once, skips what is up to date, and tells what happened by its exit code and a report.")
    page.section("COMMANDS")
    for command in commands {
      page.subsection(command.usage)
      page.text(command.summary.capitalisedSentence)
      for note in command.notes {
        page.paragraph()
        page.text(note)
      }
      if let operand = command.operand { page.entry(operand.usage, operand.help.capitalisedSentence) }
      for option in command.options {
        page.entry(option.usage, (option.help + (option.repeats ? "; may be repeated" : "")).capitalisedSentence)
      }
    }
    page.section("STAGES")
    page.text("pipeline stages NAME prints the reference of each.")
    for descriptor in registry.all { page.entry(descriptor.spec.name, descriptor.spec.summary) }
    page.section("EXIT STATUS")
    for (code, meaning) in ExitCode.meanings { page.entry(code, meaning.capitalisedSentence) }
    page.section("ENVIRONMENT")
    for (name, help) in variables { page.entry(name, help.capitalisedSentence) }
    page.section("FILES")
    page.entry(".pipeline", "The state folder beside a job file, where the job names no other.")
    page.entry("~/.local/share/pipeline", "Models and the runtime, where PIPELINE_HOME names no other folder.")
    page.section("EXAMPLES")
    let examples = commands.flatMap(\.examples)
    page.macro("nf")
    for example in examples { page.text(example, isFilled: false) }
    page.macro("fi")
    page.section("SEE ALSO")
    page.text("pipeline help COMMAND, pipeline stages NAME")
    return page.source
  }
}

/// A manual page in the macros of man(7), of which both groff and mandoc know these.
struct Troff {
  private(set) var lines = [
    #".\" Made by "pipeline man"."#
  ]

  var source: String { lines.joined(separator: "\n") }

  mutating func macro(_ name: String, _ arguments: [String] = []) {
    lines.append(
      "."
        + ([name] + arguments.map { "\"" + Self.escaped($0).replacing("\"", with: "\\(dq") + "\"" })
        .joined(separator: " "))
  }

  mutating func title(_ name: String, date: String, source: String, manual: String) {
    // As it stands: a date with escapes in it is not read as one.
    lines.append(".TH \(name) 1 \"\(date)\" \"\(source)\" \"\(manual)\"")
  }

  mutating func section(_ title: String) { macro("SH", [title]) }
  mutating func subsection(_ title: String) { macro("SS", [title]) }
  mutating func paragraph() { macro("PP") }
  mutating func bold(_ text: String) { macro("B", [text]) }

  mutating func entry(_ term: String, _ text: String) {
    macro("TP")
    bold(term)
    self.text(text)
  }

  mutating func text(_ text: String, isFilled: Bool = true) {
    let escaped = Self.escaped(text)
    // Source lines stay short; a line that is not filled is one of the page.
    for line in isFilled ? FieldPages.wrap(escaped, width: 78) : [escaped] {
      // One that begins so would be read as a macro.
      lines.append(line.hasPrefix(".") || line.hasPrefix("'") ? "\\&" + line : line)
    }
  }

  /// Text as troff shows it unchanged: its own signs escaped, hyphens that can be copied, and in ASCII alone.
  static func escaped(_ text: String) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\\": result += "\\e"
      case "-": result += "\\-"
      case "'": result += "\\(aq"
      case "`": result += "\\(ga"
      case "^": result += "\\(ha"
      case "~": result += "\\(ti"
      case "\n", "\t": result += " "
      case _ where scalar.isASCII: result.unicodeScalars.append(scalar)
      default:
        let hex = String(scalar.value, radix: 16, uppercase: true)
        result += "\\[u" + String(repeating: "0", count: max(0, 4 - hex.count)) + hex + "]"
      }
    }
    return result
  }
}
