/// Tells a picture's format from its first bytes. libvips' own sniffing is never called.
public enum FormatSniffer {
  /// How many bytes are enough to tell.
  public static let prefixLength = 512

  /// The format whose magic bytes begin the data; nil where there is none.
  public static func format(of prefix: some Collection<UInt8>) -> PictureFormat? {
    preconditionFailure("not yet written")
  }

  /// What the data looks like, for a message: "a PDF file", "HTML", "an empty file" …
  public static func describe(_ prefix: some Collection<UInt8>) -> String {
    preconditionFailure("not yet written")
  }
}
