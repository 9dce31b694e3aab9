import Engine
import Inference
import JobSyntax
import PipelineKit

/// What may stand in one place of a command line, as its declaration shows it to people: `JOB`, `FILE`, `text|json`.
enum CompletionKind: Sendable, Hashable {
  case words([String])
  case files, folders, jobs, stages, models, templates
  /// A variable of the job, with `=` after it.
  case variables
  /// Free text, which nothing can be proposed for.
  case nothing

  /// Placeholders that stand for something else than the name of a file.
  private static let known: [String: CompletionKind] = [
    "DIR": .folders, "FOLDER": .folders, "JOB": .jobs, "STAGE": .stages, "MODEL": .models, "TEMPLATE": .templates,
    "NAME=VALUE": .variables, "NAME": .nothing, "N": .nothing, "I/N": .nothing, "SECONDS": .nothing, "DAYS": .nothing,
    "ID": .nothing, "JSON": .nothing, "URL": .nothing, "VALUE": .nothing, "NUMBER": .nothing, "PERCENT": .nothing,
  ]

  /// Reads what help shows. Words in lower case stand for themselves; a placeholder that is not known is taken for a
  /// file, as shells do.
  static func kinds(of placeholder: String) -> [CompletionKind] {
    var words: [String] = []
    var kinds: [CompletionKind] = []
    // `auto[/N]`: what is optional is left to who writes it.
    for part in placeholder.split(separator: "|").map({ $0.prefix { $0 != "[" } }) where !part.isEmpty {
      if part == part.lowercased() { words.append(String(part)) } else { kinds.append(known[String(part)] ?? .files) }
    }
    return (words.isEmpty ? [] : [.words(words)]) + kinds.filter { $0 != .nothing }
  }
}

extension Operand {
  /// The kinds of the operand at a place, counted from 0, after those that stand before it.
  ///
  /// The name is read as help shows it: words apart by spaces, `|` between what excludes each other, brackets around
  /// what may be left out, and the last again where more may be given.
  func completion(at place: Int, after given: [String]) -> [CompletionKind] {
    guard place < count.upperBound else { return [] }
    var kinds: [CompletionKind] = []
    for form in name.components(at: " | ") {
      let tokens = form.split(separator: " ").map { $0.filter { !"[]…".contains($0) } }
      guard let last = tokens.last else { continue }
      // `runs show ID`: a form whose fixed word is another one is not meant.
      let isMeant = zip(tokens, given).allSatisfy { token, word in
        let kinds = CompletionKind.kinds(of: token)
        if case .words(let words)? = kinds.first, kinds.count == 1 { return words.contains(word) }
        return true
      }
      guard isMeant else { continue }
      if place < tokens.count {
        kinds += CompletionKind.kinds(of: tokens[place])
      } else if count.upperBound > tokens.count, form.contains("…") || name == form {
        kinds += CompletionKind.kinds(of: last).filter { if case .words = $0 { false } else { true } }
      }
    }
    return kinds
  }
}

extension String {
  /// The parts between each `separator`.
  fileprivate func components(at separator: String) -> [String] {
    var parts: [String] = []
    var rest = self[...]
    while let cut = rest.firstRange(of: separator) {
      parts.append(String(rest[..<cut.lowerBound]))
      rest = rest[cut.upperBound...]
    }
    return parts + [String(rest)]
  }
}

/// What could come next on a command line that is being typed.
struct Completion: Sendable {
  struct Word: Sendable, Hashable {
    var text: String
    var help: String = ""
  }
  /// What the shell adds by itself.
  enum Paths: String, Sendable { case files, folders, jobs }

  private(set) var words: [Word] = []
  private(set) var paths: Paths?
  /// What of the word stands before the paths: `--report=`.
  private(set) var pathPrefix = ""
  private let registry: StageRegistry
  private var job: String?

