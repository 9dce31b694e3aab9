import Dispatch
import Glibc
import Inference
import PipelineKit
import Synchronization
import TestSupport
import Testing

/// Fetching models from a server of our own that cuts connections, forgets ranges and hands out wrong bytes.
@Suite struct ModelPullTests {
  private static let bytes = (0..<300_000).map { UInt8(truncatingIfNeeded: ($0 &* 2_654_435_761) >> 7) }

  /// A home, a server and a model that is on it.
  private struct Bench {
    let folder = TemporaryFolder()
    let server = FileServer(["tiny.onnx": bytes])
    var recipe: ModelRecipe
    var home: PipelineHome { PipelineHome(variable: { [path = folder.path] in $0 == "PIPELINE_HOME" ? path : nil }) }
    var store: ModelStore { ModelPull.store(home: home, mirror: server.address) }

    init(hasChecksum: Bool = true) throws {
      recipe = ModelRecipe(
        name: "tiny", fileName: "tiny.onnx", source: "the tests", licence: "none", width: 2, height: 2,
        mean: [0, 0, 0], deviation: [1, 1, 1])
      if hasChecksum { recipe.sha256 = try FileDigest.ofFile(folder.write(bytes, to: "original")).sha256 }
    }

    var file: [UInt8]? { folder.read("models/tiny.onnx") }
    /// What is in the models folder besides locks.
    var names: [String] {
      folder.tree().filter { $0.hasPrefix("models/") && !$0.hasSuffix("/") && !$0.hasSuffix("lock") }
    }
    func range(_ index: Int) -> String? { server.requests[index].headers["range"] }

    func failure() -> InferenceError? {
      do throws(InferenceError) {
        _ = try store.pull(recipe)
        return nil
      } catch { return error }
    }
  }

  @Test func `a model is fetched, checked and named, and not fetched again`() throws {
    let bench = try Bench()
    let seen = Mutex<[ModelStore.Progress]>([])
    #expect(try bench.store.pull(bench.recipe, progress: { now in seen.withLock { $0.append(now) } }) == .fetched)
    #expect(bench.file == Self.bytes)
    #expect(bench.names == ["models/tiny.onnx"])
    let last = seen.withLock { $0.last }
    #expect(last?.received == 300_000 && last?.total == 300_000)
    #expect(seen.withLock { $0 }.map(\.received) == seen.withLock { $0 }.map(\.received).sorted())
    #expect(try bench.store.pull(bench.recipe) == .present)
    #expect(bench.server.requests.count == 1)
  }

  @Test func `cut connections are taken up where they broke`() throws {
    let bench = try Bench()
    bench.server.behave { $0.cuts = [100_000, 50_000] }
    #expect(try bench.store.pull(bench.recipe) == .fetched)
    #expect(bench.file == Self.bytes)
    #expect(bench.names == ["models/tiny.onnx"])
    #expect((0..<3).map { bench.range($0) } == [nil, "bytes=100000-", "bytes=150000-"])
    #expect(bench.server.requests[1].headers["if-range"] == "\"v1\"")
  }

  @Test func `what one run leaves, the next goes on with`() throws {
    let bench = try Bench()
    bench.server.behave { $0.cuts = [1000, 0] }
    let error = try #require(bench.failure())
    #expect(error.message.contains("1000 bytes of 300000 are here"))
    #expect(error.hint?.contains("run it again") == true)
    #expect(bench.file == nil)
    #expect(try bench.store.pull(bench.recipe) == .fetched)
    #expect(bench.file == Self.bytes)
    #expect(bench.range(2) == "bytes=1000-")
  }

  @Test func `a server without ranges sends all of it again`() throws {
    let bench = try Bench()
    bench.server.behave {
      $0.cuts = [1000]
      $0.knowsRanges = false
    }
    #expect(try bench.store.pull(bench.recipe) == .fetched)
    #expect(bench.file == Self.bytes)
    #expect(bench.range(1) == "bytes=1000-")
  }

  @Test func `another version is not glued to the part of the first`() throws {
    let bench = try Bench(hasChecksum: false)
    bench.server.behave {
      $0.cuts = [1000, 0]
      $0.tag = "\"v0\""
      $0.instead = Self.bytes.map { ~$0 }
    }
    #expect(bench.failure() != nil)
    bench.server.behave { $0 = FileServer.Behaviour() }
    #expect(try bench.store.pull(bench.recipe) == .fetched)
    #expect(bench.file == Self.bytes)
    #expect(bench.server.requests.last?.headers["if-range"] == "\"v0\"")
  }

  @Test func `a part that nothing vouches for is thrown away`() throws {
    let bench = try Bench(hasChecksum: false)
    bench.folder.write([1, 2, 3], to: "models/tiny.onnx.part")
    #expect(try bench.store.pull(bench.recipe) == .fetched)
    #expect(bench.range(0) == nil)
    #expect(bench.file == Self.bytes)
  }

