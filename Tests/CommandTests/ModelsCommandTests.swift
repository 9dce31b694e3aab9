import Glibc
import TestSupport
import Testing

/// `pipeline models` from outside, with a home and a mirror of its own.
@Suite struct ModelsCommandTests {
  private let folder = TemporaryFolder()
  private let file = (0..<200_000).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ $0 >> 5) }

  private func settings(_ mirror: String = "", columns: Int? = nil) -> RunProgram.Settings {
    var settings = RunProgram.Settings()
    settings.environment = ["PIPELINE_HOME": folder.path, "PIPELINE_MODEL_MIRROR": mirror, "TERM": "xterm"]
    settings.columns = columns
    return settings
  }

  @Test func pullFetchesFromTheMirrorAndSaysWhatItIs() throws {
    // The model of the catalogue that is published without a checksum, so that any bytes will do.
    let server = FileServer(["rmbg-1.4.onnx": file])
    let first = RunProgram.run(["models", "pull", "rmbg-1.4"], settings(server.address))
    #expect(first.exitCode == 0, "\(first.error)")
    #expect(first.output == "rmbg-1.4: fetched, unverified, pinned, \(folder["models/rmbg-1.4.onnx"])\n")
    #expect(first.error == "")
    #expect(folder.read("models/rmbg-1.4.onnx") == file)
    let again = RunProgram.run(["models", "pull", "rmbg-1.4"], settings(server.address))
    #expect(again.output.contains("already here") && server.requests.count == 1)
    let list = try json(RunProgram.run(["models", "list", "--format", "json"], settings()).outputBytes)
    let entry = try #require(list.arrayValue?.first { $0["name"]?.stringValue == "rmbg-1.4" })
    #expect(entry["state"]?.stringValue == "unverified")
    #expect(entry["file"]?.stringValue == folder["models/rmbg-1.4.onnx"])

    folder.write([1, 2, 3], to: "models/rmbg-1.4.onnx")
    let changed = RunProgram.run(["models", "verify", "rmbg-1.4"], settings())
    #expect(changed.exitCode == 4)
    #expect(changed.error.contains("is not the file that was first used as model rmbg-1.4"))
  }

  @Test func pullTellsWhatWentWrongAndGoesOnWithTheOthers() {
    let server = FileServer(["u2net.onnx": file, "rmbg-1.4.onnx": file])
    let result = RunProgram.run(["models", "pull", "u2net", "ben", "silueta", "rmbg-1.4"], settings(server.address))
    #expect(result.exitCode == 4)
    #expect(result.errorLines.count == 3)
    #expect(result.errorLines[0].contains("60024c5c889badc19c04ad937298a77b"))
    #expect(result.errorLines[1].contains("ben") && result.errorLines[1].contains("404"))
    #expect(result.errorLines[2].contains("silueta") && result.errorLines[2].contains("404"))
    #expect(result.output.hasPrefix("rmbg-1.4: fetched"))
    #expect(folder.read("models/u2net.onnx") == nil)
    let nowhere = RunProgram.run(["models", "pull", "ben"], settings())
    #expect(nowhere.exitCode == 4 && nowhere.error.contains("no address of its file is known"))
  }

  @Test func aTerminalSeesHowFarItIs() {
    let server = FileServer(["rmbg-1.4.onnx": file])
    let result = RunProgram.run(["models", "pull", "rmbg-1.4"], settings(server.address, columns: 60))
    #expect(result.exitCode == 0)
    let screen = TerminalScreen(result.errorBytes)
    #expect(screen.drawn.contains { $0.hasPrefix("rmbg-1.4: 100%, 200 kB of 200 kB") }, "\(screen.drawn)")
    #expect(screen.widestDrawn < 60)
    #expect(screen.lines.allSatisfy { $0.isEmpty })
  }

  @Test func aMirrorsPasswordIsNotPrinted() {
    for mirror in [
      "http://carol:opensesame@127.0.0.1:9", "https://carol:opensesame@127.0.0.1:9/m", "ftp://carol:opensesame@h/",
    ] {
      let result = RunProgram.run(["models", "pull", "u2net"], settings(mirror))
      #expect(result.exitCode == 4 && result.error.contains("u2net"))
      #expect(!result.error.contains("opensesame") && !result.error.contains("carol"), "\(result.error)")
    }
    // The file's name would become a part of the query.
    let query = RunProgram.run(["models", "pull", "u2net"], settings("https://127.0.0.1:9/m?key=opensesame"))
    #expect(query.exitCode == 4 && query.error.contains("query") && !query.error.contains("opensesame"))
  }

  @Test func aFolderThatCannotBeMadeSaysWhy() {
    // Nothing can be made in /sys, by anyone; its folders are not missing.
    var elsewhere = settings("http://127.0.0.1:9")
    elsewhere.environment?["PIPELINE_HOME"] = "/sys/pipeline"
    let result = RunProgram.run(["models", "pull", "u2net"], elsewhere)
    #expect(result.exitCode == 4 && result.error.contains("cannot make the folder /sys/pipeline:"))
    #expect(!result.error.contains("No such file"), "\(result.error)")
  }

  @Test func anAddedModelTakesNoFileOfTheCatalogues() {
    let model = folder.write("no model", to: "own.onnx")
    let result = RunProgram.run(["models", "add", model, "--name", "SINet_Softmax"], settings())
    #expect(result.exitCode == 3)
    #expect(result.error.contains("SINet_Softmax.onnx is the file of the catalogue's model \"sinet\""))
    #expect(folder.read("models/SINet_Softmax.onnx") == nil)
  }

  @Test func aRecipeWithoutEndIsRefused() {
    let model = folder.write("no model", to: "own.onnx")
    let result = RunProgram.run(["models", "add", model, "--name", "own", "--recipe", "/dev/zero"], settings())
    #expect(result.exitCode == 4 && result.error.contains("/dev/zero is too large"))
  }

  @Test func wrongCommandLinesAreRefused() {
    for (arguments, words) in [
      (["pull"], "needs the names"), (["pull", "u2nett"], "did you mean \"u2net\"?"), (["add"], "takes one file"),
      (["add", "a.onnx"], "needs --name"), (["add", "a.onnx", "--name", "a/b"], "--name expects"),
      (["list", "--name", "x"], "goes with"), (["lst"], "did you mean \"list\"?"),
    ] {
      let result = RunProgram.run(["models"] + arguments, settings())
      #expect(result.exitCode == 2 && result.error.contains(words), "\(arguments): \(result.error)")
    }
  }

  @Test func aWrongRecipeIsRefusedWithItsPlace() {
    let recipe = folder.write("{ \"input\": { \"mean\": [0, 0], \"widht\": 3 } }", to: "own.json")
    let model = folder.write("no model", to: "own.onnx")
    let result = RunProgram.run(["models", "add", model, "--name", "own", "--recipe", recipe], settings())
    #expect(result.exitCode == 3)
    #expect(result.error.contains("\(recipe):1:22: \"mean\" expects three numbers"))
    #expect(result.error.contains("did you mean \"width\"?"))
    let missing = RunProgram.run(["models", "add", folder["none.onnx"], "--name", "own"], settings())
    #expect(missing.exitCode == 4 && missing.error.contains("none.onnx"))
    #expect(folder.read("models/own.model.json") == nil)
  }
}
