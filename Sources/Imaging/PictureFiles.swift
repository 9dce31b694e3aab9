import CVips
import Digest

/// Files on disk.
extension EncodedPicture {
  /// Opens a picture file: looks at its first bytes before it reads the rest, so that a film among the photos costs
  /// no memory.
  ///
  /// - Parameter path: the path's bytes, without a closing zero.
  /// - Throws: `changed` where the file was written to or replaced meanwhile, whatever else that led to; else as `read`
  ///   and `init`.
  public convenience init(path: [UInt8], options: DecodeOptions = DecodeOptions()) throws(ImagingError) {
    let (fd, size) = try Self.open(path)
    defer { _ = cvips_close(fd) }
    let before = try Self.stamp(fd, path)
    do throws(ImagingError) {
      if size > 64 << 10 {
        var prefix = [UInt8](repeating: 0, count: 64 << 10)
        let count = prefix.withUnsafeMutableBytes { cvips_read(fd, $0.baseAddress, $0.count) }
        if count > 0, FormatSniffer.format(of: prefix.prefix(Int(count))) == nil {
          throw Self.unsupported(prefix.prefix(Int(count)))
        }
        guard cvips_rewind(fd) == 0 else { throw ImagingError(.io, "\(Self.named(path)) could not be read") }
      }
      let bytes = try Self.read(fd, size: size, path, maxBytes: Self.mostBytes)
      guard Int64(bytes.count) == before.size, try Self.stamp(fd, path) == before else { throw Self.changed(path) }
      try self.init(bytes: bytes, options: options, stamp: before)
    } catch {
      // Half a file reads as a damaged one.
      guard error.code != .changed, try Self.stamp(fd, path) != before else { throw error }
      throw Self.changed(path)
    }
  }

  private static func stamp(_ fd: Int32, _ path: [UInt8]) throws(ImagingError) -> FileStamp {
    do throws(SystemCallError) { return try FileStamp(descriptor: fd) } catch {
      throw ImagingError(.io, "\(named(path)) could not be read", detail: systemMessage(error.number))
    }
  }

  private static func changed(_ path: [UInt8]) -> ImagingError {
    ImagingError(
      .changed, "\(named(path)) was written to or replaced while it was read",
      hint: "run again when it is whole; writers that put files in place by renaming never show half of one")
  }

  /// The largest file that is read, in bytes.
  private static let mostBytes = 4 << 30

  /// Reads a whole file.
  ///
  /// - Parameter path: the path's bytes, without a closing zero.
  /// - Throws: `io` where it cannot be read or is not a regular file, `empty`, `limit` over `maxBytes`, `memory`.
  public static func read(path: [UInt8], maxBytes: Int = 4 << 30) throws(ImagingError) -> EncodedBytes {
    let (fd, size) = try open(path)
    defer { _ = cvips_close(fd) }
    return try read(fd, size: size, path, maxBytes: maxBytes)
  }

  private static func read(
    _ fd: Int32, size: Int, _ path: [UInt8], maxBytes: Int
  ) throws(ImagingError) -> EncodedBytes {
    guard size <= maxBytes else {
      throw ImagingError(.limit, "\(named(path)) has \(size) bytes, more than the \(maxBytes) that are read")
    }
    guard let memory = g_try_malloc(gsize(size)) else {
      throw ImagingError(.memory, "there is no memory for the \(size) bytes of \(named(path))")
    }
    let count = cvips_read(fd, memory, size)
    guard count > 0 else {
      g_free(memory)
      guard count < 0 else { throw ImagingError(.empty, "\(named(path)) is empty") }
      throw ImagingError(.io, "\(named(path)) could not be read", detail: systemMessage(Int32(-count)))
    }
    return EncodedBytes(adopting: memory, count: Int(count))
  }

  /// Reads the header of a file on disk without reading all of it.
  ///
  /// - Throws: as `read` and `init`.
  public static func verifyHeader(
    path: [UInt8], limits: DecodeLimits = DecodeLimits()
  ) throws(ImagingError) -> PictureHeader {
    try Libvips.start()
    let (fd, size) = try open(path)
    defer { _ = cvips_close(fd) }
    var prefix = [UInt8](repeating: 0, count: min(size, 64 << 10))
    let count = prefix.withUnsafeMutableBytes { cvips_read(fd, $0.baseAddress, $0.count) }
    guard count >= 0, cvips_rewind(fd) == 0 else {
      throw ImagingError(.io, "\(named(path)) could not be read", detail: systemMessage(Int32(-count)))
    }
    // libvips duplicates the descriptor, so ours is closed on every path.
    let result: Result<PictureHeader, ImagingError> = prefix.withUnsafeBytes { raw in
      do throws(ImagingError) {
        return .success(
          try header(sniffed(UnsafeRawBufferPointer(rebasing: raw[..<Int(count)]), limits: limits), limits) {
            vips_source_new_from_descriptor(fd)
          })
      } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }

  /// Decodes all of a file on disk, row by row, keeping nothing.
  ///
  /// - Throws: `damaged` where some of it cannot be decoded, and as `read` and `init`.
  public static func verifyPixels(
    path: [UInt8], limits: DecodeLimits = DecodeLimits()
  ) throws(ImagingError) -> PictureHeader {
    let header = try verifyHeader(path: path, limits: limits)
    guard !header.format.loader.isEmpty else { return header }
    let (fd, _) = try open(path)
    defer { _ = cvips_close(fd) }
    guard let source = vips_source_new_from_descriptor(fd) else {
      throw ImagingError(.internalFault, "libvips could not open the file", detail: Libvips.drainErrors())
    }
    defer { cvips_unref(source) }
    let format = header.format
    let image = try vips("reading this \(format.displayName) picture", .damaged, about: format.errorWords) {
      header.frames > 1 && format.isAnimated
        ? cvips_load_frames(format.loader, source, $0, VIPS_FAIL_ON_ERROR)
        : cvips_load(format.loader, source, $0, VIPS_FAIL_ON_ERROR)
    }
    image.limitToOneThread()
    var least = 0.0
    guard cvips_min(image.pointer, &least) == 0 else {
      throw Image(adopting: image, lazyFrom: format).evaluationError("reading pixels")
    }
    return header
  }

  private static func open(_ path: [UInt8]) throws(ImagingError) -> (fd: Int32, size: Int) {
    let fd = (path.map { CChar(bitPattern: $0) } + [0]).withUnsafeBufferPointer { cvips_open($0.baseAddress) }
    guard fd >= 0 else {
      throw ImagingError(.io, "\(named(path)) could not be opened", detail: systemMessage(-fd))
    }
    let size = cvips_file_size(fd)
    guard size > 0 else {
      _ = cvips_close(fd)
      if size == 0 { throw ImagingError(.empty, "\(named(path)) is empty") }
      if size == -Int64(EINVAL) { throw ImagingError(.io, "\(named(path)) is not a regular file") }
      throw ImagingError(.io, "\(named(path)) could not be read", detail: systemMessage(Int32(-size)))
    }
    return (fd, Int(size))
  }

  private static func named(_ path: [UInt8]) -> String { String(decoding: path, as: UTF8.self) }

  private static func systemMessage(_ code: Int32) -> String {
    guard let text = g_strerror(code) else { return "error \(code)" }
    return String(cString: text)
  }
}
