import CVips

/// Pixels that are damaged or cut short.
extension EncodedPicture {
  /// Decodes strictly, and where the pixels turn out damaged once more as far as they go, if that is wanted.
  func withDamage<R>(_ work: (VipsFailOn) throws(ImagingError) -> R) throws(ImagingError) -> R {
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
      return try work(content.isJPEG ? VIPS_FAIL_ON_WARNING : VIPS_FAIL_ON_ERROR)
    } catch {
      guard error.code == .damaged else { throw error }
      guard content.isJPEG else { return try damaged(error.detail, work, error) }
      switch body.withUnsafeBytes({ Integrity.diagnoseJPEG($0) }) {
      case .whole, .odd: return try work(VIPS_FAIL_ON_ERROR)
      case .garbled(let row, let rows, let what):
        let result = try work(VIPS_FAIL_ON_ERROR)
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
    _ detail: String, _ work: (VipsFailOn) throws(ImagingError) -> R, _ error: ImagingError? = nil
  ) throws(ImagingError) -> R {
    guard options.onDamage != .fail else { throw error ?? Self.damage(header.format, detail) }
    let result = try work(VIPS_FAIL_ON_NONE)
    if options.onDamage == .warn {
      warnOfDamage(
        "the pixels are damaged or cut short; what could be read is used"
          + (detail.isEmpty ? "" : " (\(detail))"))
    }
    return result
  }

  static func damage(_ format: PictureFormat, _ detail: String) -> ImagingError {
    ImagingError(
      .damaged, "the pixels of this \(format.displayName) picture are damaged or cut short", detail: detail,
      hint: "get the file anew, or set \"onDamage\": \"warn\" in \"decode\" to use what is left of it")
  }
}

extension EncodedPicture.Content {
  fileprivate var isJPEG: Bool { if case .file(.jpeg) = self { true } else { false } }
}
