import Glibc
import Imaging
import JobSyntax
import TestSupport
import Testing

/// The commands that the pages show: what can be run is run, and the rest names what is there.
@Suite struct GuideTests {
  /// Commands of the shell blocks, without comments, as words; what stands in quotes is one word.
  private static func commands(_ page: String) -> [[String]] {
    DocumentationTests.blocks(page, "sh").flatMap { $0.split(separator: "\n") }.flatMap { line -> [[String]] in
      var commands: [[String]] = [[]]
      var word = ""
      var quote: Character?
      func end() {
        if !word.isEmpty { commands[commands.count - 1].append(word) }
        word = ""
      }
      for character in line {
        if let open = quote {
          if character == open { quote = nil } else { word.append(character) }
        } else if character == "'" || character == "\"" {
          quote = character
        } else if character == "#", word.isEmpty {
          break
        } else if character == " " {
          end()
        } else if "|&;()".contains(character) {
          end()
          commands.append([])
        } else {
          word.append(character)
        }
      }
      end()
      return commands.filter { !$0.isEmpty }
    }
  }

  @Test(arguments: DocumentationTests.pages) func `what pages tell to type is there`(_ page: String) throws {
    let makefile = String(decoding: TemporaryFolder.read(DocumentationTests.package + "/Makefile") ?? [], as: UTF8.self)
    for command in Self.commands(page) {
      switch command[0] {
      case "pipeline":
        let name = try #require(command.dropFirst().first, "\(page)")
        if name.hasPrefix("-") { continue }
        let help = RunProgram.run(["help", name])
        #expect(help.exitCode == 0, "\(page): \(command)")
        for word in command where word.hasPrefix("--") {
          let option = String(word.prefix { $0 != "=" })
          #expect(
            help.output.split(separator: "\n").contains { line in
              line.hasPrefix("  \(option)")
                && !(line.dropFirst(option.count + 2).first.map { $0.isLetter || $0 == "-" } ?? false)
            }, "\(page): \(command): \(option)")
        }
      case "make" where command.count > 2 && command[1] == "-C":
        #expect(access(DocumentationTests.package + "/" + command[2] + "/Makefile", R_OK) == 0, "\(page): \(command)")
      case "make":
        for target in command.dropFirst() where !target.contains("=") {
          #expect(makefile.contains("\n\(target): "), "\(page): make \(target)")
        }
      case let program where program.hasPrefix("pipelines/") || program.hasPrefix("Scripts/"):
        #expect(access(DocumentationTests.package + "/" + program, X_OK) == 0, "\(page): \(program)")
      default: break
      }
    }
  }

  private static let bash = "/usr/bin/bash"

  /// A home with the program on the path.
  private func home() -> Scene? {
    guard let scene = try? Scene(remembers: true) else { return nil }
    scene.folder.makeFolder("bin")
    symlink(RunProgram.builtProgram, scene.folder["bin/pipeline"])
    return scene
  }

  private func run(_ scene: Scene, _ script: String, folder: String? = nil) -> ProgramResult {
    var settings = scene.settings()
    settings.folder = folder ?? scene.folder.path
    var variables = [
      "PATH": scene.folder["bin"] + ":/usr/bin:/bin", "HOME": scene.folder.path, "LC_ALL": "C.UTF-8", "TERM": "dumb",
    ]
    let demo = DocumentationTests.demoPhotos ?? ""
    variables["PIPELINE_HOME"] = String(demo.dropLast("/demo".count))
    settings.environment = variables
    return RunProgram.run(["-euo", "pipefail", "-c", script], settings, program: Self.bash)
  }

  @Test(.enabled(if: DocumentationTests.demoPhotos != nil, "the demo photos and the model are not installed"))
  func `a newcomer's path leads to a folder of cut-outs`() throws {
    let block = try #require(DocumentationTests.blocks("README.md", "sh").first { $0.contains("pipeline init cutout") })
    let scene = try #require(home())
    let demo = try #require(DocumentationTests.demoPhotos)
    // What `make demo` leaves in a clone.
    for name in ["astronaut.png", "chelsea.png"] {
      scene.folder.write(TemporaryFolder.read("\(demo)/\(name)") ?? [], to: "clone/pipelines/photos/\(name)")
    }
    let result = run(scene, block, folder: scene.folder["clone"])
    #expect(result.exitCode == 0, "\(result.output) \(result.error)")
    #expect(result.output.hasSuffix("astronaut.png\nchelsea.png\n"), "\(result.output)")
    let cutout = try EncodedPicture(
      bytes: EncodedBytes(try #require(scene.folder.read("cutouts/out/astronaut.png")))
    ).pixels()
    let alpha = try cutout.alphaBand().bytes()
    // The face is there, and the corner above the shoulder is not.
    #expect(alpha[130 * cutout.width + 225] > 200 && alpha[12 * cutout.width + 490] < 50)
    let report = try scene.report("cutouts/report.json")
    #expect(report["run"]?["counts"]?["done"]?.integer == 2)
  }

  @Test(
    .enabled(
      if: access("/usr/bin/man", X_OK) == 0 && DocumentationTests.demoPhotos != nil, "man or the model is not installed"
    ))
  func `completion, manual and schema are had as the page says`() throws {
    let block = try #require(DocumentationTests.blocks("README.md", "sh").first { $0.contains("completion bash") })
    let scene = try #require(home())
    scene.folder.makeFolder(".config/fish/completions")
    let result = run(scene, block + "complete -p pipeline\n")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(result.output.contains("complete -F _pipeline pipeline"))
    #expect(scene.folder.read(".config/fish/completions/pipeline.fish")?.isEmpty == false)
    #expect(try json(scene.folder.read("job.schema.json") ?? [])["title"]?.stringValue == "pipeline job file")
  }

  @Test(.enabled(if: DocumentationTests.demoPhotos != nil, "the demo photos and the model are not installed"))
  func `the cookbook's first commands run`() throws {
    let block = try #require(DocumentationTests.blocks("pipelines/README.md", "sh").first)
    let scene = try #require(home())
    let demo = try #require(DocumentationTests.demoPhotos)
    for name in ["pipelines/photos/coffee.png", "my/astronaut.jpg"] {
      let stem = name.split(separator: "/").last?.split(separator: ".").first ?? ""
      let photo = try EncodedPicture(bytes: EncodedBytes(TemporaryFolder.read("\(demo)/\(stem).png") ?? [])).pixels()
      let isJPEG = name.hasSuffix(".jpg")
      scene.folder.write(try photo.encoded(isJPEG ? .jpeg(.init()) : .png(.init())).array, to: name)
    }
    scene.folder.write(
      TemporaryFolder.read(DocumentationTests.package + "/pipelines/cutout.json") ?? [], to: "pipelines/cutout.json")
    let result = run(scene, block)
    #expect(result.exitCode == 0, "\(result.error)")
    for name in ["coffee", "astronaut"] { #expect(scene.folder.read("pipelines/out/cutout/\(name).png") != nil) }
  }

  // MARK: The same job in other tools

  /// The command of another tool, and our job beside it.
  private func pair(_ tool: String) throws -> (command: String, job: String) {
    let command = try #require(DocumentationTests.blocks("docs/migrating.md", "sh").first { $0.hasPrefix(tool) })
    let text = String(
      decoding: TemporaryFolder.read(DocumentationTests.package + "/docs/migrating.md") ?? [], as: UTF8.self)
    let place = try #require(text.firstRange(of: command))
    let rest = text[place.upperBound...]
    let start = try #require(rest.firstRange(of: "```json\n"))
    let end = try #require(rest[start.upperBound...].firstRange(of: "```"))
    return (command, String(rest[start.upperBound..<end.lowerBound]))
  }

  private func picture(_ scene: Scene, _ name: String) throws -> Image {
    try EncodedPicture(bytes: EncodedBytes(try #require(scene.folder.read(name), "\(name) was not written"))).pixels()
  }

  /// Runs both on the demo photos and a wide picture: theirs into `theirs/`, ours into `out/`.
  private func both(_ tool: String, _ variables: [String: String] = [:]) throws -> Scene {
    let (command, job) = try pair(tool)
    let scene = try #require(home())
    let demo = try #require(DocumentationTests.demoPhotos)
    for name in ["astronaut.png", "coffee.png"] {
      scene.folder.write(TemporaryFolder.read("\(demo)/\(name)") ?? [], to: "photos/\(name)")
    }
    scene.folder.write(job, to: "job.json")
    scene.folder.makeFolder("out")
    let exports = variables.map { "export \($0.key)='\($0.value)'\n" }.joined()
    let theirs = run(scene, exports + command)
    #expect(theirs.exitCode == 0, "\(theirs.error)")
    #expect(rename(scene.folder["out"], scene.folder["theirs"]) == 0)
    let ours = run(scene, "pipeline run job.json --quiet")
    #expect(ours.exitCode == 0, "\(ours.error)")
    let list = scene.folder.tree().filter { !$0.hasSuffix("/") }
    let names = list.filter { $0.hasPrefix("out/") }.map { String($0.dropFirst(4)) }
    #expect(names.count == 2 && names == list.filter { $0.hasPrefix("theirs/") }.map { String($0.dropFirst(7)) })
    return scene
  }

  @Test(.enabled(if: access("/usr/bin/mogrify", X_OK) == 0, "mogrify is not installed: apt-get install imagemagick"))
  func `mogrify's result and ours agree`() throws {
    guard DocumentationTests.demoPhotos != nil else { try Test.cancel("the demo photos are not installed") }
    let scene = try both("mogrify")
    for name in ["astronaut.jpg", "coffee.jpg"] {
      let (ours, theirs) = (try picture(scene, "out/" + name), try picture(scene, "theirs/" + name))
      #expect((ours.width, ours.height) == (theirs.width, theirs.height))
      #expect(ServiceScene.difference(try ours.bytes(), try theirs.bytes()) < 4)
    }
  }

  @Test(.enabled(if: Peers.hasRembg && DocumentationTests.demoPhotos != nil, "rembg or the model is not installed"))
  func `rembg's result and ours agree but for the edges`() throws {
    let demo = try #require(DocumentationTests.demoPhotos)
    let scene = try both(
      "rembg",
      [
        "PATH": try Peers.python("") + ":/usr/bin:/bin", "U2NET_HOME": demo.dropLast("/demo".count) + "/models",
        "HF_HUB_OFFLINE": "1",
      ].merging(Peers.pythonVariables) { mine, _ in mine })
    for name in ["astronaut.png", "coffee.png"] {
      let (ours, theirs) = (try picture(scene, "out/" + name), try picture(scene, "theirs/" + name))
      #expect((ours.width, ours.height) == (theirs.width, theirs.height))
      #expect(ServiceScene.difference(try ours.alphaBand().bytes(), try theirs.alphaBand().bytes()) < 12)
    }
  }
}
