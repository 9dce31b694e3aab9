import PipelineKit
import Transport

/// Finds a job's inputs, one after the other, the same way on every machine.
///
/// Declarations are taken in the order given. The files of one are in bytewise order of their paths and given once;
/// lists and manifests keep their own order. Nothing but the names of the folders on the way is held, so the number
/// of inputs has no bound. A walker can be used any number of times, also when a list comes from standard input.
public struct InputWalker: Sendable {
  public let declarations: [InputDeclaration]
  /// The job file's folder, absolute.
  public let base: PathBytes
  let standardInput: Int32
  let network: NetworkOptions
  let once = OnceOnlyInputs()

  /// - Parameters:
  ///   - base: what relative paths are relative to: the job file's folder.
  ///   - standardInput: the descriptor that `-` reads.
  ///   - network: how services are reached that list pictures.
  ///   - declarations: the job's input.
  public init(
    _ declarations: [InputDeclaration], base: PathBytes, standardInput: Int32 = 0,
    network: NetworkOptions = NetworkOptions()
  ) {
    self.network = network
    self.declarations = declarations
    self.base = PathBytes.resolving(base, from: PathBytes.currentFolder ?? PathBytes("/"))
    self.standardInput = standardInput
  }

  /// What is wrong with the declarations as they are written.
  ///
  /// - Parameters:
  ///   - base: the folder patterns are seen from. A pattern that is the name of a file there is taken for that
  ///     file and not complained about; without `base` no file is looked at.
  ///   - declarations: the job's input.
  public static func check(_ declarations: [InputDeclaration], base: PathBytes? = nil) -> [InputProblem] {
    var problems: [InputProblem] = []
    for (index, declaration) in declarations.enumerated() {
      switch declaration {
      case .files(let patterns, _):
        for (element, pattern) in patterns.enumerated() {
          if let base, GlobPattern.existing(pattern, base: base) != nil { continue }
          do throws(GlobSyntaxError) {
            _ = try GlobPattern(pattern)
          } catch {
            problems.append(
              InputProblem(
                .globSyntax, "\(PathBytes(pattern).printable): \(error.message)", hint: error.hint, declaration: index,
                element: element))
          }
        }
      case .manifest(let path, nil, _, _):
        if manifestFormat(path) == nil { problems.append(unknownFormat(path, declaration: index)) }
      case .addresses(let texts, _):
        for (element, text) in texts.enumerated() {
          do throws(TransportError) {
            _ = try RemoteSource.address(text)
          } catch {
            problems.append(
              InputProblem(
                .address, "element \(element + 1) is no address: \(error.message)", declaration: index, element: element
              ))
          }
        }
      case .directory, .list, .manifest, .bucket, .imgur: break
      }
    }
    return problems
  }

  /// The columns that `${item.…}` may name: those of all manifests; nil where there is no manifest.
  ///
  /// Opens the manifests and reads their headers, of JSON lines the first object. Throws what would stop a walk
  /// there; rows are not checked.
  public func columns() throws(InputError) -> Set<String>? {
    var result: Set<String>?
    for (index, declaration) in declarations.enumerated() {
      guard case .manifest = declaration else { continue }
      result = (result ?? []).union(try openManifest(declaration, index).reader.columns)
    }
    return result
  }

  /// Begins a walk. `onSkip` is told what is passed over, in the same order at every walk.
  public func cursor(onSkip: @escaping (SkippedInput) -> Void = { _ in }) -> InputCursor {
    InputCursor(self, onSkip: onSkip)
  }

  /// Calls `body` for every input, in order.
  ///
  /// Throws `InputError` when a declaration cannot be read or yields nothing, and what `body` throws.
  public func forEach(
    onSkip: @escaping (SkippedInput) -> Void = { _ in }, _ body: (InputItem) throws -> Void
  ) throws {
    let cursor = cursor(onSkip: onSkip)
    while let item = try cursor.next() { try body(item) }
  }

  static func manifestFormat(_ path: String) -> ManifestFormat? {
    switch PathBytes(path).fileExtension.string?.lowercased() {
    case "csv": .csv
    case "jsonl", "ndjson": .jsonl
    default: nil
    }
  }

  static func unknownFormat(_ path: String, declaration: Int) -> InputProblem {
    InputProblem(
      .manifestFormat, "the format of the manifest \(PathBytes(path).printable) is not told by its ending",
      hint: "name it .csv or .jsonl, or set \"format\"", declaration: declaration)
  }

  func openText(_ path: String, what: String, _ declaration: Int) throws(InputError) -> TextInput {
    try TextInput.open(
      path, what: what, base: base, standardInput: standardInput, once: once, declaration: declaration)
  }

  func openManifest(
    _ declaration: InputDeclaration, _ index: Int
  ) throws(InputError) -> (input: TextInput, reader: ManifestReader) {
    guard case .manifest(let path, let format, let column, _) = declaration else {
      preconditionFailure("called for manifests only")
    }
    guard let format = format ?? Self.manifestFormat(path) else {
      throw InputError(Self.unknownFormat(path, declaration: index))
    }
    let input = try openText(path, what: "manifest", index)
    do {
      return (
        input,
        try ManifestReader(input.stream, format: format, column: column, name: input.name.printable)
      )
    } catch let fault as ManifestReader.ColumnFault {
      throw InputError(
        fault.messages.map { message, hint in
          InputProblem(
            .manifestColumn, message, hint: hint, declaration: index, file: input.name, line: fault.line)
        })
    } catch let fault as TextFault {
      throw InputError(Self.problem(fault, .manifestRow, what: "manifest", input, index))
    } catch {
      throw InputError(
        InputProblem(.unreadable, "the manifest cannot be read: \(error)", declaration: index, file: input.name))
    }
  }

  static func problem(
    _ fault: TextFault, _ code: InputProblem.Code, what: String, _ input: TextInput, _ declaration: Int
  ) -> InputProblem {
    switch fault {
    case .system(let error):
      InputProblem(
        .unreadable, "the \(what) cannot be read: \(error.text)", declaration: declaration, file: input.name)
    case .encoding(let name):
      InputProblem(
        code, "the \(what) is in \(name)", hint: "save it as UTF-8", declaration: declaration, file: input.name,
        line: 1)
    case .line(let line, let message, let hint, _):
      InputProblem(code, message, hint: hint, declaration: declaration, file: input.name, line: line)
    }
  }
}
