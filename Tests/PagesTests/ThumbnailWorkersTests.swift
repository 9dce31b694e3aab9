import Dispatch
import Imaging
import PipelineKit
import Synchronization
import TestSupport
import Testing

@testable import Pages

@Suite struct ThumbnailWorkersTests {
  private static func why(_ thumbnail: Thumbnail) -> String? {
    if case .missing(let why) = thumbnail { why } else { nil }
  }

  @Test func `Pictures come back in their order, small, with their transparency`() throws {
    let folder = TemporaryFolder()
    let wide = try Image(width: 640, height: 64, bands: 4, bytes: (0..<640 * 64 * 4).map { UInt8($0 & 0x7F) })
    folder.write(try wide.encoded(.png(.init())).array, to: "wide.png")
    folder.write("none", to: "none.png")
    let paths = ["wide.png", "none.png", "gone.png"].map { PathBytes(folder[$0]) }
    let result = ThumbnailWorkers(count: 2, stop: PageStop(), deadline: nil).thumbnails(of: paths)
    guard case .picture(let bytes, 320, 32) = result[0] else {
      Issue.record("\(result[0])")
      return
    }
    let small = try EncodedPicture(bytes: bytes).decode()
    #expect(small.width == 320)
    #expect(small.height == 32)
    #expect(small.hasAlpha)
    let why = try #require(Self.why(result[1]))
    #expect(why.contains("text file"))
    #expect(Self.why(result[2]) == "the file is gone")
  }

  @Test func `One that hangs costs nothing but itself`() {
    let never = DispatchSemaphore(value: 0)
    // Both workers hang, and others take their places.
    let paths: [PathBytes] = ["hang", "hang", "a", "b", "c"]
    let workers = ThumbnailWorkers(count: 2, patience: .milliseconds(10), stop: PageStop(), deadline: nil)
    let result = workers.thumbnails(of: paths) { path in
      if path == "hang" { never.wait() }
      return .missing(path.printable)
    }
    #expect(result.map(Self.why) == ["it took too long to read", "it took too long to read", "a", "b", "c"])
    never.signal()
    never.signal()
  }

  @Test func `No more are begun once they are no longer wanted`() {
    let stop = PageStop()
    let begun = Atomic<Int>(0)
    let paths = [PathBytes](repeating: "a", count: 50)
    let result = ThumbnailWorkers(count: 1, stop: stop, deadline: nil).thumbnails(of: paths) { _ in
      if begun.add(1, ordering: .relaxed).newValue == 3 { stop.stop("the run was interrupted") }
      return .missing("made")
    }
    #expect(begun.load(ordering: .relaxed) == 3)
    #expect(result.map(Self.why) == Array(repeating: "made", count: 3) + Array(repeating: stop.why, count: 47))
    let late = ThumbnailWorkers(count: 1, stop: PageStop(), deadline: .now - .seconds(1)).thumbnails(of: paths)
    #expect(late.map(Self.why) == Array(repeating: "there was no time left for it", count: 50))
  }
}
