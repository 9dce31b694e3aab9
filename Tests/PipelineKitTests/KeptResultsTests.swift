import PipelineKit
import Testing

@Suite struct KeptResultsTests {
  private struct Shelf: ResultKeeper {
    func result(for key: [UInt8], paid: Bool) -> [UInt8]? { key + [paid ? 1 : 0] }
    func keep(_ bytes: [UInt8], for key: [UInt8], paid: Bool) {}
  }

  /// To do everything again is no reason to pay again; to do this very stage again is.
  @Test(arguments: [(false, false), (true, false), (true, true)])
  func whatWasPaidForIsRefreshedByItself(_ isRefreshed: Bool, _ isPaidRefreshed: Bool) {
    let kept = KeptResults(
      key: [7], paidKey: [8], keeper: Shelf(), isRefreshed: isRefreshed, isPaidRefreshed: isPaidRefreshed)
    #expect(kept.find() == (isRefreshed ? nil : [7, 0]))
    #expect(kept.find(paid: true) == (isPaidRefreshed ? nil : [8, 1]))
  }
}
