import PipelineKit

/// The stages that come with the program.
public enum BuiltInStages {
  /// Registers all of them, through the same call as anyone else's.
  ///
  /// - Throws: `stage-name-taken` when one of the names is registered already.
  public static func register(in registry: inout StageRegistry) throws(StageError) {
    try registry.register(Decode.self)
    try registry.register(Filter.self)
    try registry.register(Resize.self)
    try registry.register(Crop.self)
    try registry.register(Trim.self)
    try registry.register(Rotate.self)
    try registry.register(Flip.self)
    try registry.register(Pad.self)
    try registry.register(Sharpen.self)
    try registry.register(Segment.self)
    try registry.register(Matte.self)
    try registry.register(Frame.self)
    try registry.register(Composite.self)
    try registry.register(Watermark.self)
    try registry.register(Exec.self)
    try registry.register(Encode.self)
    try registry.register(Write.self)
    try registry.register(Upload.self)
    try registry.register(Branch.self)
  }
}
