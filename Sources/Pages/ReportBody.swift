import Glibc
import JobSyntax
import PipelineKit

/// What stands on a report's page before any script has run: summary, times of stages, failures, and the tools and the
/// place for the pictures.
struct ReportBody {
  let run: JSONNode
  let total: ReportAggregate
  let options: ReportPage.Options

  var html: HTML {
    """
    <header class="top"><div class="wrap">\(heading)</div></header>
    <main id="main" class="wrap">
    \(summary)
    \(failures)
    \(stages)
    \(pictures)
    \(details)
    </main>
    <dialog id="detail" aria-labelledby="detail-name"></dialog>
    \(help)
    """
  }

  private var exitCode: Int { run["exitCode"]?.numberValue?.integer ?? 0 }

  /// The exit code in words, and how good that is.
  private var outcome: (text: String, kind: String) {
    switch exitCode {
    case 0 where total.count > 0 && total.statuses["skipped"] == total.count:
      ("nothing to do, all up to date", "good")
    case 0: ("everything done", "good")
    case 1: ("some pictures failed", "bad")
    case 2: ("wrong command line", "bad")
    case 3: ("wrong job file", "bad")
    case 4: ("could not start", "bad")
    case 5: ("stopped at a limit", "warn")
    case 75: ("another run held the lock", "warn")
    case 129: ("interrupted by SIGHUP", "warn")
    case 130: ("interrupted by SIGINT", "warn")
    case 143: ("interrupted by SIGTERM", "warn")
    default: ("ended with exit code \(exitCode)", "bad")
    }
  }

  private func number(_ key: String) -> Double? { run[key]?.numberValue?.double }

  private var heading: HTML {
    let (text, kind) = outcome
    let job = run["job"]?.stringValue ?? "run"
    var line: [HTML] = []
    if let started = run["started"]?.stringValue {
      let shown = started.replacingSign("T", with: " ").replacingSign("Z", with: " UTC")
      line.append("<time datetime=\"\(started)\">\(shown)</time>")
    }
    if let seconds = number("wallSeconds") {
      line.append("took \(PageNumbers.duration(milliseconds: seconds * 1000))")
    }
    line.append("exit code \(exitCode)")
    if let shard = run["shard"], let index = shard["index"]?.numberValue?.integer,
      let count = shard["count"]?.numberValue?.integer
    {
      line.append("shard \(index) of \(count)")
    }
    if let shards = run["shards"]?.numberValue?.integer { line.append("merged from \(shards) shards") }
    let parts = line.map { part -> HTML in "<span>\(part)</span>" }.joined(separator: " ")
    return """
      <div class="title"><h1>\(job)</h1> <span class="pill \(HTML(text: kind))">\(text)</span></div>
      <p class="meta">\(parts)</p>
      \(bar)
      """
  }

  /// How many ended how, as one bar.
  private var bar: HTML {
    guard total.count > 0 else { return "" }
    var html: HTML = """
      <svg class="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">
      """
    var x = 0.0
    for status in ReportPage.statuses {
      let count = total.statuses[status.name] ?? 0
      guard count > 0 else { continue }
      let width = Double(count) / Double(total.count) * 1000
      html += """
        <rect class="fill \(HTML(text: status.kind))" x="\(plain(x))" y="0" \
        width="\(plain(max(2, width)))" height="10"/>
        """
      x += width
    }
    return html + "</svg>"
  }

  private func plain(_ number: Double) -> String {
    let tenths = Int((number * 10).rounded())
    return "\(tenths / 10).\(abs(tenths % 10))"
  }

