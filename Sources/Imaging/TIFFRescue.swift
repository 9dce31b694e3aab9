/// Makes a TIFF whose strips or tiles lie beyond its end readable: libtiff gives no row of a strip that is not there
/// whole, and libvips then no row at all.
///
/// Plain pixels are filled up with zeros. Of packed ones, which zeros would not unpack, the picture is made as low as
/// the rows whose strips or tiles are all there; who reads it makes it as high again.
enum TIFFRescue {
  /// The file mended in its first page; nil where its tables make no sense, or no row is there.
  static func whole(from b: UnsafeRawBufferPointer) -> EncodedBytes? {
    guard let file = TIFFDirectories(b), let page = file.directory(at: file.first),
      let width = page.number(256), let height = page.number(257), width > 0, height > 0,
      let heightEntry = page.entry(257), heightEntry.unit == 2 || heightEntry.unit == 4
    else { return nil }
    let isTiled = page.entry(324) != nil
    guard let places = page.entry(isTiled ? 324 : 273), let lengths = page.entry(isTiled ? 325 : 279) else {
      return nil
    }
    /// The first strip or tile that is not there whole, and where the last of them ends.
    var (firstLost, end) = (places.count, b.count)
    for i in 0..<min(places.count, lengths.count) {
      guard let place = page.value(places, i), let length = page.value(lengths, i) else { return nil }
      let (last, overflow) = place.addingReportingOverflow(length)
      guard !overflow else { return nil }
      if last > b.count { firstLost = min(firstLost, i) }
      end = max(end, last)
    }
    guard firstLost < places.count else { return nil }
    let samples = page.number(277) ?? 1
    if page.number(259) ?? 1 == 1 {
      let bits = page.number(258) ?? 1
      // Tiles go beyond the picture's edges, by less than their own sides.
      let across = width + (isTiled ? page.number(322) ?? 0 : 0)
      let down = height + (isTiled ? page.number(323) ?? 0 : 0)
      guard max(across, down) < 1 << 20, samples < 1 << 10, bits <= 64,
        end - b.count <= (across * bits * samples / 8 + 1) * down
      else { return nil }
      return EncodedBytes(copying: b, filledUpTo: end)
    }
    // Planes lie one behind the other: of the last there is nothing where of the first there is all.
    guard page.number(284) ?? 1 == 1 || samples == 1 else { return nil }
    let rows: Int
    if isTiled {
      guard let tileWidth = page.number(322), let tileHeight = page.number(323), tileWidth > 0, tileHeight > 0,
        tileHeight < 1 << 20
      else { return nil }
      rows = firstLost / ((width - 1) / tileWidth + 1) * tileHeight
    } else {
      rows = firstLost * min(page.number(278) ?? height, height)
    }
    guard rows > 0, rows < height else { return nil }
    let isLittle = b[0] == 0x49
    var out = Array(b)
    for i in 0..<heightEntry.unit {
      let shift = 8 * (isLittle ? i : heightEntry.unit - 1 - i)
      out[heightEntry.at + i] = UInt8(truncatingIfNeeded: rows >> shift)
    }
    return EncodedBytes(out)
  }
}
