import PipelineKit

extension UploadReceipt {
  /// A receipt as the ledger has it.
  public init(_ receipt: Receipt) {
    self.init(
      provider: receipt.provider, link: receipt.link, deleteLink: receipt.deleteLink, etag: receipt.etag,
      sha256: receipt.sha256, expires: receipt.expires)
    id = receipt.id
    options = receipt.options
    isUnknown = receipt.state == .unknown
  }
}

extension JobRun {
  /// What looks after receipts, by the label of the stage that left them.
  ///
  /// - Throws: where a credential is missing.
  public static func receiptKeepers(of job: Job) throws(StageError) -> [String: any ReceiptKeeper] {
    let resources = StageResources(
      run: RunValues(baseFolder: job.baseFolder, runID: "receipts", runDate: ""), computeWorkers: 1, facts: RunFacts(),
      services: ServiceResources(job.network))
    var keepers: [String: any ReceiptKeeper] = [:]
    for stage in job.stages {
      guard let make = stage.descriptor.receiptKeeper, let keeper = try make(stage.settings, resources) else {
        continue
      }
      keepers[stage.label] = keeper
    }
    return keepers
  }
}
