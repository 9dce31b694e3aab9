import PipelineKit

/// One of several equal parts of a job's inputs, for runs that share the work between processes or machines.
///
/// Which part an input belongs to follows from its name as found (relative to the job's folder where it is below it)
/// and the number of parts alone: `name.stableHash` modulo the count. So it is the same on every machine, an input keeps
/// its part when others come or go, and rows of a manifest that name one picture stay together.
public struct Shard: Sendable, Hashable {
  /// From 1.
  public let index: Int
  public let count: Int

  public static let mostShards = 100_000

  /// Nil where `index` is not in `1...count` or there are too many.
  public init?(index: Int, count: Int) {
    guard (1...Self.mostShards).contains(count), (1...count).contains(index) else { return nil }
    self.index = index
    self.count = count
  }

  /// Reads `I/N`, in digits alone.
  public init?(parsing text: String) {
    let parts = text.split(separator: "/", omittingEmptySubsequences: false)
    guard parts.count == 2, let index = Self.number(parts[0]), let count = Self.number(parts[1]) else { return nil }
    self.init(index: index, count: count)
  }

  static func number(_ text: some StringProtocol) -> Int? {
    guard !text.isEmpty, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
    return Int(text)
  }

  /// Whether an input is of this shard.
  ///
  /// - Parameter name: the input as found.
  public func contains(_ name: PathBytes) -> Bool { name.stableHash % UInt64(count) == UInt64(index - 1) }

  /// `2-of-4`.
  public var label: String { "\(index)-of-\(count)" }

  /// The shard's own folder in a state folder that all share: `shard-2-of-4`.
  public var folderName: String { "shard-" + label }

  /// This shard's part of an amount. The parts of all shards add up to it, and differ by one at most.
  ///
  /// - Parameter total: not negative.
  public func share(of total: Int) -> Int { total / count + (index <= total % count ? 1 : 0) }
}

/// What `--shard` may say.
public enum ShardChoice: Sendable, Hashable {
  case fixed(Shard)
  /// Found in the environment; with the number of shards, where the environment does not tell it.
  case detected(count: Int?)

  /// Reads `I/N`, `auto` or `auto/N`.
  public init?(parsing text: String) {
    if text == "auto" {
      self = .detected(count: nil)
    } else if text.hasPrefix("auto/") {
      guard let count = Shard.number(text.dropFirst(5)), (1...Shard.mostShards).contains(count) else { return nil }
      self = .detected(count: count)
    } else {
      guard let shard = Shard(parsing: text) else { return nil }
      self = .fixed(shard)
    }
  }

  /// The shard that is meant.
  ///
  /// - Parameter variable: an environment variable's value.
  public func shard(variable: (String) -> String?) throws(ShardError) -> Shard {
    switch self {
    case .fixed(let shard): shard
    case .detected(let count): try ShardDetection.shard(count: count, variable: variable)
    }
  }
}

/// Why no shard follows from the environment.
public struct ShardError: Error, Sendable, Hashable {
  public var message: String
  public var hint: String?
}
