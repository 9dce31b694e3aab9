/// How far a stage has come with an item, where it does not do all its work in one go.
///
/// A stage that talks to a service makes its request on the compute lane, waits for the answer on the network lane, and
/// makes a picture of it on the compute lane again: no pixel is touched where a service is waited for, and no core is
/// held while one is.
public enum StageStep: Sendable {
  case outcome(Outcome)
  /// To go on on the stage's network lane, where it may wait.
  case exchange(@Sendable (StageContext) throws(StageError) -> StageStep)
  /// To go on on the compute lane.
  case compute(@Sendable (StageContext) throws(StageError) -> StageStep)
}

/// A stage that begins with a step and is called back for the others. Its plan says in `exchanges` how many of them may
/// go on at once.
public protocol ExchangingStage: Stage {
  /// The first step of an item's work, on the plan's lane.
  func begin(_ item: Item, in context: StageContext) throws(StageError) -> StageStep
}

extension ExchangingStage {
  /// All steps one after the other, on this thread.
  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    try begin(item, in: context).finished(in: context)
  }
}

extension StageStep {
  /// Takes all further steps on this thread.
  public func finished(in context: StageContext) throws(StageError) -> Outcome {
    var step = self
    while true {
      switch step {
      case .outcome(let outcome): return outcome
      case .exchange(let body), .compute(let body): step = try body(context)
      }
    }
  }
}
