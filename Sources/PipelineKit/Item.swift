import Digest
import Imaging

/// What a picture is called and where it came from; fixed for the item's life.
public struct ItemIdentity: Sendable {
  /// The place in the run, from 0, in input order.
  public var index: Int
  /// The place among all inputs of the job, from 0: another than `index` where a shard leaves inputs to others.
  public var inputIndex: Int
  /// The path to open; of a picture that is no file here its name, under which nothing can be opened.
  public var path: PathBytes
  /// The path as found, for people and the report.
  public var name: PathBytes
  /// The folder below the fixed part of the input's glob; empty at its top.
  public var directory: PathBytes
  /// A manifest's columns.
  public var columns: [String: String]
  /// How many inputs of the same name come before this one: a manifest may name one more than once.
  public var occurrence: Int
  /// Where the picture is fetched from; nil for files.
  public var remote: RemoteSource?

  /// - Parameters:
  ///   - inputIndex: `index`, where nil.
  ///   - index: the place among the items of this run, from 0.
  ///   - name: the input as found.
  ///   - directory: the input's folder below the fixed part of its glob.
  ///   - occurrence: which of several rows that name the same input, from 0.
  ///   - path: the file to read.
  ///   - columns: values of the manifest, by column.
  ///   - remote: where it is fetched from; nil for a file.
  public init(
    index: Int, inputIndex: Int? = nil, path: PathBytes, name: PathBytes, directory: PathBytes,
    columns: [String: String] = [:], occurrence: Int = 0, remote: RemoteSource? = nil
  ) {
    self.remote = remote
    self.occurrence = occurrence
    self.index = index
    self.inputIndex = inputIndex ?? index
    self.path = path
    self.name = name
    self.directory = directory
    self.columns = columns
  }
}

/// One picture on its way through the chain.
///
/// A value: stages change their copy and pass it on. The images inside are immutable and shared.
public struct Item: Sendable {
  /// Pixels, or the promise of them.
  public enum Picture: Sendable {
    /// Nothing read yet.
    case none
    /// Opened and checked, not decoded: a resize straight after decode shrinks while it loads.
    case encoded(EncodedPicture)
    case image(Image)
    /// Several frames, where the job asked for all of them.
    case animation(ItemFrames)
  }

  /// The result of an encoder.
  public struct Encoded: Sendable {
    public var bytes: EncodedBytes
    public var format: PictureFormat
    public var width: Int
    public var height: Int

    public init(bytes: EncodedBytes, format: PictureFormat, width: Int, height: Int) {
      self.bytes = bytes
      self.format = format
      self.width = width
      self.height = height
    }
  }

  public let identity: ItemIdentity
  public private(set) var picture: Picture = .none
  /// One band, 0…255, as large as the picture: 255 where the subject is.
  public private(set) var matte: Image?
  /// The picture before it was cut out, as large as the picture now.
  public private(set) var original: Image?
  /// Further mattes by name, each like the matte.
  public private(set) var mattes: [String: Image] = [:]
  /// SHA-256 of the bytes the picture was read from, 64 hex digits, where the job names it; stays when pixels go.
  public private(set) var sourceHash: String?
  /// The file that the picture was read from, as it was then; stays when pixels go.
  public private(set) var sourceStamp: FileStamp?
  /// What the input's header says, once it was opened; stays when pixels go.
  public private(set) var sourceHeader: PictureHeader?
  /// The bytes that were fetched for a picture that is no file here, where the job may put them aside; stays when pixels
  /// go.
  public private(set) var fetchedBytes: EncodedBytes?
  /// The encoded result; gone as soon as the picture changes.
  public private(set) var encoded: Encoded?

  public init(identity: ItemIdentity) { self.identity = identity }

  /// Pixels of the picture, held in memory; decodes it when this is the first to ask. Of an animation the first frame.
  /// Stages call `image(in:)`, which keeps what the decoder has to say.
  public func image() throws(ImagingError) -> Image {
    switch picture {
    case .none: throw ImagingError(.internalFault, "no picture was decoded before this stage")
    case .encoded(let source): return try source.pixels()
    case .image(let image): return image
    case .animation(let animation):
      guard let first = animation.frames.first else {
        throw ImagingError(.internalFault, "an animation came without frames")
      }
      return first.image
    }
  }

  /// Replaces the picture, keeping matte and original: for changes of colour that keep every pixel's place.
  public func with(image: Image) -> Item {
    var copy = self
    copy.picture = .image(image)
    copy.encoded = nil
    return copy
  }

  /// Sets the opened, not yet decoded source.
  public func with(source: EncodedPicture) -> Item {
    var copy = self
    copy.picture = .encoded(source)
    copy.sourceStamp = source.sourceStamp
    copy.sourceHeader = source.header
    copy.encoded = nil
    return copy
  }

