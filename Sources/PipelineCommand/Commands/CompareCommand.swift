import Engine
import Glibc
import JobSyntax
import PipelineKit

/// `pipeline compare A B`.
enum CompareCommand {
  private static let threshold = Option<Double>(
    "threshold", "NUMBER", help: "how different a picture may look; see above (default 6)",
    expected: "a number from 0 to 100"
  ) { text in Double(text).flatMap { (0...100).contains($0) ? $0 : nil } }
  private static let html = Option<String>.text(
    "html", "FILE", help: "writes a page that shows the worst pictures side by side")
  private static let state = Option<String>.text(
    "state", "DIR", help: "the state folder that knows the runs (default .pipeline in the current folder)")

  static let defaultThreshold = 6.0

  static let command = Command(
    name: "compare", summary: "compares the pictures of two runs or two folders",
    notes: [
      "A and B are folders, reports of runs, or runs by their IDs, which must have written a report. Pictures of folders "
        + "are matched by their paths in them, those of runs by their inputs. The same bytes are the same picture; others "
        + "are decoded and compared as they look.",
      "--threshold is about the worst part of a picture, not about its mean, so that a spot is found in a large picture "
        + "too. The colours of cells of 4 by 4 pixels are compared by CIEDE2000, where 1 is just seen side by side; the "
        + "worst window of 8 by 8 pixels counts. So does the worst change in opacity, in percent, and what is lost in "
        + "structure all over the picture: 40 for each 1 that the structural similarity is below 1. At 6 another quality of "
        + "the same encoder passes as a rule, JPEG 85 instead of 90 for instance; what somebody would see does not. 0 "
        + "lets pass what is the same in every pixel, such as other metadata.",
      "Pictures of other sizes, with other numbers of frames, or that cannot be read are differences.",
      "Exit codes: 0 no differences, 1 differences, 2 wrong command line, 4 A or B cannot be read, or there is nothing to "
        + "compare.",
    ],
    operand: Operand(name: "A B", help: "what was, and what is now: folders, reports, or IDs of runs", count: 2...2),
    options: [threshold, html, JobOptions.format, state],
    examples: [
      "pipeline compare out/ out-new/", "pipeline compare before.json after.json --html changes.html",
      "pipeline compare out/ out-new/ --threshold 1 --format json",
    ],
    run: run)

  @Sendable private static func run(_ arguments: ParsedArguments, _ invocation: Invocation) throws(UsageError) -> Int32
  {
    let comparison: Comparison
    do throws(StageError) {
      let first = try side(arguments.operands[0], arguments[state])
      let second = try side(arguments.operands[1], arguments[state])
      guard !first.entries.isEmpty || !second.entries.isEmpty else {
        throw StageError(
          "compare-empty", "there is nothing to compare: neither \(first.name) nor \(second.name) holds a picture",
          kind: .environment)
      }
      comparison = try Comparison(first, second, threshold: arguments[threshold] ?? defaultThreshold)
    } catch {
      StandardStreams.complain(error.description)
      return ExitCode.cannotStart.rawValue
    }
    if arguments[JobOptions.format] == .json {
      invocation.output.print(comparison.json.rendered(pretty: true))
    } else {
      for finding in comparison.findings where finding.kind.isDifference {
        invocation.output.print(line(finding))
      }
    }
    invocation.output.flush()
    var code = comparison.isSame ? ExitCode.done : .someFailed
    if let file = arguments[html] {
      do throws(StageError) {
        let path = (PathBytes.currentFolder ?? "/").joining(PathBytes(file)).normalised
        try ResultKind.page.check(path, named: file)
        try ResultFile.write(ComparisonPage.page(comparison).rendered, to: path)
      } catch {
        StandardStreams.complain(error.description)
        code = .cannotStart
      }
    }
    StandardStreams.writeError(verdict(comparison) + "\n")
    return code.rawValue
  }

  /// What an operand names.
  private static func side(_ text: String, _ state: String?) throws(StageError) -> ComparedSide {
    let path = (PathBytes.currentFolder ?? "/").joining(PathBytes(text))
    let name = PathBytes(text).printable
    var status = stat()
    if path.withCString({ stat($0, &status) }) == 0 {
      if status.st_mode & S_IFMT == S_IFDIR { return try ComparedSide(folder: path.normalised, name: name) }
      do throws(StageError) {
        return try ComparedSide(report: path, name: name)
      } catch {
        var failure = error
        failure.hint = failure.hint ?? "compare takes folders of pictures, reports, and IDs of runs"
        throw failure
      }
    }
    let missing = String(cString: strerror(errno))
    let isID = text.utf8.allSatisfy { byte in
      byte == UInt8(ascii: "-") || (0x30...0x39).contains(byte) || (0x61...0x7A).contains(byte)
    }
    guard isID else {
      throw StageError("compare-unreadable", "\(name) cannot be read", kind: .environment, cause: missing)
    }
    return try ComparedSide(report: try report(ofRun: text, try StatePlace.locate(state, job: nil)), name: name)
  }

  private static func report(ofRun id: String, _ state: PathBytes) throws(StageError) -> PathBytes {
    var found: [LedgerRun] = []
    for folder in StateFolder.ledgers(in: state) {
      guard let ledger = try Ledger.open(folder, .readOnly) else { continue }
      defer { ledger.close() }
      found += try ledger.runs(limit: .max).filter { $0.id.hasPrefix(id) }
    }
    if found.contains(where: { $0.id == id }) { found.removeAll { $0.id != id } }
    func failure(_ message: String, hint: String) -> StageError {
      StageError("compare-run", message, kind: .environment, hint: hint)
    }
    guard let run = found.first else {
      throw failure(
        "\(id) is no file or folder, and no run of that ID is known in \(state.normalised.printable)",
        hint: "`pipeline runs` lists those that are; --state names another state folder")
    }
    guard found.count == 1 else {
      throw failure(
        "\(id) stands for \(found.count) runs or shards", hint: "write the whole ID, or join the reports of the shards")
    }
    guard let report = run.reportPath else {
      throw failure(
        "the run \(run.id) has written no report, so nobody knows what its pictures were", hint: "use run --report FILE"
      )
    }
    return report
  }

  /// `changed 12.3  a.jpg: worst at 120,80 …`.
  private static func line(_ finding: Comparison.Finding) -> String {
    var text = "\(finding.kind.rawValue): \(Wording.name(finding.name))"
    var parts: [String] = []
    if let reason = finding.reason { parts.append(Wording.oneLine(reason)) }
    if let difference = finding.difference {
      parts.append("\(Wording.oneDecimal(difference.amount)), worst at \(difference.worstX),\(difference.worstY)")
    }
    if !parts.isEmpty { text += ": " + parts.joined(separator: "; ") }
    return text
  }

  private static func verdict(_ comparison: Comparison) -> String {
    Comparison.Kind.allCases.filter { comparison.count($0) > 0 }
      .map { "\(comparison.count($0)) \($0.rawValue)" }.joined(separator: ", ")
      + " of \(Wording.count(comparison.findings.count, "picture"))"
  }
}