  private var summary: HTML {
    var tiles: [HTML] = []
    func tile(_ label: String, _ value: String, _ more: String, kind: String = "") {
      tiles.append(
        """
        <div class="stat"><dt>\(label)</dt><dd><b class="\(HTML(text: kind))">\(value)</b>\
        <span class="soft">\(more)</span></dd></div>
        """)
    }
    tile("Pictures", PageNumbers.grouped(total.count), PageNumbers.count(total.outputs, "result"))
    for status in ReportPage.statuses {
      let count = total.statuses[status.name] ?? 0
      guard count > 0 || status.name == "done" || status.name == "failed" else { continue }
      let share = total.count > 0 ? PageNumbers.decimal(Double(count) / Double(total.count) * 100, 1) + " %" : ""
      let label = status.label.prefix(1).uppercased() + status.label.dropFirst()
      tile(label, PageNumbers.grouped(count), share, kind: count > 0 ? status.kind : "")
    }
    if total.warnings > 0 {
      tile(
        "Warnings", PageNumbers.grouped(total.warnings), "on \(PageNumbers.count(total.withWarnings, "picture"))",
        kind: "warn")
    }
    if let seconds = number("wallSeconds") {
      let worked = total.count - (total.statuses["skipped"] ?? 0) - (total.statuses["notAttempted"] ?? 0)
      let rate =
        seconds > 0 && worked > 0 ? "\(PageNumbers.decimal(Double(worked) / seconds, 1)) pictures a second" : ""
      tile("Time", PageNumbers.duration(milliseconds: seconds * 1000), rate)
    }
    if total.sized > 0 {
      tile(
        "Bytes in → out", PageNumbers.change(from: total.bytesIn, to: total.bytesOut),
        "\(PageNumbers.bytes(total.bytesIn)) → \(PageNumbers.bytes(total.bytesOut))"
          + (total.sized < total.count ? ", \(PageNumbers.count(total.sized, "picture"))" : ""))
    }
    if let peak = run["peakBytes"]?.numberValue?.integer, peak > 0 {
      let cpu = number("cpuSeconds").map { "\(PageNumbers.duration(milliseconds: $0 * 1000)) of processor" } ?? ""
      tile("Peak memory", PageNumbers.bytes(peak), cpu)
    }
    return """
      <section aria-labelledby="summary"><h2 id="summary" class="unseen">Summary</h2>
      \(problems)<dl class="stats">\(tiles.joined())</dl></section>
      """
  }

  /// What went wrong with the run itself.
  private var problems: HTML {
    var lines: [HTML] = []
    if let message = run["error"]?["message"]?.stringValue { lines.append("<b>Could not start.</b> \(message)") }
    if let stop = run["stop"]?.stringValue { lines.append("<b>Stopped early:</b> \(stop)") }
    for error in run["errors"]?.arrayValue ?? [] {
      lines.append("\(error["message"]?.stringValue ?? error["code"]?.stringValue ?? "")")
    }
    if let crashes = run["crashes"]?.numberValue?.integer, crashes > 0 {
      lines.append("The program crashed \(crashes == 1 ? "once" : "\(crashes) times") and took up again.")
    }
    return lines.map { line -> HTML in "<p class=\"notice\" role=\"note\">\(line)</p>" }.joined()
  }

  private var failures: HTML {
    guard !total.groups.isEmpty else { return "" }
    let groups = total.groups.map { group -> HTML in
      let status = ReportPage.statuses.first { $0.name == group.status }
      var examples = group.examples.map { example -> HTML in
        let same = example.message == group.examples[0].message
        return """
          <li><a href="#picture-\(example.sequence)"><bdi>\(example.name)</bdi></a>\
          \(same ? HTML() : "<span class=\"soft\">: \(example.message)</span>")</li>
          """
      }.joined()
      if group.count > group.examples.count {
        examples += """
          <li class="soft">and \(PageNumbers.count(group.count - group.examples.count, "more picture")), \
          below under “Pictures”</li>
          """
      }
      var whereabouts: HTML = group.code.isEmpty ? "" : "<code>\(group.code)</code>"
      if let stage = group.stage { whereabouts += " in stage <code>\(stage)</code>" }
      let hint: HTML = group.hint.map { "<p class=\"hint\"><b>Try:</b> \($0)</p>" } ?? ""
      return """
        <details class="failure \(HTML(text: status?.kind ?? ""))"\(total.groups.count <= 6 ? " open" : "")>
        <summary><span class="pill \(HTML(text: status?.kind ?? ""))">\(status?.label ?? group.status)</span> \
        <strong>\(group.examples[0].message)</strong> <span class="soft">\(whereabouts) · \
        \(PageNumbers.count(group.count, "picture"))</span></summary>
        \(hint)<ul>\(examples)</ul></details>
        """
    }.joined(separator: "\n")
    let isFailing = total.groups.contains { $0.status != "review" }
    let title: HTML = isFailing ? "Failures, by cause" : "For review"
    return "<section aria-labelledby=\"failures\"><h2 id=\"failures\">\(title)</h2>\n\(groups)</section>"
  }

