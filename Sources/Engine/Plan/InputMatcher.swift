import PipelineKit

/// Whether the next run would read a path as an input: for outputs that would land among the inputs.
struct InputMatcher {
  private let patterns: [(fixed: PathBytes, alternatives: [[GlobPattern.Part]])]
  /// Where links among the inputs lead → the links.
  private var links: [PathBytes: [PathBytes]] = [:]
  private let folders: [(path: PathBytes, recursive: Bool, endings: Set<String>?)]

  /// Lists and manifests name their inputs one by one, so nothing new can match them; what is no file neither.
  init(_ declaration: InputDeclaration, base: PathBytes, resolver: inout FolderResolver) {
    switch declaration {
    case .files(let texts, _):
      var patterns: [(fixed: PathBytes, alternatives: [[GlobPattern.Part]])] = []
      for text in texts {
        guard let pattern = try? GlobPattern(text), !pattern.isPlain else { continue }
        for fixed in Self.spellings(of: pattern.fixed, base, &resolver) {
          patterns.append((fixed, pattern.alternatives))
        }
      }
      self.patterns = patterns
      folders = []
    case .directory(let path, let recursive, let extensions, let all, _):
      patterns = []
      folders = Self.spellings(of: PathBytes(path), base, &resolver).map {
        ($0, recursive, all ? nil : Set(extensions))
      }
    case .list, .manifest, .addresses, .bucket, .imgur:
      patterns = []
      folders = []
    }
  }

  /// A folder as the walk names it and, where links lead there, as it is.
  private static func spellings(
    of folder: PathBytes, _ base: PathBytes, _ resolver: inout FolderResolver
  ) -> Set<PathBytes> {
    let walked = PathBytes.resolving(folder, from: base)
    return [walked, resolver.resolveFolder(walked)]
  }

  /// Notes a link that the walk met among the inputs: what is written where it leads is read through it.
  mutating func add(link: PathBytes, resolver: inout FolderResolver) {
    guard let end = resolver.places(of: link).last else { return }
    links[end, default: []].append(link)
  }

  /// How the next run would come to read a path as an input; nil where it would not.
  ///
  /// - Parameters:
  ///   - path: absolute and normalised.
  ///   - resolved: the same with the links of its folder followed.
  func reading(_ path: PathBytes, resolved: PathBytes) -> String? {
    if matches(resolved) || matches(path) { return "would be read as an input by the next run" }
    guard !links.isEmpty else { return nil }
    let names = resolved.components
    var end = PathBytes("/")
    for depth in 0...names.count {
      if depth > 0 { end = end.joining(PathBytes(names[depth - 1])) }
      for link in links[end] ?? [] {
        let spelled = names[depth...].reduce(link) { $0.joining(PathBytes($1)) }
        if matches(spelled) {
          return "would be read as an input by the next run, through the link \(link.printable)"
        }
      }
    }
    return nil
  }

  private func matches(_ path: PathBytes) -> Bool {
    for folder in folders where path.isInside(folder.path) {
      let names = path.components.dropFirst(folder.path.components.count)
      let isHidden = names.contains { $0.first == UInt8(ascii: ".") }
      let isDeep = names.count > 1
      if !isHidden, !names.isEmpty, folder.recursive || !isDeep {
        guard let endings = folder.endings else { return true }
        if let ending = path.fileExtension.string, endings.contains(ending.lowercased()) { return true }
      }
    }
    return patterns.contains { pattern in
      guard path.isInside(pattern.fixed) else { return false }
      let names = path.components.dropFirst(pattern.fixed.components.count).map(Array.init)
      return pattern.alternatives.contains { Self.matches($0[...], names[...]) }
    }
  }

  private static func matches(_ parts: ArraySlice<GlobPattern.Part>, _ names: ArraySlice<[UInt8]>) -> Bool {
    guard let part = parts.first else { return names.isEmpty }
    switch part {
    case .folders:
      let rest = parts.dropFirst()
      // A closing `**` takes every file below.
      if rest.isEmpty { return !names.isEmpty && !names.contains { $0.first == UInt8(ascii: ".") } }
      for skipped in 0...names.count {
        if skipped > 0, names[names.startIndex + skipped - 1].first == UInt8(ascii: ".") { return false }
        if matches(rest, names.dropFirst(skipped)) { return true }
      }
      return false
    case .name(let component):
      guard let name = names.first else { return false }
      let isHidden = name.first == UInt8(ascii: ".")
      guard !isHidden || component.namesHiddenFiles, name.withUnsafeBufferPointer({ component.matches($0) }) else {
        return false
      }
      return matches(parts.dropFirst(), names.dropFirst())
    }
  }
}
