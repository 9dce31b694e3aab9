import CVips

/// Pixels that are damaged or cut short.
extension EncodedPicture {
  /// Decodes strictly, and where the pixels turn out damaged once more as far as they go, if that is wanted: then from
  /// a mended copy where the decoder gives nothing by itself.
  func withDamage<R>(
    _ work: (EncodedPicture, VipsFailOn) throws(ImagingError) -> R
  ) throws(ImagingError) -> R {
    let found = body.withUnsafeBytes { raw -> Integrity.Finding? in
      if case .file(let format) = content { Integrity.check(raw, format) } else { nil }
    }
    if let found {
      let isWanted = isAnimation || (found.frame ?? 0) == 0
      if found.costsPixels && isWanted { return try damaged(found.message, work) }
      warn("this \(header.format.displayName) picture \(found.message)")
    }
    do throws(ImagingError) {
      // libjpeg only warns of wrong data; whether that costs pixels is looked at where it did.
      return try work(self, content.isJPEG ? VIPS_FAIL_ON_WARNING : VIPS_FAIL_ON_ERROR)
    } catch {
      guard error.code == .damaged else { throw error }
      guard content.isJPEG else { return try damaged(error.detail, work, error) }
      switch body.withUnsafeBytes({ Integrity.diagnoseJPEG($0) }) {
      case .whole, .odd: return try work(self, VIPS_FAIL_ON_ERROR)
      case .garbled(let row, let rows, let what):
        let result = try work(self, VIPS_FAIL_ON_ERROR)
        if options.onDamage != .accept {
          warnOfDamage(
            "some of the picture's data are damaged, from about row \(row) of \(rows) on (\(what)); pixels may be wrong"
          )
        }
        return result
      case .cutShort(let row, let rows, let what):
        return try damaged("the data end at about row \(row) of \(rows): \(what)", work)
      case .refused(let what): return try damaged(what, work)
      case .tooManyScans(let most): throw Self.damage(header.format, "it has more than \(most) scans")
      }
    }
  }

  /// The end for a damaged picture, or what there is of it.
  private func damaged<R>(
    _ detail: String, _ work: (EncodedPicture, VipsFailOn) throws(ImagingError) -> R, _ error: ImagingError? = nil
  ) throws(ImagingError) -> R {
    guard options.onDamage != .fail else { throw error ?? Self.damage(header.format, detail) }
    let mended = self.mended()
    let result: R
    do throws(ImagingError) {
      result = try work(mended ?? self, VIPS_FAIL_ON_NONE)
    } catch {
      guard error.code == .damaged else { throw error }
      throw Self.damage(header.format, detail.isEmpty ? error.detail : detail, isHopeless: true)
    }
    for text in mended?.warnings ?? [] { warn(text) }
    if options.onDamage == .warn { warnOfDamage(Self.partly(detail)) }
    return result
  }

  /// The warning where damage is put up with.
  static func partly(_ detail: String) -> String {
    "the pixels are damaged or cut short; what could be read is used" + (detail.isEmpty ? "" : " (\(detail))")
  }

  /// The picture with its file mended so far that the decoder gives what there is; nil where it needs no mending, or
  /// none is known.
  private func mended() -> EncodedPicture? {
    guard case .file(let format) = content else { return nil }
    let body = body.withUnsafeBytes { raw -> EncodedBytes? in
      switch format {
      case .png: PNGRescue.whole(from: raw)
      case .tiff: TIFFRescue.whole(from: raw)
      default: nil
      }
    }
    return body.map { EncodedPicture(self, mended: $0) }
  }

  /// - Parameter isHopeless: whether what is left of it was asked for, and nothing came.
  static func damage(_ format: PictureFormat, _ detail: String, isHopeless: Bool = false) -> ImagingError {
    let hint =
      if !format.isReadInPart {
        "get the file anew: a damaged \(format.displayName) picture is read whole or not at all"
      } else if isHopeless {
        "get the file anew: nothing of its pixels could be read"
      } else {
        "get the file anew, or set \"onDamage\": \"warn\" in \"decode\" to use what is left of it"
      }
    return ImagingError(
      .damaged, "the pixels of this \(format.displayName) picture are damaged or cut short", detail: detail, hint: hint)
  }
}

extension PictureFormat {
  /// Whether the decoders of libvips 8.14 give what there is of a damaged picture, some with our help.
  fileprivate var isReadInPart: Bool {
    switch self {
    case .jpeg, .png, .gif, .webp, .tiff, .bmp, .ico: true
    case .heic, .avif, .jxl, .jp2, .svg, .pdf: false
    }
  }
}

extension EncodedPicture.Content {
  fileprivate var isJPEG: Bool { if case .file(.jpeg) = self { true } else { false } }
}
