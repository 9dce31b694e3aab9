import Dispatch
import Engine
import Imaging
import Pages
import PipelineKit
import Synchronization

/// A comparison as a page: the worst pictures first, with both sides under a slider and where they differ.
enum ComparisonPage {
  /// So many are shown with pictures; the others by name.
  static let mostShown = 100
  private static let side = 560
  /// Pixels around the worst place.
  private static let cropSide = 96

  private static let style: StaticString = """
    .findings { display: grid; gap: 20px; margin: 12px 0 20px; }
    .finding h3 { margin: 0 0 4px; overflow-wrap: anywhere; }
    .finding .sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(220px, 1fr)); gap: 14px; align-items: start; }
    .finding figure { margin: 0; min-width: 0; max-width: 560px; }
    .finding .pill.warn { white-space: normal; border-radius: 8px; overflow-wrap: anywhere; }
    .finding figcaption { color: var(--soft); font-size: 13px; margin-top: 4px; }
    main > section:not(.panel) > h2 { margin-top: 24px; }
    main > .panel + .panel { margin-top: 20px; }
    .finding .map, .finding .near img { image-rendering: pixelated; width: 100%; height: auto; border-radius: 6px; }
    .names { columns: 2 320px; overflow-wrap: anywhere; }
    """

  static func page(_ comparison: Comparison) -> Page {
    let worst = comparison.findings.filter { $0.kind == .changed }
    let shown = Array(worst.prefix(mostShown))
    let pictures = Mutex<[Int: Pictures]>([:])
    DispatchQueue.concurrentPerform(iterations: shown.count) { index in
      let made = Pictures(shown[index])
      pictures.withLock { $0[index] = made }
    }
    let made = pictures.withLock { $0 }
    let verdict: HTML =
      comparison.isSame
      ? "<span class=\"pill good\">no differences</span>" : "<span class=\"pill bad\">differences</span>"
    var body: HTML = """
      <header class="wrap"><h1>Comparison</h1>
      <p><span class="mono">\(comparison.first.name)</span> (before) with <span class="mono">\(comparison.second.name)</span> (after), \
      threshold \(Wording.oneDecimal(comparison.threshold)) \(verdict)</p>
      </header>
      <main id="main" class="wrap">
      <section class="panel" aria-labelledby="counts"><h2 id="counts">Pictures</h2><div class="scroll"><table><thead><tr>
      """
    for kind in Comparison.Kind.allCases { body += "<th scope=\"col\" class=\"n\">\(kind.rawValue)</th>" }
    body += "</tr></thead><tbody><tr>"
    for kind in Comparison.Kind.allCases { body += "<td class=\"n\">\(comparison.count(kind))</td>" }
    body += "</tr></tbody></table></div>\(versions(comparison))</section>"
    if !shown.isEmpty {
      body +=
        "<section aria-labelledby=\"changed\"><h2 id=\"changed\">Changed, the worst first</h2><div class=\"findings\">"
      for (index, finding) in shown.enumerated() { body += article(finding, made[index]) }
      body += "</div>"
      if worst.count > shown.count {
        body += "<p>\(worst.count - shown.count) more:</p>" + names(worst.dropFirst(mostShown))
      }
      body += "</section>"
    }
    for (kind, title) in [
      (Comparison.Kind.missing, "Missing: only before" as HTML), (.added, "Added: only after"),
      (.alike, "Alike: other bytes, below the threshold"),
    ] {
      let findings = comparison.findings.filter { $0.kind == kind }
      guard !findings.isEmpty else { continue }
      body += "<section class=\"panel\"><h2>\(title)</h2>\(names(findings[...]))</section>"
    }
    body += "</main>"
    var page = Page(title: "Comparison of \(comparison.first.name) and \(comparison.second.name)", body: body)
    page.styles = [style]
    return page
  }

  /// What made the pictures, where it is not the same.
  private static func versions(_ comparison: Comparison) -> HTML {
    let (before, after) = (comparison.first.versions, comparison.second.versions)
    let names = Set(before.keys).union(after.keys).sorted().filter { before[$0] != after[$0] }
    guard !before.isEmpty, !after.isEmpty, !names.isEmpty else { return "" }
    let rows = names.map { name in
      "<tr><th scope=\"row\">\(name)</th><td>\(before[name] ?? "–")</td><td>\(after[name] ?? "–")</td></tr>" as HTML
    }
    return """
      <div class="scroll"><table><thead><tr><th scope="col">version</th><th scope="col">before</th><th scope="col">after</th></tr></thead>\
      <tbody>\(rows.joined())</tbody></table></div>
      """
  }

