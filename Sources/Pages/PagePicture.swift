import Imaging

/// A picture as a page shows it: carried inside the page, or in a file beside it.
public struct PagePicture: Sendable, Hashable {
  /// Goes into `src`.
  public let source: String
  /// Pixels.
  public let width: Int
  public let height: Int

  /// A picture inside the page.
  ///
  /// - Parameters:
  ///   - bytes: an encoded picture.
  ///   - type: its media type, such as `image/webp`.
  public init(_ bytes: EncodedBytes, type: StaticString, width: Int, height: Int) {
    source = "data:\(type);base64," + bytes.withUnsafeBytes { String(decoding: Base64.encode($0), as: UTF8.self) }
    self.width = width
    self.height = height
  }

  /// A picture in a file; the page must say `readsFiles`.
  public init(_ link: PageLink, width: Int, height: Int) {
    source = link.address
    self.width = width
    self.height = height
  }
}

/// What a picture with transparency is shown on.
public enum PageBackground: String, Sendable, CaseIterable {
  case checker, white, grey, black
}

/// Two pictures in one place with a handle between them, dragged or moved with the arrow keys: `before` is seen on its
/// left, `after` on its right. Where one is missing the other is shown alone.
public struct BeforeAfter: Sendable {
  public var before: PagePicture?
  public var after: PagePicture?
  /// What the pair is of, for those who cannot see it, such as a file's name.
  public var label: String
  public var background: PageBackground
  /// What stands where there is no picture at all.
  public var placeholder: String

  public init(
    before: PagePicture?, after: PagePicture?, label: String, background: PageBackground = .checker,
    placeholder: String = "no picture"
  ) {
    self.before = before
    self.after = after
    self.label = label
    self.background = background
    self.placeholder = placeholder
  }

  /// The pair as markup; the page's common script makes it move.
  public var html: HTML {
    func image(_ picture: PagePicture, _ side: HTML, _ what: String) -> HTML {
      """
      <img class="\(side)" src="\(picture.source)" width="\(picture.width)" height="\(picture.height)" \
      alt="\(label), \(what)" loading="lazy" decoding="async" draggable="false">
      """
    }
    guard before != nil || after != nil else {
      return "<div class=\"pair none\"><p class=\"missing\">\(placeholder)</p></div>"
    }
    var html: HTML = "<div class=\"pair\" data-background=\"\(background.rawValue)\">"
    if let after { html += image(after, "after", "after") }
    if let before { html += image(before, "before", "before") }
    if before != nil, after != nil {
      html += """
        <div class="handle" role="slider" tabindex="0" aria-label="Before and after: \(label)" aria-valuemin="0" \
        aria-valuemax="100" aria-valuenow="50" aria-valuetext="50 % before" aria-orientation="horizontal"></div>\
        <span class="side" aria-hidden="true">Before</span><span class="side end" aria-hidden="true">After</span>
        """
    } else {
      html += before == nil ? "<span class=\"side end\">After</span>" : "<span class=\"side\">Before</span>"
    }
    html += "</div>"
    return html
  }
}
