import Glibc
import TestSupport
import Testing

@testable import Inference

@Suite struct PipelineHomeTests {
  private func home(_ variables: [String: String], executable: String? = nil) -> PipelineHome {
    PipelineHome(variable: { variables[$0] }, executable: executable)
  }

  @Test func `the more particular variable wins, and an empty or relative one does not count`() {
    let all = ["PIPELINE_HOME": "/a", "XDG_DATA_HOME": "/b", "HOME": "/c"]
    #expect(home(all).root == "/a")
    #expect(home(all.filter { $0.key != "PIPELINE_HOME" }).root == "/b/pipeline")
    #expect(home(["HOME": "/c"]).root == "/c/.local/share/pipeline")
    #expect(home(["PIPELINE_HOME": "", "XDG_DATA_HOME": "b", "HOME": "/c"]).root == "/c/.local/share/pipeline")
    #expect(home(["HOME": "/"]).root == "/.local/share/pipeline")
  }

  @Test func `an empty environment finds the folder of the password database`() throws {
    let entry = try #require(getpwuid(getuid()))
    let folder = String(cString: entry.pointee.pw_dir)
    #expect(home([:]).root == folder + "/.local/share/pipeline")
    #expect(home([:]).models == folder + "/.local/share/pipeline/models")
    #expect(home(["HOME": ""]).root == folder + "/.local/share/pipeline")
  }

  @Test func `an installed program looks beside itself too`() {
    let installed = home(["PIPELINE_HOME": "/h"], executable: "/opt/x/bin/pipeline")
    #expect(installed.modelFolders == ["/h/models", "/opt/x/share/pipeline/models"])
    #expect(
      installed.runtimeFolders == [
        "/h/runtime/openvino-2026.4.1", "/opt/x/lib/pipeline/runtime/openvino-2026.4.1", "/opt/x/lib/pipeline/runtime",
      ])
    #expect(home(["PIPELINE_HOME": "/h"], executable: "/bin/pipeline").modelFolders.last == "/share/pipeline/models")
    #expect(home(["PIPELINE_OPENVINO": "/o"], executable: "/opt/x/bin/pipeline").runtimeFolders == ["/o"])
  }

  @Test func `a missing runtime names every place looked in and the command that installs it`() throws {
    let folder = TemporaryFolder()
    let places = home(["PIPELINE_HOME": folder["none"]], executable: folder["prefix/bin/pipeline"])
    let error = try #require(failure { () throws(InferenceError) in try places.locateRuntime() })
    #expect(error.code == .runtimeMissing)
    for place in places.runtimeFolders { #expect(error.message.contains(place)) }
    #expect(try #require(error.hint).contains("make demo"))

    let chosen = try #require(
      failure { () throws(InferenceError) in try home(["PIPELINE_OPENVINO": folder.path]).locateRuntime() })
    #expect(chosen.message.contains(folder.path) && chosen.message.contains("PIPELINE_OPENVINO"))
  }

  @Test func `the newest library of the first folder is taken`() throws {
    let folder = TemporaryFolder()
    folder.write("", to: "runtime/openvino-2026.4.1/libopenvino_c.so.2640")
    folder.write("", to: "runtime/openvino-2026.4.1/libopenvino_c.so.2641")
    folder.write("", to: "runtime/openvino-2026.4.1/libopenvino.so.2641")
    let path = try home(["PIPELINE_HOME": folder.path]).locateRuntime()
    #expect(path == folder["runtime/openvino-2026.4.1/libopenvino_c.so.2641"])
  }

  @Test func `a missing model names every place looked in`() throws {
    let folder = TemporaryFolder()
    let places = home(["PIPELINE_HOME": folder.path], executable: folder["prefix/bin/pipeline"])
    let recipe = try #require(ModelCatalogue.named("u2netp"))
    let error = try #require(failure { () throws(InferenceError) in try ModelCatalogue.locate(recipe, home: places) })
    #expect(error.code == .modelMissing)
    #expect(error.message.contains(folder["models/u2netp.onnx"]))
    #expect(error.message.contains(folder["prefix/share/pipeline/models/u2netp.onnx"]))
    #expect(try #require(error.hint).contains("make demo"))

    // The second place is used when only it has the file.
    folder.write("m", to: "prefix/share/pipeline/models/u2netp.onnx")
    #expect(
      try ModelCatalogue.locate(recipe, home: places) == folder["prefix/share/pipeline/models/u2netp.onnx"])
  }
}
