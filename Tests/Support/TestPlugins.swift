import Glibc
import Synchronization

/// Plugins built for tests, with the compiler and the header that anyone would use. Each is built once a process.
public enum TestPlugins {
  private static let package: String = {
    let file = #filePath
    return file.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/")
  }()
  private static let folder = TemporaryFolder()
  private static let built = Mutex<[String: String]>([:])

  /// Whether a C compiler and libvips' header are here.
  public static let canBuild = access("/usr/bin/cc", X_OK) == 0

  /// The path of `plugin.c`, built with these definitions, such as `FAULT_LEAK` or `ABI=7`.
  public static func plugin(_ definitions: String...) -> String {
    let name =
      "libtest-\(definitions.map { $0.filter { $0.isLetter || $0.isNumber || $0 == "_" } }.joined(separator: "-")).so"
    return built.withLock { built in
      if let known = built[name] { return known }
      let flags = definitions.map { "'-D\($0)'" }.joined(separator: " ")
      let path = folder[name]
      shell(
        "cc -shared -fPIC -O1 -Wall -Wextra -Werror \(flags) -I '\(package)/Sources/CPlugin/include' -o '\(path)' "
          + "'\(package)/Tests/Support/plugins/plugin.c' $(pkg-config --cflags --libs vips)")
      built[name] = path
      return path
    }
  }

  /// The path of an example of `pipelines/plugins`, built in a copy of its folder by its own Makefile.
  public static func example(_ name: String, library: String) -> String {
    built.withLock { built in
      if let known = built[name] { return known }
      let copy = folder[name]
      shell("cp -R '\(package)/pipelines/plugins/\(name)' '\(copy)' && rm -f '\(copy)'/*.so")
      shell("make -s -C '\(copy)' HEADER='\(package)/Sources/CPlugin/include'")
      built[name] = copy + "/" + library
      return copy + "/" + library
    }
  }

  private static func shell(_ command: String) {
    let result = RunProgram.run(["-c", command], program: "/bin/sh", limit: 300)
    precondition(result.exitCode == 0, "\(command): \(result.error)")
  }
}
