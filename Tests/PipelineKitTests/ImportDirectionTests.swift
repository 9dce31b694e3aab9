import Glibc
import TestSupport
import Testing

/// Targets import downwards only. The build also refuses an import that Package.swift does not declare; this also
/// holds Package.swift's own choices, and the README's table, against the rows.
@Suite struct ImportDirectionTests {
  private static let rows = [
    "CVips": 0, "CZlib": 0, "CDeflate": 0, "CJPEG": 0, "CPango": 0, "CCurl": 0, "CCrypto": 0, "CSQLite": 0,
    "CExpat": 0, "COpenVINO": 0, "CSystem": 0, "CPlugin": 0, "JobSyntax": 1,
    "Digest": 1,
    "Imaging": 2, "Inference": 2, "Transport": 2,
    "PipelineKit": 3, "Engine": 4, "Stages": 4, "Pages": 4, "PluginHost": 4, "Conformance": 4, "PipelineCommand": 5,
    "pipeline": 6,
  ]
  /// C is reached through few hands.
  private static let importersOfC: [String: Set<String>] = [
    "CVips": ["Imaging", "Inference"], "CZlib": ["Imaging"], "CDeflate": ["Imaging"], "CJPEG": ["Imaging"],
    "CPango": ["Imaging"], "CCurl": ["Transport"], "CCrypto": ["Digest"], "CSQLite": ["Engine"],
    "CExpat": ["Transport"],
    "COpenVINO": ["Inference"],
    "CPlugin": ["PluginHost"],
    "CSystem": ["Engine", "PipelineCommand", "PipelineKit", "Conformance", "PluginHost"],
  ]

  private static let package: String = {
    let file = #filePath
    return file.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/")
  }()

  /// Every file below a folder, relative to it.
  private static func files(below folder: String, prefix: String = "") -> [String] {
    guard let listing = opendir(folder) else { return [] }
    defer { closedir(listing) }
    var files: [String] = []
    while let entry = readdir(listing) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name.hasPrefix(".") { continue }
      if entry.pointee.d_type == UInt8(DT_DIR) {
        files += Self.files(below: folder + "/" + name, prefix: prefix + name + "/")
      } else {
        files.append(prefix + name)
      }
    }
    return files
  }

  private static let beginnings = ["@", "import", "public", "package", "internal", "fileprivate", "private"].map {
    Array($0.utf8)
  }

  /// The modules that a source imports, whatever stands around the word: attributes, access, a kind of declaration.
  static func imports(of source: String) -> [String] {
    source.split(whereSeparator: \.isNewline).compactMap { line in
      // Few lines are worth the slow expression.
      guard Self.beginnings.contains(where: { line.utf8.drop { $0 == 0x20 || $0 == 0x09 }.starts(with: $0) }) else {
        return nil
      }
      guard
        let match = line.firstMatch(
          of:
            #/^\s*(?:@\w+(?:\([^)]*\))?\s+)*(?:(?:public|package|internal|fileprivate|private)\s+)?import\s+(?:(?:struct|class|enum|protocol|typealias|func|let|var|actor)\s+)?(\w+)/#
        )
      else { return nil }
      return String(match.1)
    }
  }

  @Test func importsAreRecognised() {
    #expect(
      Self.imports(
        of: """
          import A
          @testable import B
          @_spi(X) @preconcurrency public import C
          private import struct D.Thing
          // import E
          let text = "import F"
          """) == ["A", "B", "C", "D"])
  }

  @Test func targetsImportOnlyRowsBelow() throws {
    let files = Self.files(below: Self.package + "/Sources")
    var folders: Set<String> = []
    var checked = 0
    for file in files {
      let target = String(file.prefix { $0 != "/" })
      folders.insert(target)
      guard file.hasSuffix(".swift") else { continue }
      let row = try #require(Self.rows[target], "Sources/\(target) has no row")
      let text = String(decoding: try #require(TemporaryFolder.read(Self.package + "/Sources/" + file)), as: UTF8.self)
      for module in Self.imports(of: text) {
        // Modules of the toolchain have no row.
        guard let below = Self.rows[module] else { continue }
        #expect(below < row, "\(file) imports \(module)")
        if let importers = Self.importersOfC[module] {
          #expect(importers.contains(target), "\(file) imports \(module)")
        }
        checked += 1
      }
    }
    #expect(folders == Set(Self.rows.keys))
    #expect(checked > 50)
  }

  @Test func theReadmeShowsEveryTargetInItsRow() throws {
    let text = String(decoding: try #require(TemporaryFolder.read(Self.package + "/README.md")), as: UTF8.self)
    var shown: [String: Int] = [:]
    for line in text.split(separator: "\n") {
      guard let match = line.firstMatch(of: #/^\| (\d) \| ([^|]+) \|/#), let row = Int(match.1) else { continue }
      for name in match.2.matches(of: #/`(\w+)`/#) { shown[String(name.1)] = row }
    }
    // The table of exit codes has rows that begin alike, but names nothing.
    #expect(shown == Self.rows)
  }

  @Test func theManifestDeclaresNothingUpwards() throws {
    let text = String(decoding: try #require(TemporaryFolder.read(Self.package + "/Package.swift")), as: UTF8.self)
    var declared: Set<String> = []
    let target = #/arget\(\s*name: "(\w+)",\s*dependencies: \[([^\]]*)\]/#
    for match in text.matches(of: target) {
      guard let row = Self.rows[String(match.1)] else { continue }
      declared.insert(String(match.1))
      for dependency in match.2.matches(of: #/"(\w+)"/#) {
        let name = String(dependency.1)
        let below = try #require(Self.rows[name], "\(match.1) depends on \(name)")
        #expect(below < row, "\(match.1) depends on \(name)")
        if let importers = Self.importersOfC[name] { #expect(importers.contains(String(match.1)), "\(match.1)") }
      }
    }
    #expect(
      declared.isSuperset(of: [
        "Imaging", "Inference", "PipelineKit", "Engine", "Stages", "PipelineCommand", "pipeline",
      ]))
  }
}
