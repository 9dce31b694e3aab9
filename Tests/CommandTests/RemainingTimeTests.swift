import TestSupport
import Testing

@testable import Engine
@testable import PipelineCommand

/// The remaining time against the truth, on runs played through item by item.
@Suite struct RemainingTimeTests {
  /// One picture: how large its file is and what it costs, in seconds.
  struct Picture {
    var kind: String
    var bytes: Double
    var seconds: Double
  }

  /// What two workers make of pictures in this order; the estimate against the truth at the given shares of the time.
  static func errors(_ pictures: [Picture], workers: Int = 2, knowsSizes: Bool = true, at shares: [Double]) -> [Double]
  {
    var free = [Double](repeating: 0, count: workers)
    var spans: [(begin: Double, end: Double)] = []
    for picture in pictures {
      let worker = free.indices.min { free[$0] < free[$1] } ?? 0
      spans.append((free[worker], free[worker] + picture.seconds))
      free[worker] += picture.seconds
    }
    let total = free.max() ?? 0
    var forecast = RemainingTime(count: pictures.count, toDo: pictures.count)
    for (index, picture) in pictures.enumerated() {
      forecast.expect(index, kind: picture.kind, bytes: knowsSizes ? picture.bytes : nil)
    }
    var ended: Set<Int> = []
    var errors: [Double] = []
    var shares = shares[...]
    let step = max(0.1, total / 2000)
    for tick in 1... {
      let now = Double(tick) * step
      guard now < total, let share = shares.first else { break }
      var inFlight = 0.0
      for (index, span) in spans.enumerated() where !ended.contains(index) && span.begin < now {
        if span.end <= now {
          ended.insert(index)
          forecast.ended(index, seconds: pictures[index].seconds)
        } else {
          inFlight += now - span.begin
        }
      }
      forecast.update(at: now, inFlight: inFlight)
      if now >= share * total {
        shares.removeFirst()
        let truth = total - now
        errors.append(((forecast.secondsLeft ?? .infinity) - truth) / truth)
      }
    }
    return errors
  }

  /// A folder of 500 pictures as people have them: small ones, photos of a telephone, a few scans of 50 megapixels, and
  /// some that cost next to nothing: skipped by a filter, or broken.
  static func mixed(_ seed: UInt64) -> [Picture] {
    var random = SeededGenerator(state: seed)
    return (0..<500).map { _ in
      let noise = Double.random(in: 0.75...1.25, using: &random)
      switch Int.random(in: 0..<100, using: &random) {
      case 0..<8:
        let bytes = Double.random(in: 10e6...25e6, using: &random)
        return Picture(kind: "jpg", bytes: bytes, seconds: (0.05 + bytes * 6e-8) * noise)
      case 8..<20:
        return Picture(kind: "jpg", bytes: Double.random(in: 1e3...3e6, using: &random), seconds: 0.002)
      case 20..<60:
        let bytes = Double.random(in: 2e6...6e6, using: &random)
        return Picture(kind: "jpg", bytes: bytes, seconds: (0.05 + bytes * 6e-8) * noise)
      default:
        let bytes = Double.random(in: 3e4...4e5, using: &random)
        return Picture(kind: "jpg", bytes: bytes, seconds: (0.02 + bytes * 9e-8) * noise)
      }
    }
  }

