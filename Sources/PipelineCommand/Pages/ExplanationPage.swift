import Engine
import Imaging
import JobSyntax
import Pages
import PipelineKit

/// An explanation as a page that carries small copies of its pictures and links to the large ones beside it.
enum ExplanationPage {
  private static let style: StaticString = """
    .stages { display: grid; gap: 20px; margin-top: 20px; }
    .stage h2 { margin: 0 0 4px; overflow-wrap: anywhere; }
    .stage .sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(260px, 1fr)); gap: 14px; align-items: start; }
    .stage figure { margin: 0; min-width: 0; max-width: 640px; }
    .stage figcaption { font-size: 13px; margin-top: 4px; overflow-wrap: anywhere; }
    .stage figcaption a { overflow-wrap: anywhere; }
    .stage pre { overflow-x: auto; font-size: 13px; }
    .stage .flat { max-width: 100%; height: auto; border-radius: 6px; display: block; }
    .stage p { overflow-wrap: anywhere; }
    """

  static func page(_ explanation: Explanation) -> Page {
    let name = HTML.visible(explanation.input)
    let pill: HTML =
      explanation.isFine
      ? "<span class=\"pill good\">\(explanation.status.rawValue)</span>"
      : "<span class=\"pill bad\">\(explanation.status.rawValue)</span>"
    var body: HTML = """
      <header class="wrap"><h1>\(name)</h1><p>through the job <b>\(explanation.job)</b> \(pill)</p>
      """
    if let reason = explanation.reason { body += "<p>\(HTML.visible(reason))</p>" }
    body += "<p class=\"soft\">Pictures are held in \(explanation.workingSpace)."
    if let bytes = explanation.estimatedBytes { body += " A run sets \(Wording.bytes(bytes)) aside for this one." }
    body += """
      </p></header><main id="main" class="wrap"><section class="panel" aria-labelledby="times"><h2 id="times">Stages</h2>\
      <div class="scroll"><table><thead><tr><th scope="col">stage</th><th scope="col" class="n">time</th>\
      <th scope="col" class="n">size</th><th scope="col">pixels</th><th scope="col">colours</th>\
      <th scope="col" class="n">memory</th></tr></thead><tbody>
      """
    for (index, stage) in explanation.stages.enumerated() {
      body += """
        <tr><th scope="row"><a href="#stage-\(index + 1)">\(stage.label)</a></th>\
        <td class="n">\(stage.milliseconds.map { "\(Wording.oneDecimal($0)) ms" } ?? "–")</td>\
        <td class="n">\(stage.size.map { "\($0.width) × \($0.height)" } ?? "")</td>\
        <td>\(stage.bands.map { "\($0) × \(stage.depth ?? 8) bits" } ?? "")</td><td>\(stage.space ?? "")</td>\
        <td class="n">\(stage.heldBytes > 0 ? Wording.bytes(stage.heldBytes) : "")</td></tr>
        """
    }
    body += "</tbody></table></div></section><div class=\"stages\">"
    // What each stage left, or let pass.
    var left: [PagePicture?] = []
    for (index, stage) in explanation.stages.enumerated() {
      let shown = (stage.file(.encoded) ?? stage.file(.picture))?.preview
        .flatMap { try? Thumbnail.picture(of: $0.image, side: 640) }
      let before = stage.predecessor.flatMap { left[$0] }
      body += section(stage, number: index + 1, shown, before: before)
      left.append(shown ?? before)
    }
    body += "</div></main>"
    var page = Page(title: "\(name) through \(explanation.job)", body: body)
    page.styles = [style]
    return page
  }

  private static func section(
    _ stage: Explanation.Stage, number: Int, _ shown: PagePicture?, before: PagePicture?
  ) -> HTML {
    var html: HTML = "<section class=\"panel stage\" id=\"stage-\(number)\"><h2>\(number). \(stage.label)</h2>"
    switch stage.fate {
    case .passed:
      if let bytes = stage.encodedBytes {
        html += "<p><span class=\"pill accent\">\(stage.format ?? "")</span> \(Wording.bytes(bytes))</p>"
      }
    case .passedOver(let text): html += "<p><span class=\"pill\">passed over</span> \(text)</p>"
    case .withheld(let text): html += "<p><span class=\"pill accent\">not carried out</span> \(HTML.visible(text))</p>"
    case .ended(let status, let text):
      html += "<p><span class=\"pill warn\">\(status.rawValue)</span> \(HTML.visible(text))</p>"
    case .failed(let error):
      html += "<p><span class=\"pill bad\">failed</span> \(HTML.visible(error.message))</p>"
      if let cause = error.cause, !cause.isEmpty { html += "<p class=\"soft\">\(HTML.visible(cause))</p>" }
      if let hint = error.hint { html += "<p>Try: \(HTML.visible(hint))</p>" }
    }
    for warning in stage.warnings {
      html += "<p><span class=\"pill warn\">\(warning.code)</span> \(HTML.visible(warning.message))</p>"
    }
    for matte in stage.mattes {
      func percent(_ share: Double) -> String { "\(Int((share * 100).rounded())) %" }
      html += """
        <p class="soft">Mask by \(matte.provider)\(matte.model.map { ", \($0)" } ?? ""): score \(percent(matte.score)), \
        covers \(percent(matte.coverage)), \(Wording.count(matte.islands, "part")).</p>
        """
    }
    html += "<div class=\"sides\">"
    for file in stage.files {
      let link: HTML = "<a href=\"\(PageLink(file: PathBytes("/" + file.name), from: "/"))\">\(file.name)</a>"
      if file.role == .matte {
        guard let preview = file.preview, let small = try? Thumbnail.picture(of: preview.image, side: 640) else {
          continue
        }
        html += """
          <figure><img class="flat" src="\(small.source)" width="\(small.width)" height="\(small.height)" \
          alt="mask after \(stage.label)"><figcaption>mask: \(link)</figcaption></figure>
          """
        continue
      }
      let pair = BeforeAfter(
        before: before, after: shown, label: stage.label, background: .checker, placeholder: "cannot be shown")
      html += "<figure>\(pair.html)<figcaption>\(link)</figcaption></figure>"
    }
    html +=
      "</div><details><summary>Settings</summary><pre class=\"mono\">\(stage.settings.rendered(pretty: true))</pre></details>"
    return html + "</section>"
  }
}
