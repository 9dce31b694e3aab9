/// The library as a whole: start, threads, memory.
public enum Libvips {
  /// Starts libvips, once; further calls do nothing.
  ///
  /// Turns the operation cache off and keeps libvips' warnings from standard error (`drainWarnings`).
  /// - Throws: `internalFault` where libvips will not start.
  public static func start() throws(ImagingError) { preconditionFailure("not yet written") }

  /// Such as "8.14.1".
  public static var version: String { preconditionFailure("not yet written") }

  /// libvips threads per picture, from now on; 1 or more.
  public static func setConcurrency(_ threads: Int) { preconditionFailure("not yet written") }

  /// Frees what libvips keeps for the calling thread. Call it when a worker ends.
  public static func threadShutdown() { preconditionFailure("not yet written") }

  /// Bytes of pixel memory that libvips holds now, and at most so far.
  public static var trackedBytes: Int { preconditionFailure("not yet written") }
  public static var trackedBytesPeak: Int { preconditionFailure("not yet written") }

  /// libvips images held by this module now; 0 when every image was let go.
  public static var liveImages: Int { preconditionFailure("not yet written") }

  /// Whether this build of libvips has an operation, by nickname (`heifload_source`, `webpsave_buffer` …).
  public static func supports(_ nickname: String) -> Bool { preconditionFailure("not yet written") }

  /// libvips' warnings since the last call, oldest first, the last 256 at most. They cannot be told apart by picture.
  public static func drainWarnings() -> [String] { preconditionFailure("not yet written") }
}
