/// Finds the known name that a mistyped one most likely means.
public enum NearestName {
  /// The known name nearest to `name`, or nil where none is near enough to be worth offering.
  ///
  /// Names are compared without regard to case, hyphens, underscores and spaces, so `on_error` finds `onError`. A
  /// name is near when at most one edit (two from 6 letters on, three from 9, and so on: a third of the longer
  /// name) turns one into the other; an edit inserts, drops or replaces a letter or swaps two neighbours (optimal
  /// string alignment, a restricted Damerau–Levenshtein distance). Of equally near names the one with the longer
  /// common beginning wins, then the first in alphabetical order, whatever the order of `known`.
  public static func suggestion(for name: String, among known: some Sequence<String>) -> String? {
    let wanted = folded(name)
    guard !wanted.isEmpty, wanted.count <= longestName else { return nil }
    let written = Array(name.unicodeScalars)
    var best: (rank: (Int, Int, Int), name: String)?
    for candidate in known where candidate != name {
      let folds = folded(candidate)
      guard !folds.isEmpty, folds.count <= longestName else { continue }
      let limit = allowance(for: max(wanted.count, folds.count))
      guard abs(folds.count - wanted.count) <= limit else { continue }
      let distance = distance(wanted, folds)
      // A name of one letter is one edit away from every other such name.
      guard distance <= limit, distance < min(wanted.count, folds.count) || distance == 0 else { continue }
      let common = zip(wanted, folds).prefix { $0 == $1 }.count
      let rank = (distance, -common, self.distance(written, Array(candidate.unicodeScalars)))
      if let best, (best.rank.0, best.rank.1, best.rank.2, best.name) <= (rank.0, rank.1, rank.2, candidate) {
        continue
      }
      best = (rank, candidate)
    }
    return best?.name
  }

  // Comparing takes time in the product of both lengths; no name of ours comes near this.
  private static let longestName = 64

  private static func allowance(for length: Int) -> Int { max(1, length / 3) }

  private static func folded(_ name: String) -> [Unicode.Scalar] {
    guard name.utf8.count <= longestName * 4 + 64 else { return [] }
    return name.lowercased().unicodeScalars.filter { $0 != "-" && $0 != "_" && $0 != " " }
  }

  private static func distance(_ a: [Unicode.Scalar], _ b: [Unicode.Scalar]) -> Int {
    var beforeLast: [Int] = []
    var last = Array(0...b.count)
    for i in 0..<a.count {
      var row = [i + 1]
      row.reserveCapacity(b.count + 1)
      for j in 0..<b.count {
        var cost = min(last[j + 1] + 1, row[j] + 1, last[j] + (a[i] == b[j] ? 0 : 1))
        if i > 0, j > 0, a[i] == b[j - 1], a[i - 1] == b[j] { cost = min(cost, beforeLast[j - 1] + 1) }
        row.append(cost)
      }
      beforeLast = last
      last = row
    }
    return last[b.count]
  }
}