  private var stages: HTML {
    guard !total.stages.isEmpty else { return "" }
    let all = total.stages.reduce(0) { $0 + $1.total }
    let most = max(total.stages.map(\.total).max() ?? 0, 0.001)
    let low = max(0.05, total.stages.compactMap { $0.times.first.map(Double.init) }.min() ?? 0.05)
    let high = max(low * 10, total.stages.compactMap { $0.times.last.map(Double.init) }.max() ?? 1)
    /// On a logarithmic scale from 0 to 1,000.
    func place(_ time: Double) -> Double { log(max(time, low) / low) / log(high / low) * 1000 }
    let rows = total.stages.map { stage -> HTML in
      let p = [0.05, 0.25, 0.5, 0.75, 0.95].map { stage.quantile($0) }
      let x = p.map(place)
      let share = all > 0 ? stage.total / all * 100 : 0
      return """
        <tr><th scope="row"><bdi>\(stage.name)</bdi></th>
        <td class="graph"><svg viewBox="0 0 1000 20" preserveAspectRatio="none" aria-hidden="true">\
        <rect class="track" x="0" y="3" width="1000" height="14"/>\
        <rect class="fill accent" x="0" y="3" width="\(plain(stage.total / most * 1000))" height="14"/></svg></td>
        <td class="n">\(PageNumbers.duration(milliseconds: stage.total))</td>
        <td class="n">\(PageNumbers.decimal(share, 1)) %</td>
        <td class="graph"><svg viewBox="0 0 1000 20" preserveAspectRatio="none" aria-hidden="true">\
        <rect class="track" x="0" y="9" width="1000" height="2"/>\
        <rect class="whisker" x="\(plain(x[0]))" y="8" width="\(plain(max(3, x[4] - x[0])))" height="4"/>\
        <rect class="box" x="\(plain(x[1]))" y="4" width="\(plain(max(6, x[3] - x[1])))" height="12"/>\
        <rect class="median" x="\(plain(max(0, x[2] - 4)))" y="2" width="8" height="16"/></svg></td>
        <td class="n">\(PageNumbers.duration(milliseconds: p[2]))</td>
        <td class="n">\(PageNumbers.duration(milliseconds: p[4]))</td>
        <td class="n">\(PageNumbers.duration(milliseconds: stage.times.last.map(Double.init) ?? 0))</td>
        <td class="n">\(PageNumbers.grouped(stage.times.count))</td></tr>
        """
    }.joined(separator: "\n")
    return """
      <section aria-labelledby="times"><h2 id="times">Time by stage</h2>
      <div class="panel scroll" tabindex="0" role="region" aria-labelledby="times"><table class="times">
      <thead><tr><th scope="col">Stage</th><th scope="col">All pictures</th><th scope="col" class="n">Total</th>
      <th scope="col" class="n">Share</th><th scope="col">One picture</th><th scope="col" class="n">Median</th>
      <th scope="col" class="n">95 %</th><th scope="col" class="n">Longest</th>
      <th scope="col" class="n">Pictures</th></tr>
      </thead><tbody>
      \(rows)
      </tbody></table>
      <p class="soft legend">Stages of several pictures run at one time, so totals add up to more than the run took. \
      “One picture”, on a logarithmic scale: the mark is the median, the box holds half of the pictures, the line \
      nine of ten.</p></div></section>
      """
  }

