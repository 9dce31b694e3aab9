/// A second look at crops around the edge, at the model's own resolution, merged with the map of the whole picture.
///
/// A model of the salient object needs to see the object: a crop of a piece of edge can be understood quite otherwise
/// than the whole. So crops are half of the longer side, lie where the first map is in doubt, and count only where
/// they tell the same story as the map of the whole: a crop as a whole when the two overlap well, and each of its
/// pixels by how close its local mean comes to the map's.
public enum DetailTiles {
  /// Crops along the longer side, before overlap; also how much finer the merged map is.
  static let fineness = 2
  /// At most so many further inferences a picture.
  static let mostTiles = 9
  /// Pictures with less than this many pixels for each of the map's cells have no detail to find.
  static let leastRatio = 2.0
  /// Crops whose overlap (intersection over union at 0.5) with the map of the whole is less are not used.
  static let leastOverlap: Float = 0.8
  /// Local means further apart than this are another story.
  static let mostDifference: Float = 0.25

  /// The finer map, and how many crops went into it; the map as it is where nothing can be gained.
  ///
  /// - Parameters:
  ///   - map: the model's map of the whole picture, stretched over it.
  ///   - width, height: the picture's sides in pixels.
  ///   - look: the model's map of a part of the picture, of any size; nil where it finds nothing there.
  public static func refined<Failure: Error>(
    _ map: MatteMap, width: Int, height: Int, look: (Rectangle) throws(Failure) -> MatteMap?
  ) throws(Failure) -> (map: MatteMap, tiles: Int) {
    let longest = max(width, height)
    guard Double(longest) >= leastRatio * Double(max(map.width, map.height)) else { return (map, 0) }
    let first = FloatPlane(map)
    let doubt = Doubt(first)
    let tiles = chosen(side: (longest + fineness - 1) / fineness, width: width, height: height, doubt: doubt)
    guard !tiles.isEmpty else { return (map, 0) }

    let whole = first.resized(width: map.width * fineness, height: map.height * fineness)
    var sum = FloatPlane(width: whole.width, height: whole.height)
    var weight = sum
    var used = 0
    for tile in tiles {
      guard let seen = try look(tile) else { continue }
      // The cells of the merged map that the crop covers.
      let (x0, x1) = (tile.x * whole.width / width, (tile.x + tile.width) * whole.width / width)
      let (y0, y1) = (tile.y * whole.height / height, (tile.y + tile.height) * whole.height / height)
      guard x1 - x0 >= 8, y1 - y0 >= 8 else { continue }
      let detail = FloatPlane(seen).resized(width: x1 - x0, height: y1 - y0)
      if merge(detail, into: &sum, &weight, whole: whole, x: x0, y: y0) { used += 1 }
    }
    guard used > 0 else { return (map, 0) }
    var merged = whole
    for y in 0..<whole.height {
      for x in 0..<whole.width {
        let index = y * whole.width + x
        guard weight.values[index] > 0 else { continue }
        let share = min(weight.values[index], 1) * doubt.at(x / fineness, y / fineness)
        merged.values[index] += (sum.values[index] / weight.values[index] - merged.values[index]) * share
      }
    }
    return (MatteMap(width: merged.width, height: merged.height, values: merged.values), used)
  }

  /// Where the map changes or is undecided, and around it.
  private struct Doubt {
    /// 0…1, smooth, so that no seam shows where detail ends.
    private(set) var plane: FloatPlane

    init(_ map: FloatPlane) {
      let reach = max(2, max(map.width, map.height) / 64)
      let range = map.windowMaximum(radius: reach).joined(with: map.windowMinimum(radius: reach)) {
        min(($0 - $1) * 2, 1)
      }
      plane = range.boxMean(radius: reach)
    }

    var total: Float { plane.values.reduce(0, +) }

    func at(_ x: Int, _ y: Int) -> Float { plane.values[y * plane.width + x] }

    /// The doubt within a part of the picture, and takes it away where a tile's middle covers it.
    mutating func take(_ tile: Rectangle, of width: Int, _ height: Int, remove: Bool) -> Float {
      let inset = remove ? 8 : 16
      let x0 = (tile.x + tile.width / inset) * plane.width / width
      let x1 = (tile.x + tile.width - tile.width / inset) * plane.width / width
      let y0 = (tile.y + tile.height / inset) * plane.height / height
      let y1 = (tile.y + tile.height - tile.height / inset) * plane.height / height
      var sum: Float = 0
      for y in y0..<max(y0, y1) {
        for x in x0..<max(x0, x1) {
          sum += plane.values[y * plane.width + x]
          if remove { plane.values[y * plane.width + x] = 0 }
        }
      }
      return sum
    }
  }

  /// Overlapping crops, those with most of the doubt first, until little is left.
  private static func chosen(side: Int, width: Int, height: Int, doubt: Doubt) -> [Rectangle] {
    func starts(_ length: Int, _ tile: Int) -> [Int] {
      guard length > tile else { return [0] }
      let steps = max(1, Int((Double(length - tile) / (Double(tile) / 2)).rounded(.up)))
      return (0...steps).map { $0 * (length - tile) / steps }
    }
    let (tileWidth, tileHeight) = (min(side, width), min(side, height))
    var candidates = starts(height, tileHeight).flatMap { y in
      starts(width, tileWidth).map { Rectangle(x: $0, y: y, width: tileWidth, height: tileHeight) }
    }
    var rest = doubt
    var result: [Rectangle] = []
    let enough = doubt.total * 0.02
    while result.count < mostTiles, !candidates.isEmpty {
      let worth = candidates.map { rest.take($0, of: width, height, remove: false) }
      guard let best = worth.indices.max(by: { worth[$0] < worth[$1] }), worth[best] > enough else { break }
      let tile = candidates.remove(at: best)
      _ = rest.take(tile, of: width, height, remove: true)
      result.append(tile)
    }
    return result
  }

  /// Adds a crop's map where it agrees; false where it tells another story.
  private static func merge(
    _ detail: FloatPlane, into sum: inout FloatPlane, _ weight: inout FloatPlane, whole: FloatPlane, x: Int, y: Int
  ) -> Bool {
    let (width, height) = (detail.width, detail.height)
    var part = FloatPlane(width: width, height: height)
    var (both, either) = (0, 0)
    for row in 0..<height {
      for column in 0..<width {
        let value = whole.values[(y + row) * whole.width + x + column]
        part.values[row * width + column] = value
        let (a, b) = (value >= 0.5, detail.values[row * width + column] >= 0.5)
        if a && b { both += 1 }
        if a || b { either += 1 }
      }
    }
    guard either > 0, Float(both) >= leastOverlap * Float(either) else { return false }
    // Over about three of the first map's cells, which is what it can tell apart.
    let radius = fineness + fineness / 2
    let near = detail.boxMean(radius: radius)
    let far = part.boxMean(radius: radius)
    for row in 0..<height {
      let down = window(row, height)
      for column in 0..<width {
        let at = row * width + column
        let agreement = max(1 - abs(near.values[at] - far.values[at]) / mostDifference, 0)
        let share = agreement * down * window(column, width)
        sum.values[(y + row) * whole.width + x + column] += detail.values[at] * share
        weight.values[(y + row) * whole.width + x + column] += share
      }
    }
    return true
  }

  /// 0 at both ends, 1 in the middle three quarters.
  private static func window(_ place: Int, _ length: Int) -> Float {
    let edge = Float(min(place, length - 1 - place)) + 0.5
    return min(edge / (Float(length) / 8), 1)
  }
}
