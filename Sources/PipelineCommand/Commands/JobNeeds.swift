import JobSyntax
import PipelineKit

/// What a job asks of whoever runs it, besides pictures: read from its text, so that it can also be told of a job whose
/// variables are not set.
struct JobNeeds: Sendable {
  /// Names of environment variables that hold credentials, in the order of the job.
  private(set) var secrets: [String] = []
  /// Names of other environment variables.
  private(set) var variables: [String] = []
  /// For each use of a bucket without keys of its own: the profile that the job names, nil for the usual one.
  private(set) var awsProfiles: [String?] = []
  /// Models of this machine, by name or path.
  private(set) var models: [String] = []

  private let vars: JSONNode?

  init(text: [UInt8]) {
    let root = StrictJSON.parse(SourceFile(name: "job", text: text)).root
    vars = root?["vars"]
    if let root { look(root) }
    if let bucket = root?["input"]?["s3"], bucket.objectValue != nil { lookForKeys(bucket) }
  }

  private mutating func look(_ node: JSONNode) {
    switch node.value {
    case .string(let text):
      for variable in Template.parse(text).template?.variables ?? [] {
        if case .secret(let name) = variable, !secrets.contains(name) { secrets.append(name) }
      }
      for name in Self.environmentNames(text) where !variables.contains(name) { variables.append(name) }
    case .array(let elements): for element in elements { look(element) }
    case .object(let members):
      for member in members { look(member.value) }
      switch text(node["stage"]) {
      case "segment":
        for provider in node["providers"]?.arrayValue ?? [node] { lookForModel(provider) }
      case "upload" where text(node["provider"]) == "s3": lookForKeys(node)
      default: break
      }
    default: break
    }
  }

  private mutating func lookForModel(_ node: JSONNode) {
    guard text(node["provider"]) ?? "local" == "local" else { return }
    let model = node["model"] == nil ? "u2netp" : text(node["model"])
    if let model, !models.contains(model) { models.append(model) }
  }

  private mutating func lookForKeys(_ node: JSONNode) {
    guard node["accessKeyId"] == nil else { return }
    let profile = text(node["profile"])
    if !awsProfiles.contains(profile) { awsProfiles.append(profile) }
  }

  /// A member's text, with a variable of the job that it is exactly.
  private func text(_ node: JSONNode?) -> String? {
    guard let text = node?.stringValue else { return nil }
    guard text.hasPrefix("${vars."), text.hasSuffix("}") else { return text }
    return vars?[String(text.dropFirst(7).dropLast())]?.stringValue
  }

  private static func environmentNames(_ text: String) -> [String] {
    var names: [String] = []
    var rest = text[...]
    while let start = rest.firstRange(of: "${env.") {
      let tail = rest[start.upperBound...]
      let name = tail.prefix { $0 != "}" }
      // `$${` is written for a literal `${`.
      let isLiteral = rest[..<start.lowerBound].last == "$"
      if !isLiteral, !name.isEmpty, name.endIndex != tail.endIndex { names.append(String(name)) }
      rest = tail
    }
    return names
  }
}
