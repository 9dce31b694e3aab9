/// What went wrong with a picture or with libvips, in words a user can act on.
///
/// libvips keeps one error buffer for the whole process, so its text may belong to another picture. The message is
/// therefore always ours; libvips' text is kept apart, as `detail`.
public struct ImagingError: Error, Sendable, Hashable, CustomStringConvertible {
  /// A stable name for the kind of failure.
  public enum Code: String, Sendable, CaseIterable {
    /// The bytes are of a kind that is not read or not written here.
    case unsupported
    /// The bytes claim to be a picture, but its header or pixels cannot be read whole.
    case damaged
    /// The picture is larger than a limit allows.
    case limit
    /// There is nothing in the file.
    case empty
    /// The file could not be read.
    case io
    /// The file was written to, or replaced, while it was read.
    case changed
    /// Sides, positions or settings that make no picture.
    case geometry
    /// The picture could not be written in the wanted format.
    case encoder
    /// The file came out larger than it may be.
    case tooLarge = "too-large"
    /// There is no such font on this machine, or the file is none.
    case fontMissing = "font-missing"
    /// The font has no sign for a character.
    case glyphMissing = "glyph-missing"
    /// Memory ran out.
    case memory
    /// libvips refused something that should have worked: a fault of this program or of its installation.
    case internalFault = "internal-fault"
  }

  public var code: Code
  /// What failed, and on what.
  public var message: String
  /// libvips' own text, or the system's; empty where there is none.
  public var detail: String
  /// What to try.
  public var hint: String?

  public init(_ code: Code, _ message: String, detail: String = "", hint: String? = nil) {
    self.code = code
    self.message = message
    self.detail = detail
    self.hint = hint
  }

  public var description: String { detail.isEmpty ? message : "\(message) (\(detail))" }
}
