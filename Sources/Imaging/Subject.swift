/// Where the subject of a cut-out lies.
public struct Subject: Sendable, Hashable {
  /// The box of its pixels.
  public var box: Rectangle
  /// How much of it there is: the sum of its opacity, each pixel 0…1.
  public var mass: Double
  /// Its centre of mass in pixels from the picture's upper left corner; that of a single pixel lies at 0.5.
  public var centreX: Double
  public var centreY: Double

  public init(box: Rectangle, mass: Double, centreX: Double, centreY: Double) {
    (self.box, self.mass, self.centreX, self.centreY) = (box, mass, centreX, centreY)
  }

  /// What both are together, as in two frames of an animation.
  public func union(_ other: Subject) -> Subject {
    let sum = mass + other.mass
    return Subject(
      box: box.union(other.box), mass: sum, centreX: (centreX * mass + other.centreX * other.mass) / sum,
      centreY: (centreY * mass + other.centreY * other.mass) / sum)
  }
}

extension Image {
  /// Finds the subject by transparency, or of a matte (1 band) by what is bright in it; nil where there is none.
  ///
  /// Pixels that hang together make a part; one that is smaller than `speck` times the largest does not count. In
  /// pictures with a side of more than 1,024 pixels, parts that are less than a 1,024th of the longer side apart hang
  /// together, unless they are so sparse there that they are noise.
  /// - Parameters:
  ///   - threshold: the alpha, 0…254, up to which a pixel does not count.
  ///   - speck: a share of the largest part's area, 0…1.
  /// - Throws: `damaged`, `memory`.
  public func subject(threshold: Int, speck: Double) throws(ImagingError) -> Subject? {
    let alpha = bands == 1 ? self : try alphaBand()
    let (width, height) = (width, height)
    return try alpha.withPixels { pixels in
      var cells = SubjectCells(pixels, width, height, threshold: UInt8(clamping: threshold))
      return cells.subject(speck: speck)
    }
  }
}

/// The picture in square cells, so that finding what hangs together takes little memory however many pixels there are.
private struct SubjectCells {
  struct Cell {
    /// How many pixels count, and the sum of their alpha.
    var area: Int32 = 0
    var mass: Int32 = 0
    /// The box of these pixels, from the cell's own corner; `right` and `bottom` lie inside.
    var left = UInt16.max
    var top = UInt16.max
    var right: UInt16 = 0
    var bottom: UInt16 = 0
    /// The cell that stands for its part: another, or itself.
    var parent: Int32 = 0
  }

  /// Pixels along a cell.
  let side: Int
  let columns: Int
  let rows: Int
  var cells: [Cell]

  init(_ alpha: UnsafeRawBufferPointer, _ width: Int, _ height: Int, threshold: UInt8) {
    let side = (max(width, height) + 1023) / 1024
    let columns = (width + side - 1) / side
    (self.side, self.columns, rows) = (side, columns, (height + side - 1) / side)
    cells = [Cell](repeating: Cell(), count: columns * rows)
    cells.withUnsafeMutableBufferPointer { cells in
      for y in 0..<height {
        let first = y / side * columns
        let down = UInt16(truncatingIfNeeded: y % side)
        for column in 0..<columns {
          let start = y * width + column * side
          let length = min(side, width - column * side)
          var (area, mass): (Int32, Int32) = (0, 0)
          for i in start..<start + length {
            let counts: Int32 = alpha[i] > threshold ? 1 : 0
            area &+= counts
            mass &+= counts &* Int32(alpha[i])
          }
          guard area > 0 else { continue }
          var (left, right) = (0, length - 1)
          while alpha[start + left] <= threshold { left += 1 }
          while alpha[start + right] <= threshold { right -= 1 }
          let at = first + column
          cells[at].area += area
          cells[at].mass += mass
          cells[at].left = min(cells[at].left, UInt16(truncatingIfNeeded: left))
          cells[at].right = max(cells[at].right, UInt16(truncatingIfNeeded: right))
          cells[at].top = min(cells[at].top, down)
          cells[at].bottom = down
        }
      }
    }
  }

  /// What is left when the specks are taken away.
  mutating func subject(speck: Double) -> Subject? {
    // A line that crosses half a cell. Fewer pixels are noise, by which cells would hang together that do not; next to
    // a part they may be its rim.
    var solid = Int32(max(1, side / 2))
    if !cells.contains(where: { $0.area >= solid }) { solid = 1 }
    joinNeighbours(solid)
    var areas = [Int: Int]()
    for at in cells.indices where cells[at].area >= solid { areas[root(at), default: 0] += Int(cells[at].area) }
    guard let largest = areas.values.max() else { return nil }
    let least = speck * Double(largest)
    var kept = [Bool](repeating: false, count: cells.count)
    for at in cells.indices where cells[at].area >= solid {
      if let area = areas[root(at)], Double(area) >= least { kept[at] = true }
    }
    var (left, top, right, bottom) = (Int.max, Int.max, 0, 0)
    var (mass, acrossMass, downMass) = (0.0, 0.0, 0.0)
    for at in cells.indices where cells[at].area > 0 {
      let cell = cells[at]
      guard cell.area >= solid ? kept[at] : touches(at, kept) else { continue }
      let (x, y) = (at % columns * side, at / columns * side)
      (left, top) = (min(left, x + Int(cell.left)), min(top, y + Int(cell.top)))
      (right, bottom) = (max(right, x + Int(cell.right)), max(bottom, y + Int(cell.bottom)))
      let share = Double(cell.mass) / 255
      mass += share
      // What a cell holds is taken to lie in the middle of its pixels' box.
      acrossMass += share * (Double(x) + Double(Int(cell.left) + Int(cell.right) + 1) / 2)
      downMass += share * (Double(y) + Double(Int(cell.top) + Int(cell.bottom) + 1) / 2)
    }
    return Subject(
      box: Rectangle(x: left, y: top, width: right - left + 1, height: bottom - top + 1), mass: mass,
      centreX: acrossMass / mass, centreY: downMass / mass)
  }

  /// Whether one of the cells around is among those that are kept.
  private func touches(_ at: Int, _ kept: [Bool]) -> Bool {
    let (x, y) = (at % columns, at / columns)
    for row in max(0, y - 1)...min(rows - 1, y + 1) {
      for column in max(0, x - 1)...min(columns - 1, x + 1) where kept[row * columns + column] { return true }
    }
    return false
  }

  /// Joins each cell that holds enough with those before it that touch it, by sides or corners.
  private mutating func joinNeighbours(_ solid: Int32) {
    for at in cells.indices where cells[at].area >= solid {
      cells[at].parent = Int32(at)
      let (x, y) = (at % columns, at / columns)
      if x > 0 { join(at, at - 1, solid) }
      guard y > 0 else { continue }
      join(at, at - columns, solid)
      if x > 0 { join(at, at - columns - 1, solid) }
      if x < columns - 1 { join(at, at - columns + 1, solid) }
    }
  }

  private mutating func join(_ a: Int, _ b: Int, _ solid: Int32) {
    guard cells[b].area >= solid else { return }
    let (a, b) = (root(a), root(b))
    guard a != b else { return }
    cells[max(a, b)].parent = Int32(min(a, b))
  }

  /// The cell that stands for a part; the way to it is shortened.
  private mutating func root(_ at: Int) -> Int {
    var at = at
    while cells[at].parent != at {
      cells[at].parent = cells[Int(cells[at].parent)].parent
      at = Int(cells[at].parent)
    }
    return at
  }
}
