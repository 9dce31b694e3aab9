/// Files that a run reads, which no output may replace: its inputs, and what else the job names.
///
/// The planner proves against it what it can name beforehand; `write` asks again with the names that only the run
/// knows.
public struct ProtectedPaths: Sendable {
  /// Sorted hashes instead of paths: 8 bytes for each place. A million outputs hit one of a million inputs by chance
  /// once in 10⁷ runs. Stable ones, which another process can go on with.
  public private(set) var inputHashes: [UInt64] = []
  /// What the job reads besides, with the words for it.
  private var others: [PathBytes: String] = [:]

  private var ask: (@Sendable (_ path: PathBytes, _ resolved: PathBytes, _ mayReplaceInputs: Bool) -> StageError?)?

  /// Nothing is protected.
  public init() {}

  /// Paths that another process knows.
  ///
  /// - Parameter ask: answers as `refusal` there.
  public init(
    asking ask:
      @escaping @Sendable (_ path: PathBytes, _ resolved: PathBytes, _ mayReplaceInputs: Bool) -> StageError?
  ) { self.ask = ask }

  /// - Parameters:
  ///   - inputs: absolute paths.
  ///   - others: absolute paths and what they are, to follow "is": `the job file`.
  ///   - resolver: follows links of folders.
  public init(
    inputs: some Sequence<PathBytes>, others: [(path: PathBytes, what: String)], resolver: inout FolderResolver
  ) {
    for path in inputs {
      for place in resolver.places(of: path) { inputHashes.append(place.stableHash) }
    }
    inputHashes.sort()
    add(others, &resolver)
  }

  /// - Parameters:
  ///   - inputHashes: those of another value, made for the same inputs.
  ///   - others: paths that are protected too.
  ///   - resolver: follows links of folders.
  public init(inputHashes: [UInt64], others: [(path: PathBytes, what: String)], resolver: inout FolderResolver) {
    self.inputHashes = inputHashes
    add(others, &resolver)
  }

  private mutating func add(_ others: [(path: PathBytes, what: String)], _ resolver: inout FolderResolver) {
    for (path, what) in others {
      for place in resolver.places(of: path) where self.others[place] == nil { self.others[place] = what }
    }
  }

  /// Why an output may not be written to a path; nil where it may.
  ///
  /// - Parameters:
  ///   - path: for the message.
  ///   - resolved: the same path with the links of its folder followed, by `FolderResolver.resolve`.
  ///   - mayReplaceInputs: frees the inputs, and nothing else.
  public func refusal(of path: PathBytes, resolved: PathBytes, mayReplaceInputs: Bool) -> StageError? {
    if let ask { return ask(path, resolved, mayReplaceInputs) }
    if let what = others[resolved] {
      return StageError(
        "output-overwrites-input", "the output \(path.printable) is \(what), which this job reads",
        hint: "write elsewhere")
    }
    guard !mayReplaceInputs, holdsInput(resolved.stableHash) else { return nil }
    return StageError(
      "output-overwrites-input", "the output \(path.printable) is an input",
      hint: "write elsewhere, or set \"inPlace\": true to replace inputs")
  }

  private func holdsInput(_ hash: UInt64) -> Bool {
    var low = 0
    var high = inputHashes.count
    while low < high {
      let middle = (low + high) / 2
      if inputHashes[middle] < hash { low = middle + 1 } else { high = middle }
    }
    return low < inputHashes.count && inputHashes[low] == hash
  }
}
