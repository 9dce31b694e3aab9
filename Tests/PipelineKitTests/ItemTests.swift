import Imaging
import PipelineKit
import Testing

@Suite struct ItemTests {
  private func flat(_ bands: Int, _ value: UInt8) throws -> Image {
    try Image(width: 4, height: 2, bands: bands, bytes: [UInt8](repeating: value, count: 8 * bands))
  }

  @Test("what moves the pixels of an animation moves those of every frame, its matte and its original")
  func transformed() throws {
    let path = PathBytes("a.gif")
    let identity = ItemIdentity(index: 0, path: path, name: path, directory: PathBytes(""))
    let frames = try (1...3).map { n in
      ItemFrames.Frame(
        image: try flat(4, UInt8(n)), matte: n == 2 ? try flat(1, 9) : nil, original: n == 3 ? try flat(3, 8) : nil)
    }
    let item = Item(identity: identity).with(animation: ItemFrames(frames: frames, delays: [10, 20, 30], loop: 5))
    let turned = try item.transformed { (image) throws(ImagingError) in
      try image.cropped(x: 0, y: 0, width: 3, height: 1)
    }
    guard case .animation(let animation) = turned.picture else {
      Issue.record("the animation became one picture")
      return
    }
    #expect(animation.delays == [10, 20, 30] && animation.loop == 5)
    #expect(try animation.frames.map { try $0.image.bytes() } == (1...3).map { [UInt8](repeating: $0, count: 12) })
    #expect(animation.frames.map { $0.matte?.width } == [nil, 3, nil])
    #expect(animation.frames.map { $0.original?.height } == [nil, nil, 1])
  }
}
