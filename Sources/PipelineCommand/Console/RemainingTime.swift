import Glibc

/// When a run will be over, from what its items cost and not from their number: of a batch of thumbnails and scans, the
/// scans are what takes time, in whatever order they come.
///
/// An item's cost is the time that stages spend on it. For items of one kind it is taken for a fixed part and one that
/// grows with the bytes of the file, fitted to those that have ended. What all items still open will cost, less what those
/// in flight have had, is divided by the cost that the run gets through in a second. The end is kept as a point in time and
/// moved only when the estimate has left it by a twentieth of what remains, so that the remaining time counts down evenly.
struct RemainingTime: Sendable {
  /// Sums over the ended items of a kind, and what is still open of it.
  private struct Kind: Sendable {
    var count = 0.0
    var bytes = 0.0
    var seconds = 0.0
    var squares = 0.0
    var products = 0.0
    var open = 0
    var openBytes = 0.0
    /// Open items whose size is not known.
    var unsized = 0

    /// - Parameter memory: the number of items after which one counts for little more than a third.
    mutating func add(bytes x: Double, seconds y: Double, memory: Double) {
      let decay = 1 - 1 / memory
      count = count * decay + 1
      (bytes, seconds) = (bytes * decay, seconds * decay)
      (squares, products) = (squares * decay, products * decay)
      bytes += x
      seconds += y
      squares += x * x
      products += x * y
    }

    /// The fixed part, and the part of each byte.
    ///
    /// As if some more items of no size and no cost had been seen: before sizes differ much, cost is taken to grow with
    /// them, as it does for pictures. What was seen long ago counts less: a machine gets slower and faster.
    var cost: (fixed: Double, perByte: Double) {
      let (x, y) = (bytes / count, seconds / count)
      guard x > 0 else { return (y, 0) }
      let spread = squares - bytes * x
      let common = products - bytes * y
      let weight = Self.prior + count * 0.1
      let slope = min(max(0, (common + weight * x * y) / (max(0, spread) + weight * x * x)), y / x)
      return (y - slope * x, slope)
    }

    private static let prior = 4.0
  }

  private struct Entry: Sendable {
    /// Kinds by number; below 0 for an item that is not open.
    var kind: Int32 = Self.unlisted
    /// Below 0 where it is not known.
    var bytes: Float = -1

    static let unlisted: Int32 = -1
    static let ended: Int32 = -2
  }

  private var entries: [Entry]
  private var names: [String: Int32] = [:]
  private var kinds: [Kind] = []
  private var all = Kind()
  private var tried = 0
  private var spent = 0.0
  private var openCount = 0
  /// Items still to be worked on of which nothing is known yet.
  private var unlisted: Int
  private var last = 0.0
  private var lastWork = 0.0
  private var weightedWork = 0.0
  private var weightedSeconds = 0.0
  private var shownEnd: Double?

  /// From so many ended items of a kind on it is judged by itself.
  private static let enough = 8.0
  /// So few open items are looked at one by one: the last large one may be what the end waits for.
  private static let few = 64
  private static let mostKinds = 64

  /// - Parameters:
  ///   - count: all items of the run, those that are decided too.
  ///   - toDo: those that are worked on.
  init(count: Int = 0, toDo: Int = 0) {
    entries = Array(repeating: Entry(), count: count)
    unlisted = toDo
  }

  /// Tells of an item that is to be worked on; once, at any time.
  ///
  /// - Parameters:
  ///   - kind: items of one kind cost alike: the ending of the name.
  ///   - bytes: the file's size; nil where it is not known.
  mutating func expect(_ index: Int, kind name: String, bytes: Double?) {
    guard entries.indices.contains(index), entries[index].kind == Entry.unlisted else { return }
    unlisted -= 1
    let number = names[name] ?? (kinds.count < Self.mostKinds ? Int32(kinds.count) : 0)
    if number == Int32(kinds.count) {
      kinds.append(Kind())
      names[name] = number
    }
    let entry = Entry(kind: number, bytes: bytes.map { Float($0) } ?? -1)
    entries[index] = entry
    openCount += 1
    for change in [\Self.all, \Self.kinds[Int(number)]] as [WritableKeyPath<Self, Kind>] {
      self[keyPath: change].open += 1
      if entry.bytes >= 0 {
        self[keyPath: change].openBytes += Double(entry.bytes)
      } else {
        self[keyPath: change].unsized += 1
      }
    }
  }