  /// - Parameter line: the words after the program's name, the one that is being typed last, perhaps empty.
  init(_ line: [String], commands: [Command], registry: StageRegistry) {
    self.registry = registry
    let typed = line.last ?? ""
    guard line.count > 1 else {
      add(commands.map { Word(text: $0.name, help: $0.summary) }, typed)
      add([Word(text: "help", help: "the options of a command")], typed)
      if typed.hasPrefix("-") {
        add([Word(text: "--version", help: "the program's version"), Word(text: "--help", help: "this page")], typed)
      }
      return
    }
    guard line[0] != "help" else {
      if line.count == 2 { add(commands.map { Word(text: $0.name, help: $0.summary) }, typed) }
      return
    }
    guard let command = commands.first(where: { $0.name == line[0] }) else { return }
    var operands: [String] = []
    var used: Set<String> = []
    var pending: (any OptionDeclaration)?
    var hasEnded = false
    for word in line.dropFirst().dropLast() {
      if pending != nil {
        pending = nil
      } else if hasEnded || !word.hasPrefix("-") || word == "-" {
        operands.append(word)
      } else if word == "--" {
        hasEnded = true
      } else {
        let name = word.drop { $0 == "-" }.prefix { $0 != "=" }
        used.insert(String(name))
        let option = command.options.first { $0.name == name }
        if let option, option.placeholder != nil, !option.isValueOptional, !word.contains("=") { pending = option }
      }
    }
    job = operands.first { $0.hasSuffix(".json") }
    if let pending {
      add(CompletionKind.kinds(of: pending.placeholder ?? ""), typed)
    } else if !hasEnded, typed.hasPrefix("--"), let cut = typed.firstIndex(of: "=") {
      let name = typed[..<cut].dropFirst(2)
      guard let placeholder = command.options.first(where: { $0.name == name })?.placeholder else { return }
      add(
        CompletionKind.kinds(of: placeholder), String(typed[typed.index(after: cut)...]), prefix: String(typed[...cut]))
    } else if !hasEnded, typed.hasPrefix("-") {
      let free = command.options.filter { $0.repeats || !used.contains($0.name) }
      add(free.map { Word(text: "--\($0.name)", help: $0.help) }, typed)
      add([Word(text: "--help", help: "the options of this command")], typed)
    } else {
      add(command.operand?.completion(at: operands.count, after: operands) ?? [], typed)
    }
  }

  private mutating func add(_ kinds: [CompletionKind], _ typed: String, prefix: String = "") {
    for kind in kinds {
      switch kind {
      case .words(let words): add(words.map { Word(text: $0) }, typed, prefix: prefix)
      case .files: add(.files, prefix)
      case .folders: add(.folders, prefix)
      case .jobs: add(.jobs, prefix)
      case .stages: add(stages, typed, prefix: prefix)
      case .models: add(models, typed, prefix: prefix)
      case .templates:
        add(JobTemplate.all.map { Word(text: $0.name, help: $0.summary) }, typed, prefix: prefix)
      case .variables: add(variables, typed, prefix: prefix)
      case .nothing: break
      }
    }
  }

  private mutating func add(_ new: Paths, _ prefix: String) {
    // Files hold jobs and folders too.
    if paths == nil || new == .files { paths = new }
    pathPrefix = prefix
  }

  private mutating func add(_ new: [Word], _ typed: String, prefix: String = "") {
    for word in new where word.text.hasPrefix(typed) {
      words.append(Word(text: prefix + word.text, help: word.help))
    }
  }

  /// Those of the job on the line, by their labels; without one, all that there are.
  private var stages: [Word] {
    if let job, let loaded = try? JobLoader(registry: registry).load(path: job).job {
      return loaded.stages.map { Word(text: $0.label, help: $0.descriptor.spec.summary) }
    }
    return registry.all.map { Word(text: $0.spec.name, help: $0.spec.summary) }
      + CommonFields.all.map { Word(text: $0.name, help: $0.help) }
  }

  private var models: [Word] {
    ModelCatalogue.status(verify: false, home: PipelineHome.current).map {
      Word(text: $0.recipe.name, help: $0.recipe.licence)
    }
  }

  private var variables: [Word] {
    guard let job, let text = FileText.read(job),
      let vars = StrictJSON.parse(SourceFile(name: job, text: text)).root?["vars"]?.objectValue
    else { return [] }
    return vars.map { Word(text: $0.key + "=", help: "now \($0.value.value.summary)") }
  }

  /// For the scripts of shells: the paths to add as `:KIND PREFIX`, then a word a line, a tab before its explanation.
  var lines: [String] {
    (paths.map { [":\($0.rawValue) \(pathPrefix)"] } ?? [])
      + words.map { word in
        let help = Wording.oneLine(word.help.replacing("\t", with: " "))
        return Wording.oneLine(word.text) + (help.isEmpty ? "" : "\t" + help)
      }
  }
}