  private var pictures: HTML {
    var choices: HTML = "<option value=\"\">all (\(PageNumbers.grouped(total.count)))</option>"
    for (index, status) in ReportPage.statuses.enumerated() {
      guard let count = total.statuses[status.name] else { continue }
      choices += "<option value=\"\(index)\">\(status.label) (\(PageNumbers.grouped(count)))</option>"
    }
    return """
      <section aria-labelledby="pictures"><h2 id="pictures">Pictures</h2>
      <div class="tools" role="search" aria-label="Pictures">
      <label class="grow"><span>Name</span><input id="search" type="search" placeholder="part of a name" \
      autocomplete="off" spellcheck="false"></label>
      <label><span>Status</span><select id="status">\(choices)</select></label>
      <label><span>Sort by</span><select id="sort"><option value="order">order of the job</option>\
      <option value="name">name</option><option value="time">time</option><option value="size">size of results</option>\
      <option value="saving">savings</option><option value="score">score</option></select></label>
      <button id="direction" type="button" aria-pressed="false" aria-label="Turn the order round">↑↓</button>
      <label><span>Behind</span><select id="background"><option value="checker">checkerboard</option>\
      <option value="white">white</option><option value="grey">grey</option><option value="black">black</option>\
      </select></label>
      <label class="check"><input id="warned" type="checkbox"> with warnings</label>
      <button id="keys" type="button" aria-haspopup="dialog">Keys <kbd>?</kbd></button>
      </div>
      <p id="shown" class="soft" role="status" aria-live="polite"></p>
      <noscript><p class="notice">The pictures are shown by a script, and scripts are turned off here.</p></noscript>
      <div id="list" role="list" aria-labelledby="pictures"></div></section>
      """
  }

  /// Whatever else the report says of the run.
  private var details: HTML {
    let shown: Set<String> = [
      "job", "counts", "exitCode", "error", "errors", "stop", "peakBytes", "wallSeconds", "cpuSeconds", "started",
      "runs",
      "crashes",
    ]
    var rows: [HTML] = []
    func add(_ name: String, _ value: JSONNode) {
      if let members = value.objectValue {
        for member in members { add("\(name).\(member.key)", member.value) }
      } else if let elements = value.arrayValue, elements.contains(where: { $0.objectValue != nil }) {
        for (index, element) in elements.enumerated() { add("\(name) \(index + 1)", element) }
      } else if !value.isNull, rows.count < 500 {
        let text = value.stringValue ?? JSONText(value.value).rendered()
        rows.append("<div><dt>\(name)</dt><dd class=\"mono\"><bdi>\(text)</bdi></dd></div>")
      }
    }
    if let machine = options.machine { rows.append("<div><dt>machine</dt><dd>\(machine)</dd></div>") }
    for member in run.objectValue ?? [] where !shown.contains(member.key) { add(member.key, member.value) }
    for (index, single) in (run["runs"]?.arrayValue ?? []).enumerated() {
      for key in ["id", "started", "wallSeconds", "exitCode", "stop", "error"] {
        if let value = single[key] { add("run \(index + 1).\(key)", value) }
      }
    }
    return """
      <section aria-labelledby="run"><h2 id="run">The run</h2>
      <dl class="panel facts">
      \(rows.joined(separator: "\n"))
      </dl></section>
      """
  }

  private var help: HTML {
    let keys: [(HTML, HTML)] = [
      ("<kbd>/</kbd>", "go to the search"), ("<kbd>f</kbd>", "failed pictures only, or all again"),
      ("<kbd>w</kbd>", "pictures with warnings only, or all again"), ("<kbd>b</kbd>", "next background"),
      ("<kbd>j</kbd> <kbd>k</kbd>", "next and previous picture"), ("<kbd>Enter</kbd>", "open a picture"),
      (
        "<kbd>←</kbd> <kbd>→</kbd>",
        "move the handle between before and after; in an open picture, the one before or after it"
      ),
      ("<kbd>Home</kbd> <kbd>End</kbd>", "all after, all before"), ("<kbd>Esc</kbd>", "close"),
      ("<kbd>?</kbd>", "this list"),
    ]
    let rows = keys.map { key, what -> HTML in "<div><dt>\(key)</dt><dd>\(what)</dd></div>" }.joined()
    return """
      <dialog id="help" aria-labelledby="help-name"><h2 id="help-name">Keys</h2><dl class="facts">\(rows)</dl>
      <button type="button" data-close>Close</button></dialog>
      """
  }
}

extension String {
  fileprivate func replacingSign(_ sign: Character, with text: String) -> String {
    reduce(into: "") { $0 += $1 == sign ? text : String($1) }
  }
}