  private mutating func take(_ entry: Entry) {
    openCount -= 1
    for change in [\Self.all, \Self.kinds[Int(entry.kind)]] as [WritableKeyPath<Self, Kind>] {
      self[keyPath: change].open -= 1
      if entry.bytes >= 0 {
        self[keyPath: change].openBytes -= Double(entry.bytes)
      } else {
        self[keyPath: change].unsized -= 1
      }
    }
  }

  /// Notes the end of an item.
  ///
  /// - Parameter seconds: the time that stages spent on it; nil where it was not tried.
  mutating func ended(_ index: Int, seconds: Double?) {
    guard entries.indices.contains(index) else { return }
    let entry = entries[index]
    entries[index].kind = Entry.ended
    if let seconds { spent += seconds }
    guard entry.kind >= 0 else {
      if entry.kind == Entry.unlisted { unlisted -= 1 }
      return
    }
    take(entry)
    guard let seconds else { return }
    // One of unknown size says something about the mean alone.
    let kind = kinds[Int(entry.kind)]
    let known = kind.count > 0 ? kind.bytes / kind.count : all.count > 0 ? all.bytes / all.count : 0
    let bytes = entry.bytes >= 0 ? Double(entry.bytes) : known
    tried += 1
    let memory = 40 + 0.3 * Double(tried)
    kinds[Int(entry.kind)].add(bytes: bytes, seconds: seconds, memory: memory)
    all.add(bytes: bytes, seconds: seconds, memory: memory)
  }

  /// What the open items will cost, from their beginning; nil while nothing has ended.
  private var openCost: Double? {
    guard all.count > 0 else { return nil }
    var sum = Double(max(0, unlisted)) * all.seconds / all.count
    for kind in kinds where kind.open > 0 {
      let judged = kind.count >= Self.enough ? kind : all
      let (fixed, perByte) = judged.cost
      let sized = kind.open - kind.unsized
      // Those of unknown size are taken for such as the others of their kind.
      let mean = sized > 0 ? kind.openBytes / Double(sized) : judged.bytes / judged.count
      sum += Double(kind.open) * fixed + perByte * (kind.openBytes + Double(kind.unsized) * mean)
    }
    return sum
  }

  /// The cost of the dearest open item, where there are few.
  private var dearest: Double {
    guard openCount <= Self.few else { return 0 }
    var most = 0.0
    for entry in entries where entry.kind >= 0 && entry.bytes >= 0 {
      let kind = kinds[Int(entry.kind)]
      let (fixed, perByte) = (kind.count >= Self.enough ? kind : all).cost
      most = max(most, fixed + perByte * Double(entry.bytes))
    }
    return most
  }

  /// Works the end out anew.
  ///
  /// - Parameters:
  ///   - seconds: since the start of the run; never smaller than before.
  ///   - inFlight: the time that stages have spent on items that have not ended.
  mutating func update(at seconds: Double, inFlight: Double) {
    let step = seconds - last
    guard step > 0 else { return }
    let work = spent + inFlight
    let gain = max(0, work - lastWork)
    (last, lastWork) = (seconds, work)
    // Getting ready, as loading a model, is no measure of the pace.
    guard gain > 0 || weightedWork > 0 else { return }
    let memory = max(10, seconds * 0.3)
    let decay = exp(-step / memory)
    weightedWork = weightedWork * decay + gain
    weightedSeconds = weightedSeconds * decay + step
    guard tried >= 2, seconds >= 1, weightedWork > 0, let cost = openCost else { return }
    let pace = weightedWork / weightedSeconds
    let rest = max(cost - inFlight, cost * 0.02)
    let left = max(rest / pace, dearest * (rest / max(cost, 1e-9)))
    let end = seconds + left
    if let shown = shownEnd, abs(shown - end) <= max(1, left * 0.05), shown > seconds { return }
    shownEnd = end
  }

  /// Seconds to the end; nil while nothing can be said.
  var secondsLeft: Double? { shownEnd.map { max(0, $0 - last) } }
}
