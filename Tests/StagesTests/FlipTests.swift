import Imaging
import PipelineKit
import Stages
import TestSupport
import Testing

@Suite struct FlipTests {
  let bench = StageBench()

  @Test("every pixel is where the direction puts it", arguments: ["horizontal", "vertical", "both"])
  func directions(direction: String) throws {
    let item = try bench.cutout(40, 30, subject: Rectangle(x: 3, y: 4, width: 10, height: 5))
    let result = try bench.run(Flip.self, "{ \"stage\": \"flip\", \"direction\": \"\(direction)\" }", item)
    let (x, y) = (direction == "vertical" ? 3 : 36, direction == "horizontal" ? 4 : 25)
    #expect(try result.image().pixel(x, y) == [3, 4, 9, 255])
    #expect(try result.matte?.pixel(x, y) == [255])
    #expect(try result.original?.pixel(x, y) == [3, 4, 7])
    let again = try bench.run(Flip.self, "{ \"stage\": \"flip\", \"direction\": \"\(direction)\" }", result)
    #expect(try again.pixels() == item.pixels())
  }

  @Test func needsADirection() throws {
    #expect(try StageBench.findings(Flip.self, "") == ["missing-key"])
    #expect(try StageBench.findings(Flip.self, #""direction": "horizontaly""#) == ["unknown-value"])
  }

  @Test("an animation that was given up ends before its next frame")
  func givenUp() throws {
    let item = try bench.animation(3, 4, 4) { frame, _, _ in [UInt8(frame), 0, 0] }
    let stage = try bench.make(Flip.self, #"{ "stage": "flip", "direction": "both" }"#)
    do throws(StageError) {
      _ = try stage.processFrames(item, .each, in: bench.context("flip", cancelled: { true }))
      Issue.record("it went on")
    } catch {
      #expect(error.code == "cancelled")
      #expect(error.message.contains("frame 1 of 3"))
    }
  }
}
