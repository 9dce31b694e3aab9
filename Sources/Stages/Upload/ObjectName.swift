import PipelineKit

/// Names of things at a service, made from templates: keys of a bucket, paths in a container.
///
/// A template is written by the job's author and may name anything. The values filled in come from file names and
/// manifest columns, which others may have written: they may name folders below, never ones above.
enum ObjectName {
  /// The name that templates mean for an item, parted by `/`, not encoded.
  ///
  /// A part that an empty value has left empty, as `${item.dir}` at the top of the input tree, is left out; those that
  /// a template itself leaves empty stay.
  ///
  /// - Throws: what rendering fails with, `output-escapes` where a value names a folder above, `output-name` where the
  ///   name is empty, ends in `/` or is not UTF-8.
  ///
  /// - Parameter templates: what is one after the other in the name.
  static func text(_ templates: [Template], for item: Item, in context: StageContext) throws(StageError) -> String {
    try text(templates) { variable in
      TemplateValues.value(of: variable, identity: item.identity, run: context.run, item: item)
    }
  }

  static func text(
    _ templates: [Template], value: (TemplateVariable) -> Result<[UInt8], StageError>
  ) throws(StageError) -> String {
    let text = templates.map(\.text).joined()
    var bytes: [UInt8] = []
    for (index, template) in templates.enumerated() {
      var name = Name(text: text)
      for segment in template.segments {
        switch segment {
        case .literal(let bytes): try name.take(bytes, from: nil)
        case .variable(let variable): try name.take(try value(variable).get(), from: variable)
        }
      }
      bytes += try name.finish(isLast: index == templates.count - 1)
    }
    func failure(_ what: String) -> StageError {
      StageError("output-name", "\"\(PathBytes(bytes: bytes).printable)\", made from \(text), \(what)")
    }
    guard let result = String(validating: bytes, as: UTF8.self) else {
      throw failure("is not UTF-8, as names at a service must be")
    }
    guard let last = bytes.last else { throw failure("is empty") }
    guard last != UInt8(ascii: "/") else { throw failure("ends in \"/\", so it names a folder") }
    guard !bytes.contains(0) else { throw failure("holds a NUL character") }
    return result
  }

  private struct Name {
    /// Of the templates, for messages.
    let text: String
    private var parts: [[UInt8]] = []
    /// The part that is being filled.
    private var part: [UInt8] = []
    /// The last variable of this part.
    private var origin: TemplateVariable?
    private var isTrusted = true

    init(text: String) { self.text = text }

    mutating func take(_ bytes: [UInt8], from variable: TemplateVariable?) throws(StageError) {
      note(variable)
      for byte in bytes {
        if byte == UInt8(ascii: "/") {
          try endPart()
          note(variable)
        } else {
          part.append(byte)
        }
      }
    }

    private mutating func note(_ variable: TemplateVariable?) {
      guard let variable else { return }
      origin = variable
      switch variable {
      case .runDate, .runID, .ext: break
      default: isTrusted = false
      }
    }

    private mutating func endPart(keepsEmpty: Bool = false) throws(StageError) {
      if let origin, !isTrusted, part.elementsEqual("..".utf8) || part.elementsEqual(".".utf8) {
        throw StageError(
          "output-escapes",
          "\"\(String(decoding: part, as: UTF8.self))\" from ${\(origin.name)} leads out of the folder, so "
            + "\(text) is not sent",
          hint: "name the folder in the template itself, and use ${item.stem} or a column without \"..\" for the rest")
      }
      if !part.isEmpty || origin == nil || keepsEmpty { parts.append(part) }
      part = []
      origin = nil
      isTrusted = true
    }

    /// What begins a name keeps the `/` that an empty value comes after.
    mutating func finish(isLast: Bool) throws(StageError) -> [UInt8] {
      let isOpen = isLast && part.isEmpty && origin != nil && !parts.isEmpty
      try endPart(keepsEmpty: !isLast || isOpen)
      return Array(parts.joined(separator: [UInt8(ascii: "/")]))
    }
  }
}
