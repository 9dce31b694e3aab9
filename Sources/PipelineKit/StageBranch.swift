import JobSyntax

/// One of the tails that a stage sends its result down.
public struct StageBranch: Sendable {
  public var name: String
  /// A list of stages; its members are checked by the job's linter, which knows the registry.
  public var stages: JSONNode
}

extension Field where Value == [StageBranch] {
  /// Chains by name. A stage with such a field is the last of its own chain, and each of these goes on with its result.
  public static func branches(_ name: String, help: String) -> Self {
    .init(name, type: .branches, absent: nil, help: help) { node, _ in
      node.objectValue?.map { StageBranch(name: $0.key, stages: $0.value) }
    }
  }
}

extension StageSpec {
  /// The field that holds the stage's tails; nil for a stage that has none.
  public var branchesField: String? {
    fields.first { if case .branches = $0.type { true } else { false } }?.name
  }
}

extension FieldChecker {
  mutating func checkBranches(_ node: JSONNode, name: String) {
    guard let members = node.objectValue else {
      report(
        "wrong-type", "\"\(name)\" expects \(FieldType.branches.description), got \(node.value.typeName)",
        at: node.range, path: node.path, expected: FieldType.branches.description, found: node.value.typeName)
      return
    }
    if members.isEmpty {
      report(
        "empty-chain", "\"\(name)\" is empty: a branch needs at least one tail", at: node.range, path: node.path,
        expected: "a name with a list of stages", found: "none")
    }
    for member in members {
      if !Self.isBranchName(member.key) {
        report(
          "wrong-value", "\"\(member.key)\" is no name for a tail", at: member.keyRange, path: member.value.path,
          expected: "letters, digits, \"-\" and \"_\"", found: member.key)
      }
      guard !skipping.contains(member.value.path) else { continue }
      if let stages = member.value.arrayValue {
        if stages.isEmpty {
          report(
            "empty-chain", "the tail \"\(member.key)\" is empty", at: member.value.range, path: member.value.path,
            expected: "stages", found: "none")
        }
      } else {
        report(
          "wrong-type", "the tail \"\(member.key)\" expects a list of stages, got \(member.value.value.typeName)",
          at: member.value.range, path: member.value.path, expected: "a list of stages",
          found: member.value.value.typeName)
      }
    }
  }

  private static func isBranchName(_ name: String) -> Bool {
    !name.isEmpty
      && name.utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
          true
        default: false
        }
      }
  }
}

/// Settings that every stage has, whatever it does; declared here once.
public enum CommonFields {
  public static let when = Field<Condition?>.condition(
    "when",
    help:
      "a condition; where it does not hold, the stage is passed over and the picture goes on as it was, and a `branch` "
      + "ends the picture's way there")

  public static let all: [any FieldDeclaration] = [when]
}
