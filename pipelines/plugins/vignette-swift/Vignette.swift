// Darker corners, as a stage: { "stage": "example.vignette", "strength": 0.5 }
//
// libvips' own operations are variadic in C, which Swift cannot call; pixels in memory need none of them.
import CPipelinePlugin

struct Vignette {
  /// 0…1: how dark the corners get.
  let strength: Double
  /// 0…1: how far from the middle it begins, as a share of the way to the corners.
  let begin: Double

  /// What is left of the light at a place, 0…1. `x` and `y` go from -1 to 1.
  func light(_ x: Double, _ y: Double) -> Double {
    let way = ((x * x + y * y) / 2).squareRoot()
    let share = max(0, (way - begin) / max(1 - begin, 0.001))
    return 1 - strength * share * share
  }
}

/// Writes a text into one of the fields of a `PipelineError`.
func fill<Field>(_ field: UnsafeMutablePointer<Field>, _ text: String) {
  let bytes = UnsafeMutableRawBufferPointer(start: field, count: MemoryLayout<Field>.size)
  for (index, byte) in text.utf8.prefix(bytes.count - 1).enumerated() { bytes[index] = byte }
}

/// Darkens the samples of a picture; false where nobody waits for it any more.
func darken<Sample: FixedWidthInteger & UnsignedInteger>(
  _ from: UnsafePointer<Sample>, into to: UnsafeMutablePointer<Sample>, width: Int, height: Int, bands: Int,
  _ vignette: Vignette, isWanted: () -> Bool
) -> Bool {
  for y in 0..<height {
    guard isWanted() else { return false }
    let v = (Double(y) + 0.5) / Double(height) * 2 - 1
    for x in 0..<width {
      let light = vignette.light((Double(x) + 0.5) / Double(width) * 2 - 1, v)
      let start = (y * width + x) * bands
      for band in 0..<bands {
        // The fourth band is transparency.
        to[start + band] = band < 3 ? Sample(Double(from[start + band]) * light + 0.5) : from[start + band]
      }
    }
  }
  return true
}

let create:
  @convention(c) (UnsafePointer<PipelineSettings>?, UnsafeMutablePointer<PipelineError>?)
    -> UnsafeMutableRawPointer? = { settings, _ in
      guard let settings else { return nil }
      let made = UnsafeMutablePointer<Vignette>.allocate(capacity: 1)
      made.initialize(
        to: Vignette(
          strength: settings.pointee.number(settings, "strength", 0.5),
          begin: settings.pointee.number(settings, "begin", 0.4)))
      return UnsafeMutableRawPointer(made)
    }

let process:
  @convention(c) (
    UnsafeMutableRawPointer?, UnsafePointer<PipelineItem>?, UnsafePointer<PipelinePictures>?,
    UnsafeMutablePointer<PipelinePictures>?, UnsafeMutablePointer<PipelineError>?
  ) -> Int32 = { instance, item, pictures, out, error in
    guard let instance, let item, let picture = pictures?.pointee.picture, let out, let error else { return -1 }
    let vignette = instance.load(as: Vignette.self)
    let (width, height) = (Int(vips_image_get_width(picture)), Int(vips_image_get_height(picture)))
    let bands = Int(vips_image_get_bands(picture))
    let format = vips_image_get_format(picture)
    let size = width * height * bands * (format == VIPS_FORMAT_USHORT ? 2 : 1)
    // Pictures that come in lie in memory, and are not to be written to.
    guard let from = vips_image_get_data(picture) else { return -1 }
    let to = UnsafeMutableRawPointer.allocate(byteCount: size, alignment: 16)
    defer { to.deallocate() }
    func isWanted() -> Bool { item.pointee.cancelled(item) == 0 }
    let isDone =
      if format == VIPS_FORMAT_USHORT {
        darken(
          UnsafeRawPointer(from).assumingMemoryBound(to: UInt16.self), into: to.assumingMemoryBound(to: UInt16.self),
          width: width, height: height, bands: bands, vignette, isWanted: isWanted)
      } else {
        darken(
          UnsafeRawPointer(from).assumingMemoryBound(to: UInt8.self), into: to.assumingMemoryBound(to: UInt8.self),
          width: width, height: height, bands: bands, vignette, isWanted: isWanted)
      }
    guard isDone else {
      fill(&error.pointee.message, "given up")
      return -1
    }
    out.pointee.picture = vips_image_new_from_memory_copy(
      to, size, Int32(width), Int32(height), Int32(bands), format)
    guard out.pointee.picture == nil else { return 0 }
    fill(&error.pointee.message, "libvips did not take \(width) x \(height) pixels")
    return -1
  }

let spec: StaticString = """
  {
    "name": "example.vignette",
    "summary": "Darkens the corners of a picture.",
    "fields": [
      { "name": "strength", "type": "number", "min": 0, "max": 1, "default": 0.5,
        "help": "how dark the corners get: 1 is black" },
      { "name": "begin", "type": "number", "min": 0, "max": 1, "default": 0.4,
        "help": "where it begins, as a share of the way from the middle to the corners" }
    ],
    "examples": [{ "stage": "example.vignette" }, { "stage": "example.vignette", "strength": 0.8, "begin": 0.2 }]
  }
  """

/// Lives as long as the process, as the program expects.
struct Description: @unchecked Sendable {
  // Unchecked: the memory is written once, here, and only read afterwards.
  let plugin: UnsafePointer<PipelinePlugin>

  init() {
    let made = UnsafeMutablePointer<PipelinePlugin>.allocate(capacity: 1)
    made.initialize(
      to: PipelinePlugin(
        abi: UInt32(PIPELINE_PLUGIN_ABI), size: UInt32(MemoryLayout<PipelinePlugin>.size),
        vips_major: UInt32(VIPS_MAJOR_VERSION), vips_minor: UInt32(VIPS_MINOR_VERSION),
        spec: UnsafeRawPointer(spec.utf8Start).assumingMemoryBound(to: CChar.self), create: create, process: process,
        destroy: { $0?.assumingMemoryBound(to: Vignette.self).deallocate() }))
    plugin = UnsafePointer(made)
  }
}

let description = Description()

@_cdecl("pipeline_plugin")
public func pipelinePlugin() -> UnsafePointer<PipelinePlugin> { description.plugin }