  private static func names(_ findings: ArraySlice<Comparison.Finding>) -> HTML {
    let most = 2000
    let rows = findings.prefix(most).map { finding in
      let amount = finding.difference.map { " (\(Wording.oneDecimal($0.amount)))" } ?? ""
      return "<li>\(HTML.visible(finding.name))\(amount)\(finding.reason.map { ": \($0)" } ?? "")</li>" as HTML
    }
    let rest: HTML = findings.count > most ? "<p>and \(findings.count - most) more</p>" : ""
    return "<ul class=\"names\">\(rows.joined())</ul>\(rest)"
  }

  private static func article(_ finding: Comparison.Finding, _ pictures: Pictures?) -> HTML {
    let name = HTML.visible(finding.name)
    var html: HTML = "<article class=\"panel finding\"><h3>\(name)</h3><p class=\"soft\">"
    if let difference = finding.difference {
      html += """
        <span class="pill bad">\(Wording.oneDecimal(difference.amount))</span> colour \
        \(Wording.oneDecimal(difference.worstColour)) at \(difference.worstX),\(difference.worstY), \
        \(Wording.oneDecimal(difference.colour)) on average; opacity \(Wording.oneDecimal(difference.worstAlpha)) %; structure \
        \(Wording.oneDecimal(difference.similarity * 100)) % the same.
        """
    }
    if let reason = finding.reason { html += "<span class=\"pill warn\">\(reason)</span>" }
    html += "</p><div class=\"sides\">"
    guard let pictures, pictures.before != nil || pictures.after != nil else { return html + "</div></article>" }
    let pair = BeforeAfter(
      before: pictures.before, after: pictures.after, label: name, background: .checker, placeholder: "no picture")
    html += "<figure>\(pair.html)<figcaption>the whole picture</figcaption></figure>"
    if let near = pictures.near {
      for (picture, what) in [(near.before, "before" as HTML), (near.after, "after")] {
        html += """
          <figure class="near"><img class="checker" src="\(picture.source)" width="\(picture.width)" height="\(picture.height)" \
          alt="\(name), the worst place, \(what)" loading="lazy"><figcaption>the worst place, \(what)</figcaption></figure>
          """
      }
    }
    if let map = pictures.map {
      html += """
        <figure><img class="map" src="\(map.source)" width="\(map.width)" height="\(map.height)" \
        alt="\(name), where the pictures differ" loading="lazy"><figcaption>differences in red</figcaption></figure>
        """
    }
    return html + "</div></article>"
  }

  /// What is shown of one picture.
  private struct Pictures: Sendable {
    var before: PagePicture?
    var after: PagePicture?
    var near: (before: PagePicture, after: PagePicture)?
    var map: PagePicture?

    /// What cannot be read is left out: the finding says why.
    init(_ finding: Comparison.Finding) {
      let first = Self.image(finding.first)
      let second = Self.image(finding.second)
      before = first.flatMap { try? Thumbnail.picture(of: $0, side: ComparisonPage.side) }
      after = second.flatMap { try? Thumbnail.picture(of: $0, side: ComparisonPage.side) }
      guard let first, let second, let difference = finding.difference, first.width == second.width,
        first.height == second.height
      else { return }
      map = (try? PictureDifference.compare(first, second)).flatMap { try? Thumbnail.picture(of: $0.map, side: side) }
      let crop = ComparisonPage.cropSide
      guard max(first.width, first.height) > crop else { return }
      func start(_ middle: Int, _ length: Int) -> Int { max(0, min(length - min(crop, length), middle - crop / 2)) }
      func cut(_ image: Image) -> PagePicture? {
        let part = try? image.cropped(
          x: start(difference.worstX, image.width), y: start(difference.worstY, image.height),
          width: min(crop, image.width), height: min(crop, image.height))
        return part.flatMap { try? Thumbnail.picture(of: $0, side: crop) }
      }
      if let one = cut(first), let two = cut(second) { near = (one, two) }
    }

    private static func image(_ entry: ComparedSide.Entry?) -> Image? {
      guard let path = entry?.path, let source = try? EncodedPicture(path: path.bytes) else { return nil }
      return try? source.pixels()
    }
  }
}
