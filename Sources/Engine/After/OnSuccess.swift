import JobSyntax
import PipelineKit

/// What becomes of a picture when everything that its job makes of it is done.
public enum OnSuccess: Sendable {
  case keep
  /// Where to; filled in for each picture.
  case move(Template)
  case delete

  /// As the job file has it.
  public enum Source: String, FieldChoice {
    case keep, move, delete

    public var help: String {
      switch self {
      case .keep: "it stays where it is"
      case .move: "it is moved to `to`; nothing is replaced there"
      case .delete: "it is deleted"
      }
    }
  }

  var changesSources: Bool { if case .keep = self { false } else { true } }

  /// Where a picture goes; nil where it is not moved.
  ///
  /// - Throws: `output-…`, where its own name or columns make no path below the template's folder.
  func target(of identity: ItemIdentity, in run: RunValues) throws(StageError) -> PathBytes? {
    guard case .move(let template) = self else { return nil }
    return try OutputPath.resolve(template, in: run.baseFolder) { variable in
      TemplateValues.value(of: variable, identity: identity, run: run, item: nil)
    }
  }
}

extension JobSpec {
  static let onSuccess = Field<Settings?>.optionalObject(
    "onSuccess", ObjectShape([After.source, After.to]),
    help: "what becomes of a picture, last, when everything that the job makes of it is written and booked")

  public enum After {
    static let source = Field<OnSuccess.Source>.choice("source", default: .keep, help: "what becomes of it")
    static let to = Field<Template>.template(
      "to", default: nil, when: FieldCondition("source", in: ["move"]),
      help: "the path it gets, seen from the job file, such as `done/${item.dir}/${item.name}`; folders are made")
  }

  /// What a job says; nil where it is not sound, which is complained about.
  static func readOnSuccess(
    _ settings: Settings, _ root: JSONNode, input: InputDeclaration?, stages: [JobStage], _ checker: inout FieldChecker
  ) -> OnSuccess? {
    guard let after = settings[onSuccess], let node = root["onSuccess"] else { return .keep }
    func refuse(_ code: String, _ message: String, at key: String, hint: String? = nil) {
      let place = node[key] ?? node
      checker.report(
        code, message, at: place.range, path: place.path, expected: "what leaves no doubt", found: key, hint: hint)
    }
    let source = after[After.source]
    guard source != .keep else { return .keep }
    let verb = source == .move ? "move" : "delete"
    switch input {
    case .addresses, .bucket, .imgur:
      refuse(
        "source-remote", "the job would \(verb) pictures that are no files here, which it cannot", at: "source",
        hint: "leave \"onSuccess\" out")
      return nil
    // What they name is known when the run is planned.
    case .list, .manifest, .files, .directory, nil: break
    }
    let writers = stages.filter { !$0.plan.outputs.isEmpty }
    if writers.isEmpty, !stages.isEmpty {
      refuse(
        "nothing-written", "the job would \(verb) pictures of which it writes nothing", at: "source",
        hint: "add a write stage")
      return nil
    }
    if writers.contains(where: \.plan.mayReplaceInputs) {
      refuse(
        "source-is-output", "the job would \(verb) pictures that its results may have replaced", at: "source",
        hint: "write elsewhere, without \"inPlace\"")
      return nil
    }
    guard source == .move else { return .delete }
    guard after.hasValue(for: After.to) else { return nil }
    let template = after[After.to]
    if case .literal(let end) = template.segments.last, end.last == UInt8(ascii: "/") {
      refuse(
        "output-name", "\"to\" names a folder, not a file: \(template.text)", at: "to",
        hint: "end it in ${item.name}")
      return nil
    }
    let unknown = template.variables.filter { variable in
      switch variable {
      case .ext, .imageWidth, .imageHeight, .itemHash: true
      default: false
      }
    }
    if let first = unknown.first {
      refuse(
        "unknown-variable", "\"to\" cannot name ${\(first.name)}: a source goes where its own name and columns say",
        at: "to", hint: first == .ext ? "${item.ext} is its own ending" : nil)
      return nil
    }
    return .move(template)
  }
}
