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
  /// - Parameter templates: one after the other.
  static func text(_ templates: [Template], for item: Item, in context: StageContext) throws(StageError) -> String {
    try text(templates) { variable in
      TemplateValues.value(of: variable, identity: item.identity, run: context.run, item: item)
    }
  }

  static func text(
    _ templates: [Template], value: (TemplateVariable) -> Result<[UInt8], StageError>
  ) throws(StageError) -> String {
    var name = Name(text: templates.map(\.text).joined())
    for segment in templates.lazy.flatMap(\.segments) {
      switch segment {
      case .literal(let bytes): try name.take(bytes, from: nil)
      case .variable(let variable): try name.take(try value(variable).get(), from: variable)
      }
    }
    return try name.finish()
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

    private mutating func endPart() throws(StageError) {
      if let origin, !isTrusted, part.elementsEqual("..".utf8) || part.elementsEqual(".".utf8) {
        throw StageError(
          "output-escapes",
          "\"\(String(decoding: part, as: UTF8.self))\" from ${\(origin.name)} leads out of the folder, so "
            + "\(text) is not sent",
          hint: "name the folder in the template itself, and use ${item.stem} or a column without \"..\" for the rest")
      }
      if !part.isEmpty || origin == nil { parts.append(part) }
      part = []
      origin = nil
      isTrusted = true
    }

    mutating func finish() throws(StageError) -> String {
      let isOpen = part.isEmpty
      try endPart()
      let bytes = parts.joined(separator: [UInt8(ascii: "/")])
      guard let result = String(validating: bytes, as: UTF8.self) else {
        throw name(Array(bytes), "is not UTF-8, as names at a service must be")
      }
      guard !result.isEmpty else { throw name([], "is empty") }
      guard !isOpen else { throw name(Array(bytes), "ends in \"/\", so it names a folder") }
      guard !result.utf8.contains(0) else { throw name(Array(bytes), "holds a NUL character") }
      return result
    }

    private func name(_ bytes: [UInt8], _ what: String) -> StageError {
      StageError("output-name", "\"\(PathBytes(bytes: bytes).printable)\", made from \(text), \(what)")
    }
  }
}
