import Glibc

/// Packages that depend on this one, such as those in `pipelines/`: their programs are compiled against the modules that
/// the test build has just made, which takes seconds where a build of the whole package takes minutes.
public enum ExamplePackage {
  /// The folder of the test build.
  public static let build: String = {
    let program = RunProgram.builtProgram
    return program.lastIndex(of: "/").map { String(program[..<$0]) } ?? "."
  }()

  private static let package: String = {
    let file = #filePath
    return file.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/")
  }()

  /// What the program of this package is linked of, without its own `main`.
  private static var objects: String? {
    TemporaryFolder.read(build + "/pipeline.product/Objects.LinkFileList").map { list in
      String(decoding: list, as: UTF8.self).split(separator: "\n").filter { !$0.contains("/pipeline.build/") }
        .joined(separator: "\n") + "\n"
    }
  }

  private static let compiler: String? = {
    for folder in (getenv("PATH").map { String(cString: $0) } ?? "").split(separator: ":") {
      let path = "\(folder)/swiftc"
      if access(path, X_OK) == 0 { return path }
    }
    return nil
  }()

  /// Whether such programs can be built here: the compiler is on the path, and the objects of the build are there.
  public static var canBuild: Bool { compiler != nil && objects != nil }

  private static let libraries = [
    "vips", "zlib", "libdeflate", "pangocairo", "libcurl", "libcrypto", "sqlite3", "expat",
  ]

  /// Compiles sources to a program; the compiler's words go with a failure.
  ///
  /// - Parameters:
  ///   - sources: paths; `main.swift` among them.
  ///   - program: where it goes.
  public static func compile(_ sources: [String], to program: String) throws(PeerFailure) {
    guard let compiler, let objects else { throw PeerFailure("there is no swiftc, or no build beside the tests") }
    let folder = TemporaryFolder()
    folder.write(objects, to: "objects")
    func flags(_ kind: String) throws(PeerFailure) -> [String] {
      let found = RunProgram.run([kind] + libraries, program: "/usr/bin/pkg-config")
      guard found.exitCode == 0 else { throw PeerFailure("pkg-config: \(found.error)") }
      return found.output.split(whereSeparator: { " \n".contains($0) }).map(String.init)
    }
    var arguments = ["-swift-version", "6", "-warnings-as-errors", "-I", build + "/Modules"]
    for name in ["CVips", "CZlib", "CDeflate", "CPango", "CCurl", "CCrypto", "CSQLite", "CExpat"] {
      arguments += ["-I", "\(package)/Sources/\(name)"]
    }
    for name in ["CJPEG", "COpenVINO", "CSystem"] {
      let map = "\(build)/\(name).build/module.modulemap"
      if access(map, R_OK) == 0 { arguments += ["-Xcc", "-fmodule-map-file=" + map] }
    }
    for flag in try flags("--cflags-only-I") { arguments += ["-Xcc", flag] }
    arguments += sources + ["@" + folder["objects"]] + (try flags("--libs")) + ["-ljpeg", "-ldl", "-o", program]
    let result = RunProgram.run(arguments, program: compiler, limit: 300)
    guard result.exitCode == 0 else { throw PeerFailure("swiftc: \(result.output)\(result.error)") }
  }
}