  @Test func `wrong bytes are not kept`() throws {
    let bench = try Bench()
    bench.server.behave { $0.instead = Array("<html>Sign in to this network</html>".utf8) }
    let error = try #require(bench.failure())
    #expect(error.code == .checksum)
    #expect(error.message.contains(try #require(bench.recipe.sha256)))
    #expect(bench.names == [])
    // A wrong part is found out with the whole, and the next try begins afresh.
    bench.folder.write([UInt8](repeating: 7, count: 500), to: "models/tiny.onnx.part")
    bench.server.behave { $0 = FileServer.Behaviour() }
    #expect(bench.failure()?.code == .checksum)
    #expect(bench.names == [])
    #expect(try bench.store.pull(bench.recipe) == .fetched)
  }

  @Test func `a part that is whole or too long is settled by 416`() throws {
    let whole = try Bench()
    whole.folder.write(Self.bytes, to: "models/tiny.onnx.part")
    #expect(try whole.store.pull(whole.recipe) == .fetched)
    #expect(whole.server.requests.count == 1 && whole.range(0) == "bytes=300000-")
    let long = try Bench()
    long.folder.write(Self.bytes + [1], to: "models/tiny.onnx.part")
    #expect(try long.store.pull(long.recipe) == .fetched)
    #expect(long.server.requests.count == 2 && long.range(1) == nil)
    #expect(long.file == Self.bytes)
  }

  @Test func `a part that starts elsewhere is not taken`() throws {
    let bench = try Bench()
    bench.server.behave {
      $0.cuts = [1000]
      $0.claimedStart = 900
    }
    #expect(try bench.store.pull(bench.recipe) == .fetched)
    #expect(bench.file == Self.bytes)
    #expect((0..<3).map { bench.range($0) } == [nil, "bytes=1000-", nil])
  }

  @Test func `what the server says no to is said`() throws {
    let bench = try Bench()
    bench.server.behave { $0.status = 503 }
    let error = try #require(bench.failure())
    #expect(error.code == .modelMissing)
    #expect(error.message.contains("answered 503") && error.message.contains(bench.server.address))
    #expect(bench.file == nil)
  }

  @Test func `a full disk is said, and what came stays for the next time`() throws {
    let bench = try Bench()
    bench.folder.makeFolder("models")
    symlink("/dev/full", bench.folder["models/tiny.onnx.part"])
    let error = try #require(bench.failure())
    #expect(error.code == .failed)
    #expect(error.message.contains("no space left"))
    #expect(bench.file == nil)
  }

  @Test func `without an address nothing is asked`() throws {
    let bench = try Bench()
    let store = ModelPull.store(home: bench.home, mirror: nil)
    do throws(InferenceError) {
      _ = try store.pull(bench.recipe)
      Issue.record("fetched from nowhere")
    } catch { #expect(error.message.contains("no address")) }
    var recipe = bench.recipe
    recipe.url = "http://example.com/tiny.onnx"
    do throws(InferenceError) {
      _ = try store.pull(recipe)
      Issue.record("fetched without encryption")
    } catch { #expect(error.message.contains("not encrypted")) }
  }

  @Test func `two at once fetch it once`() throws {
    let bench = try Bench()
    let outcomes = Mutex<[ModelStore.Outcome?]>([])
    DispatchQueue.concurrentPerform(iterations: 4) { _ in
      let outcome = try? bench.store.pull(bench.recipe)
      outcomes.withLock { $0.append(outcome) }
    }
    #expect(outcomes.withLock { $0.count { $0 == .fetched } } == 1)
    #expect(outcomes.withLock { $0.count { $0 == .present } } == 3)
    #expect(bench.server.requests.count == 1)
    #expect(bench.file == Self.bytes)
  }

  @Test func `without a published checksum the first file is pinned and another refused`() throws {
    let bench = try Bench(hasChecksum: false)
    #expect(try bench.store.pull(bench.recipe) == .fetched)
    #expect(ModelCatalogue.status(of: bench.recipe, verify: true, home: bench.home).state == .unverified)
    bench.folder.write(Self.bytes.dropLast(), to: "models/tiny.onnx")
    guard case .wrong(let error) = ModelCatalogue.status(of: bench.recipe, verify: true, home: bench.home).state else {
      Issue.record("another file than the pinned one passes")
      return
    }
    #expect(error.code == .checksum && error.hint?.contains("pins.json") == true)
    #expect(bench.failure()?.code == .checksum)
    // Fetched afresh it has to be the pinned one too.
    unlink(bench.folder["models/tiny.onnx"])
    bench.server.behave { $0.instead = [1, 2, 3] }
    #expect(bench.failure()?.code == .checksum)
    #expect(bench.file == nil)
  }
}
