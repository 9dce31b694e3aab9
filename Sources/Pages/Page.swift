import Digest
import JobSyntax

/// A web page that stands alone: its style, scripts and data are inside it, and its content security policy forbids
/// every request but those for pictures it carries, or files beside it where `readsFiles`. Light or dark as the
/// reader's system is, in the system's own font.
///
/// Scripts and styles run by their hash: whatever else might get into the page is not run.
public struct Page: Sendable {
  public var title: String
  /// What stands below `<body>`: landmarks such as `<header>` and `<main id="main">`.
  public var body: HTML
  /// Added to the common style, in order.
  public var styles: [StaticString] = []
  /// Run after the body has been read and after the common script, in order.
  public var scripts: [StaticString] = []
  /// JSON that scripts read with `JSON.parse(document.getElementById(ID).textContent)`.
  public var data: [(id: StaticString, json: JSONText)] = []
  /// Whether pictures and scripts may come from files beside the page.
  public var readsFiles = false

  public init(title: String, body: HTML) {
    self.title = title
    self.body = body
  }

  /// The whole page, in UTF-8.
  public var rendered: [UInt8] { opening.bytes + Self.closing.bytes }

  /// The page up to the end of its scripts. What follows, such as further blocks of data, is read by scripts only once
  /// it is there; `closing` ends the page.
  public var opening: HTML {
    let styles = [PageAssets.style] + self.styles
    let scripts = [PageAssets.script] + self.scripts
    let files: HTML = readsFiles ? " 'self' file:" : ""
    var html: HTML = """
      <!doctype html>
      <html lang="en">
      <head>
      <meta charset="utf-8">
      <meta http-equiv="Content-Security-Policy" content="default-src 'none'; base-uri 'none'; form-action 'none'; \
      img-src data:\(files); style-src \(Self.hashes(of: styles)); script-src \(Self.hashes(of: scripts))\(files)">
      <meta name="viewport" content="width=device-width, initial-scale=1">
      <meta name="color-scheme" content="light dark">
      <meta name="referrer" content="no-referrer">
      <title>\(title)</title>
      <link rel="icon" href="data:,">

      """
    for style in styles { html += "<style>\(HTML(style))</style>\n" }
    html += "</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the content</a>\n\(body)\n"
    for (id, json) in data { html += Self.block(HTML(id), json) }
    for script in scripts { html += "<script>\(HTML(script))</script>\n" }
    return html
  }

  /// What ends a page after `opening`.
  public static let closing: HTML = "</body>\n</html>\n"

  /// JSON in an element that is not run, which nothing in it can end.
  public static func block(_ id: HTML, _ json: JSONText) -> HTML {
    "<script type=\"application/json\" id=\"\(id)\">\(inert(json))</script>\n"
  }

  /// JSON text without `<`, `>` and `&`: the same value inside a script element, in a script file and alone.
  static func inert(_ json: JSONText) -> HTML {
    var safe: [UInt8] = []
    for byte in json.rendered().utf8 {
      switch byte {
      // These stand in texts only, where an escape says the same.
      case UInt8(ascii: "<"): safe += #"\u003c"#.utf8
      case UInt8(ascii: ">"): safe += #"\u003e"#.utf8
      case UInt8(ascii: "&"): safe += #"\u0026"#.utf8
      default: safe.append(byte)
      }
    }
    return HTML(safe: safe)
  }

  private static func hashes(of texts: [StaticString]) -> HTML {
    texts.map { text -> HTML in
      let hash = Base64.encode(text.withUTF8Buffer { SHA256.digest(of: UnsafeRawBufferPointer($0)) })
      return "'sha256-\(hash)'"
    }.joined(separator: " ")
  }
}
