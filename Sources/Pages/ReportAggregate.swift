import JobSyntax

/// What is added up over all pictures of a report.
struct ReportAggregate {
  struct Stage {
    var name: String
    /// Milliseconds, of each picture.
    var times: [Float] = []
    var total = 0.0

    /// The time that a share of the pictures stays within; sorted times.
    func quantile(_ share: Double) -> Double {
      guard !times.isEmpty else { return 0 }
      return Double(times[min(times.count - 1, Int(Double(times.count) * share))])
    }
  }

  /// Pictures that ended badly in the same way.
  struct Group {
    var status: String
    var stage: String?
    var code: String
    var hint: String?
    var count = 0
    /// The first ones: their places on the page, names and messages.
    var examples: [(sequence: Int, name: String, message: String)] = []
  }

  static let mostExamples = 25

  var stages: [Stage] = []
  private var stageIndices: [String: Int] = [:]
  var groups: [Group] = []
  private var groupIndices: [[String?]: Int] = [:]
  var statuses: [String: Int] = [:]
  var count = 0
  var withWarnings = 0
  var warnings = 0
  /// Bytes of the pictures of which both are known.
  var bytesIn = 0
  var bytesOut = 0
  var sized = 0
  var outputs = 0

  mutating func add(_ item: ReportItem, sequence: Int) {
    count += 1
    statuses[item.status, default: 0] += 1
    outputs += item.outputs.count
    warnings += item.warnings.count
    if !item.warnings.isEmpty { withWarnings += 1 }
    for (name, time) in item.times {
      let index: Int
      if let known = stageIndices[name] {
        index = known
      } else {
        index = stages.count
        stageIndices[name] = index
        stages.append(Stage(name: name))
      }
      stages[index].times.append(Float(time))
      stages[index].total += time
    }
    if let bytes = item.inputBytes, let out = item.outputBytes {
      // However large a report says that they are: each is below 2 to the power of 53.
      bytesIn = min(bytesIn + max(0, bytes), 1 << 60)
      bytesOut = min(bytesOut + max(0, out), 1 << 60)
      sized += 1
    }
    guard ["failed", "unknown", "deferred", "review"].contains(item.status) else { return }
    let code = item.errorCode ?? (item.status == "review" ? "" : item.reason ?? "")
    let key = [item.status, item.errorStage, code, item.errorHint]
    let index: Int
    if let known = groupIndices[key] {
      index = known
    } else {
      index = groups.count
      groupIndices[key] = index
      groups.append(Group(status: item.status, stage: item.errorStage, code: code, hint: item.errorHint))
    }
    groups[index].count += 1
    if groups[index].examples.count < Self.mostExamples {
      let message = item.errorMessage ?? item.reason ?? ""
      groups[index].examples.append(
        (sequence, item.name, item.errorCause.map { "\(message) (\($0))" } ?? message))
    }
  }

  /// Puts everything into the order it is shown in.
  mutating func finish() {
    for index in stages.indices { stages[index].times.sort() }
    let rank = ["failed": 0, "unknown": 1, "deferred": 2, "review": 3]
    groups.sort { a, b in
      (rank[a.status, default: 9], -a.count, a.code) < (rank[b.status, default: 9], -b.count, b.code)
    }
  }
}
