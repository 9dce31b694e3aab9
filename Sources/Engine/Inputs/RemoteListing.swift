import PipelineKit

/// A picture that a service knows of.
struct RemoteFind {
  var remote: RemoteSource
  var name: PathBytes
  /// The folder below what was searched; empty at its top.
  var directory = PathBytes(bytes: [])
}

/// The pictures that a service lists, page by page: nothing but one page is held.
///
/// Used by one thread.
protocol RemoteListing: AnyObject {
  /// What is listed, for messages: `the bucket photos`.
  var what: String { get }

  /// The next picture; nil at the end. Asks the service when a page is used up.
  ///
  /// - Parameter onSkip: told what is passed over.
  func next(
    onSkip: (_ name: PathBytes, _ reason: SkippedInput.Reason) -> Void
  ) throws(StageError) -> RemoteFind?
}
