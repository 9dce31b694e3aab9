import CExpat

/// An element of an XML document, with what is inside it.
public struct XMLElement: Sendable, Hashable {
  /// Without prefix.
  public let name: String
  /// The name of its namespace, where it is in one.
  public let namespace: String?
  /// The text directly inside it, as written; empty where there are elements and only white space around them.
  public internal(set) var text: String
  public internal(set) var children: [XMLElement]

  /// The first child of that name, whatever its namespace: services differ in whether they give one.
  public subscript(_ name: String) -> XMLElement? { children.first { $0.name == name } }

  /// The children of that name, in order.
  public func all(_ name: String) -> [XMLElement] { children.filter { $0.name == name } }
}

/// Reads XML answers of services.
///
/// Strict: what is not well-formed, a document type declaration (and with it every entity of the document's own) and
/// anything beyond the limits is refused. Attributes, comments and processing instructions are passed over.
public enum XMLAnswer {
  public struct Limits: Sendable, Hashable {
    /// Bytes of the document.
    public var bytes = 16 << 20
    public var elements = 200_000
    /// Elements inside each other.
    public var depth = 64

    public init() {}
  }

  public struct Refusal: Error, Sendable, Hashable, CustomStringConvertible {
    public let message: String
    /// Counted from 1; nil where the whole document is meant.
    public let line: Int?

    public var description: String { line.map { "line \($0): \(message)" } ?? message }
  }

  /// The outermost element of a document in UTF-8, UTF-16, ISO 8859-1 or ASCII, with or without a byte order mark.
  ///
  /// - Throws: for what is no XML, holds a document type declaration, or is beyond the limits.
  public static func read(_ bytes: [UInt8], limits: Limits = Limits()) throws(Refusal) -> XMLElement {
    guard bytes.count <= min(limits.bytes, Int(Int32.max)) else {
      throw Refusal(message: "the XML is larger than \(limits.bytes) bytes", line: nil)
    }
    guard let parser = XML_ParserCreateNS(nil, separator) else {
      throw Refusal(message: "no memory for reading XML", line: nil)
    }
    defer { XML_ParserFree(parser) }
    let reading = Reading(parser: parser, limits: limits)
    XML_SetUserData(parser, Unmanaged.passUnretained(reading).toOpaque())
    XML_SetElementHandler(
      parser,
      { context, name, _ in
        guard let name, let reading = Reading.of(context) else { return }
        reading.start(String(cString: name))
      },
      { context, _ in Reading.of(context)?.end() })
    XML_SetCharacterDataHandler(parser) { context, text, count in
      guard let text, let reading = Reading.of(context) else { return }
      reading.take(UnsafeRawBufferPointer(start: text, count: Int(count)))
    }
    XML_SetStartDoctypeDeclHandler(parser) { context, _, _, _, _ in
      Reading.of(context)?.refuse("it holds a document type declaration, which is not allowed")
    }
    let isRead = withExtendedLifetime(reading) {
      bytes.withUnsafeBytes { bytes in
        cexpat_parse_all(parser, bytes.baseAddress?.assumingMemoryBound(to: CChar.self), Int32(bytes.count)) == 1
      }
    }
    let line = Int(XML_GetCurrentLineNumber(parser))
    if let refusal = reading.refusal { throw Refusal(message: refusal, line: line) }
    guard isRead, let root = reading.root else {
      let words = XML_ErrorString(XML_GetErrorCode(parser)).map { String(cString: $0) } ?? "unknown"
      throw Refusal(message: "it is no well-formed XML (\(words))", line: line)
    }
    return root
  }

  // A character that neither names nor, as expat checks, namespaces can hold.
  private static let separator = CChar(bitPattern: UInt8(ascii: "\n"))

  /// What expat's handlers work on; used by the thread that reads.
  private final class Reading {
    private let parser: XML_Parser
    private let limits: Limits
    /// Elements begun and not ended, the innermost last.
    private var open: [(element: XMLElement, text: [UInt8])] = []
    private var count = 0
    private(set) var root: XMLElement?
    private(set) var refusal: String?

    init(parser: XML_Parser, limits: Limits) {
      self.parser = parser
      self.limits = limits
    }

    static func of(_ context: UnsafeMutableRawPointer?) -> Reading? {
      context.map { Unmanaged<Reading>.fromOpaque($0).takeUnretainedValue() }
    }

    func refuse(_ message: String) {
      // expat may call once more after it was told to stop.
      if refusal == nil { refusal = message }
      cexpat_stop(parser)
    }

    func start(_ name: String) {
      guard refusal == nil else { return }
      count += 1
      guard count <= limits.elements else { return refuse("it holds more than \(limits.elements) elements") }
      guard open.count < limits.depth else { return refuse("its elements are nested deeper than \(limits.depth)") }
      let parts = name.utf8.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
      let element = XMLElement(
        name: parts.last.map { String(Substring($0)) } ?? name,
        namespace: parts.count > 1 ? String(Substring(parts[0])) : nil, text: "", children: [])
      open.append((element, []))
    }

    func take(_ bytes: UnsafeRawBufferPointer) {
      guard refusal == nil, !open.isEmpty else { return }
      open[open.count - 1].text.append(contentsOf: bytes)
    }

    func end() {
      guard refusal == nil, let (begun, text) = open.popLast() else { return }
      var element = begun
      let isSpace = text.allSatisfy { [0x20, 0x09, 0x0A, 0x0D].contains($0) }
      if element.children.isEmpty || !isSpace { element.text = String(decoding: text, as: UTF8.self) }
      if open.isEmpty {
        root = element
      } else {
        open[open.count - 1].element.children.append(element)
      }
    }
  }
}