  @Test("from a fifth of the time on the estimate is within a quarter of the truth", arguments: 1...8)
  func mixedBatches(seed: UInt64) {
    let pictures = Self.mixed(seed)
    // The small ones first is hard: of the large ones nothing is known but the sizes of their files.
    for (name, order) in [("as they come", pictures), ("small first", pictures.sorted { $0.bytes < $1.bytes })] {
      let errors = Self.errors(order, at: [0.2, 0.4, 0.6, 0.8])
      #expect(errors.count == 4)
      for (share, error) in zip([20, 40, 60, 80], errors) {
        #expect(abs(error) <= (name == "as they come" ? 0.25 : 0.3), "\(name), \(share) %: \(error)")
      }
    }
    // And the other way round nobody can know what is not read off the files: how many of the small ones are skipped or
    // fail at once. By then little time is left.
    let errors = Self.errors(pictures.sorted { $0.bytes > $1.bytes }, at: [0.2, 0.4, 0.6, 0.8])
    for (error, most) in zip(errors, [0.25, 0.3, 0.5, 0.8]) { #expect(abs(error) <= most, "large first: \(error)") }
  }

  @Test("what takes a fixed time, as a model does, is not taken for something that grows with the file")
  func fixedCost() {
    var random = SeededGenerator(state: 3)
    let pictures = (0..<300).map { _ in
      Picture(
        kind: "jpg", bytes: Double.random(in: 1e4...8e6, using: &random),
        seconds: Double.random(in: 0.18...0.22, using: &random))
    }
    for error in Self.errors(pictures, at: [0.2, 0.4, 0.6, 0.8]) { #expect(abs(error) <= 0.25, "\(error)") }
  }

  @Test("without sizes it goes by the mean")
  func unknownSizes() {
    let errors = Self.errors(Self.mixed(5), knowsSizes: false, at: [0.2, 0.4, 0.6, 0.8])
    for error in errors { #expect(abs(error) <= 0.4, "\(error)") }
  }

  @Test("nothing is said before two items have ended, and items not tried leave no trace")
  func early() {
    var forecast = RemainingTime(count: 4, toDo: 4)
    forecast.expect(0, kind: "jpg", bytes: 10)
    forecast.ended(0, seconds: 1)
    forecast.update(at: 2, inFlight: 0)
    #expect(forecast.secondsLeft == nil)
    // One that ends before anything is known of it.
    forecast.ended(1, seconds: 1)
    forecast.expect(1, kind: "jpg", bytes: 10)
    forecast.expect(2, kind: "jpg", bytes: 10)
    forecast.ended(2, seconds: 1)
    forecast.expect(3, kind: "jpg", bytes: 10)
    forecast.update(at: 3, inFlight: 0)
    #expect(forecast.secondsLeft.map { abs($0 - 1) < 0.1 } ?? false)
    forecast.ended(3, seconds: nil)
    forecast.update(at: 6, inFlight: 0)
    #expect(forecast.secondsLeft.map { $0 < 0.5 } ?? false)
  }

  // MARK: What holds a run up

  private func load(
    _ time: Double, cpu: Double, compute: Double, storage: Double = 0, network: Double = 0, waiting: Int = 3
  )
    -> RunLoad
  {
    RunLoad(
      elapsed: time, cpuSeconds: cpu,
      queues: [
        .init(lane: .compute, stage: nil, workers: 2, busySeconds: compute, waiting: 0),
        .init(lane: .network, stage: "upload", workers: 8, busySeconds: network, waiting: waiting),
        .init(lane: .storage, stage: nil, workers: 4, busySeconds: storage, waiting: waiting),
      ],
      stages: [
        .init(label: "decode", lane: .compute, opensInputs: true, ended: Int(time), seconds: compute * 0.6),
        .init(label: "encode", lane: .compute, opensInputs: false, ended: Int(time), seconds: compute * 0.4),
        .init(label: "write", lane: .storage, opensInputs: false, ended: Int(time), seconds: storage),
        .init(label: "upload", lane: .network, opensInputs: false, ended: Int(time), seconds: network),
      ])
  }

  @Test("the fullest queue is the bottleneck, and workers that read and do not compute wait for the disk")
  func bottleneck() {
    let begin = load(0, cpu: 0, compute: 0)
    #expect(load(10, cpu: 19, compute: 19).bottleneck(since: begin) == .init(.compute, stage: "decode"))
    #expect(load(10, cpu: 3, compute: 19).bottleneck(since: begin) == .init(.disk, stage: "decode"))
    #expect(load(10, cpu: 4, compute: 5, network: 76).bottleneck(since: begin) == .init(.network, stage: "upload"))
    #expect(load(10, cpu: 4, compute: 5, storage: 39).bottleneck(since: begin) == .init(.disk, stage: "write"))
    #expect(load(10, cpu: 4, compute: 5, storage: 5, network: 9).bottleneck(since: begin) == nil)
    #expect(load(10, cpu: 19, compute: 19, network: 79).bottleneck(since: begin) == .init(.network, stage: "upload"))
  }

  // MARK: The display

  @Test("lines keep to the window, and mark what holds the run up", arguments: [120, 80, 60, 40, 30])
  func widths(width: Int) {
    var progress = Progress()
    (progress.finished, progress.total, progress.failed, progress.elapsed) = (412, 1000, 3, 37)
    (progress.perSecond, progress.secondsLeft) = (11.2, 53)
    progress.bottleneck = .init(.compute, stage: "encode")
    progress.stages = ["decode", "resize", "a-stage-with-a-rather-long-name", "encode", "write"].enumerated().map {
      StageLine(
        label: $1, ended: 400 + $0, perSecond: 11.2, mean: 0.04 * Double($0), seconds: Double($0),
        bottleneck: $1 == "encode" ? .compute : nil)
    }
    let lines = progress.block(width: width, height: 24, color: false)
    #expect(lines.count == 6)
    #expect(lines.allSatisfy { $0.count < width }, "\(lines)")
    #expect(lines[3].hasPrefix("> encode"))
    #expect(lines[3].hasSuffix("compute") == (width >= 40))
    #expect(lines[5].contains("412/1000"))
    #expect(lines[5].contains("compute (encode)") == (width >= 80))
    // In a window of few rows the bar is all there is.
    #expect(progress.block(width: width, height: 5, color: false).count == 1)
    let few = progress.block(width: width, height: 10, color: false)
    #expect(few.count == 4)
    #expect(few.contains { $0.hasPrefix("> encode") })
    #expect(few[2].hasPrefix("  and 3 more stage"))
    #expect(progress.sentence.hasSuffix(", bottleneck compute (encode)"))
  }
}
