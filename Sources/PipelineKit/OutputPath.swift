import Glibc

/// Turns an output template into a path, and keeps the values of items from choosing the folder.
///
/// A template is written by the job's author and may name any place. The values filled in come from file names and
/// manifest columns, which others may have written: they may name folders below, never ones above or a path of
/// their own.
public enum OutputPath {
  /// The absolute, normalised path that `template` means for one item.
  ///
  /// - Parameters:
  ///   - folder: where relative paths start, absolute.
  ///   - value: the bytes for a variable.
  ///   - template: the name, with variables.
  /// - Throws: what `value` fails with, `output-escapes` where a value leads out of the template's folder,
  ///   `output-name` where the result is no name for a file.
  public static func resolve(
    _ template: Template, in folder: PathBytes, value: (TemplateVariable) -> Result<[UInt8], StageError>
  ) throws(StageError) -> PathBytes {
    let slash = UInt8(ascii: "/")
    var bytes: [UInt8] = []
    // For every byte, the variable it came from.
    var origins: [TemplateVariable?] = []
    var startsWithLiteral: Bool?
    for segment in template.segments {
      switch segment {
      case .literal(let text):
        startsWithLiteral = startsWithLiteral ?? true
        bytes += text
        origins += repeatElement(nil, count: text.count)
      case .variable(let variable):
        startsWithLiteral = startsWithLiteral ?? false
        let filled = try value(variable).get()
        let isTrusted =
          switch variable {
          case .runDate, .runID, .ext: true
          default: false
          }
        if bytes.isEmpty, filled.first == slash, !isTrusted {
          throw escape(template, variable, filled, "is an absolute path")
        }
        bytes += filled
        origins += repeatElement(isTrusted ? nil : variable, count: filled.count)
      }
    }
    guard !bytes.contains(0) else { throw name(template, bytes, "holds a NUL character") }
    if startsWithLiteral != true, let start = bytes.firstIndex(where: { $0 != slash }) {
      // `${item.dir}/…` at the top of the input tree: an empty value, not the root of the file system.
      bytes.removeFirst(start)
      origins.removeFirst(start)
    }
    var start = 0
    while start < bytes.count {
      let end = bytes[start...].firstIndex(of: slash) ?? bytes.count
      try check(bytes[start..<end], origins[start..<end].lazy.compactMap(\.self).first, template)
      start = end + 1
    }
    guard let last = bytes.last else { throw name(template, bytes, "is empty") }
    guard last != slash else { throw name(template, bytes, "ends in \"/\", so it names a folder") }
    let lastName = PathBytes(bytes: bytes).lastComponent.bytes
    guard lastName != Array(".".utf8), lastName != Array("..".utf8) else {
      throw name(template, bytes, "ends in \"\(String(decoding: lastName, as: UTF8.self))\", so it names a folder")
    }
    return folder.joining(PathBytes(bytes: bytes)).normalised
  }

  /// Why no file can be written over what stands at a path; nil for files and symbolic links.
  ///
  /// - Parameters:
  ///   - kind: the `S_IFMT` part of the file's mode, links not followed.
  ///   - path: the path as rendered.
  public static func refusal(of path: PathBytes, standing kind: mode_t) -> StageError? {
    switch kind {
    case S_IFREG, S_IFLNK: nil
    case S_IFDIR:
      StageError("output-is-folder", "\(path.printable) is a folder, so no file can be written there")
    default:
      StageError("output-is-special", "\(path.printable) is a device, pipe or socket, not a file; it is left alone")
    }
  }

  private static func check(
    _ component: ArraySlice<UInt8>, _ origin: TemplateVariable?, _ template: Template
  ) throws(StageError) {
    guard component.count <= 255 else {
      throw StageError(
        "output-name",
        "the name \(PathBytes(component.prefix(60)).printable)… in \(template.text) has \(component.count) "
          + "bytes; file systems take 255", hint: "shorten it, or use ${item.index} or ${item.hash}")
    }
    guard let origin else { return }
    if component.elementsEqual("..".utf8) {
      throw escape(template, origin, Array(component), "leads out of the folder")
    }
    if component.elementsEqual(".".utf8) {
      throw name(template, Array(component), "is no name for a file or folder (from ${\(origin.name)})")
    }
  }

  private static func escape(
    _ template: Template, _ variable: TemplateVariable, _ value: [UInt8], _ what: String
  ) -> StageError {
    StageError(
      "output-escapes",
      "\"\(PathBytes(bytes: value).printable)\" from ${\(variable.name)} \(what), so \(template.text) is not written",
      hint: "name the folder in \"to\" itself, and use ${item.stem} or a column without \"..\" for the rest")
  }

  private static func name(_ template: Template, _ bytes: [UInt8], _ what: String) -> StageError {
    StageError(
      "output-name", "\"\(PathBytes(bytes: bytes).printable)\", made from \(template.text), \(what)")
  }
}