  /// Keeps the hash of the source, SHA-256 in hex digits.
  public func with(sourceHash: String) -> Item {
    var copy = self
    copy.sourceHash = sourceHash
    return copy
  }

  /// Keeps the bytes of the source, which cannot be read again.
  public func with(fetchedBytes: EncodedBytes) -> Item {
    var copy = self
    copy.fetchedBytes = fetchedBytes
    return copy
  }

  /// Replaces the picture by its cut-out or mask, and keeps what it was cut from; mattes not given again are gone.
  public func with(image: Image, matte: Image?, original: Image?, mattes: [String: Image] = [:]) -> Item {
    var copy = with(image: image)
    copy.matte = matte
    copy.original = original
    copy.mattes = mattes
    return copy
  }

  /// Replaces the picture by one frame of an animation.
  public func with(frame: ItemFrames.Frame) -> Item {
    with(image: frame.image, matte: frame.matte, original: frame.original, mattes: frame.mattes)
  }

  /// Replaces the picture by an animation; each frame brings its own matte and original.
  public func with(animation: ItemFrames) -> Item {
    var copy = self
    copy.picture = .animation(animation)
    copy.matte = nil
    copy.original = nil
    copy.mattes = [:]
    copy.encoded = nil
    return copy
  }

  /// Sets the encoder's result.
  public func with(encoded: Encoded) -> Item {
    var copy = self
    copy.encoded = encoded
    return copy
  }

  /// Moves pixels: applies the same change to the picture, its mattes and its original, of an animation to those of
  /// every frame.
  public func transformed(
    _ change: (Image) throws(ImagingError) -> Image
  ) throws(ImagingError) -> Item {
    var animation: ItemFrames?
    switch picture {
    case .animation(let frames): animation = frames
    case .encoded(let source) where source.isAnimation: animation = ItemFrames(try source.animation())
    case .none, .encoded, .image: break
    }
    if var animation {
      for index in animation.frames.indices {
        let frame = animation.frames[index]
        animation.frames[index].image = try change(frame.image)
        if let matte = frame.matte { animation.frames[index].matte = try change(matte) }
        if let original = frame.original { animation.frames[index].original = try change(original) }
        for (name, matte) in frame.mattes { animation.frames[index].mattes[name] = try change(matte) }
      }
      return with(animation: animation)
    }
    var copy = self
    copy.picture = .image(try change(try image()))
    if let matte { copy.matte = try change(matte) }
    if let original { copy.original = try change(original) }
    for (name, matte) in mattes { copy.mattes[name] = try change(matte) }
    copy.encoded = nil
    return copy
  }

  /// Lets go of all mattes and of the picture before it was cut out.
  public func releasingMatte() -> Item {
    var copy = self
    if case .animation(var animation) = picture {
      for index in animation.frames.indices {
        animation.frames[index].matte = nil
        animation.frames[index].original = nil
        animation.frames[index].mattes = [:]
      }
      copy.picture = .animation(animation)
    }
    copy.matte = nil
    copy.original = nil
    copy.mattes = [:]
    return copy
  }

  /// Lets go of pixels that no later stage asks for; the encoded result stays.
  public func releasingPixels() -> Item {
    var copy = self
    copy.picture = .none
    copy.matte = nil
    copy.original = nil
    copy.mattes = [:]
    return copy
  }

  /// Width and height in pixels, upright; nil before decode.
  public var size: (width: Int, height: Int)? {
    switch picture {
    case .none: encoded.map { ($0.width, $0.height) }
    case .encoded(let source): (source.header.orientedWidth, source.header.orientedHeight)
    case .image(let image): (image.width, image.height)
    case .animation(let animation): animation.frames.first.map { ($0.image.width, $0.image.height) }
    }
  }
}

extension StageContext {
  /// Notes what a source found out about itself and the item's report does not say yet: some of it shows only when
  /// pixels are decoded, stages later.
  public func report(warningsOf source: EncodedPicture) {
    let known = Set(journal.snapshot.warnings.map(\.message))
    let damage = source.damageWarnings
    for message in source.warnings where !known.contains(message) {
      warn(damage.contains(message) ? "damaged" : "input-notice", message)
    }
  }
}

extension Item {
  /// Pixels of the picture in memory, decoding them when this stage is the first to ask, with warnings noted.
  ///
  /// - Throws: `damaged` and the other codes of `Imaging`.
  public func image(in context: StageContext) throws(StageError) -> Image {
    do throws(ImagingError) {
      let image = try image()
      if case .encoded(let source) = picture { context.report(warningsOf: source) }
      return image
    } catch {
      throw StageError(error)
    }
  }
}
