import Engine
import JobSyntax
import Pages
import PipelineKit

/// The HTML report of a run that has just ended.
enum RunPage {
  /// From so many pictures on it takes a while, and is announced.
  private static let many = 300

  /// Writes the page from the same records that the JSON report is made of.
  ///
  /// - Parameters:
  ///   - place: absolute.
  ///   - name: the page as messages call it.
  /// - Throws: what `ReportPage.write` throws.
  static func write(
    _ run: JobRun, _ outcome: RunOutcome, to place: PathBytes, named name: String, stop: PageStop, log: RunLog
  ) throws(StageError) {
    guard let descriptor = try run.unnamedReport(outcome: outcome) else { return }
    let job = run.job
    var options = ReportPage.Options(bases: [job.inputFolder, job.baseFolder], tag: run.values.runID)
    options.workers = outcome.workers
    options.machine = "\(Machine.hostName), \(Wording.count(Machine.processors, "processor"))"
    if outcome.stop != nil {
      // Whoever ended the run waits for it.
      options.deadline = .now + .seconds(job.graceTime)
    } else if let limit = job.deadline {
      options.deadline = .now + .seconds(max(job.graceTime, limit - outcome.wallSeconds))
    }
    if outcome.counts.total >= many {
      log.write(
        .info, "page-begun", "making the page \(name) of \(Wording.count(outcome.counts.total, "picture"))")
      log.screen.flush()
    }
    let written = try ReportPage.write(
      Pages.ReportReader(adopting: descriptor, name: "the run's report"), to: place, options: options, stop: stop)
    tell(written, name, log: { log.write(.info, "page", $0, [("path", .string(place.display))]) })
  }

  /// Says what was written, and what could not be shown.
  static func tell(_ written: ReportPage.Written, _ name: String, log: (String) -> Void) {
    var line = "page: \(PathBytes(name).printable), \(Wording.bytes(written.bytes))"
    if let folder = written.folder { line += " with the folder \(folder.lastComponent.printable)" }
    log(line)
  }
}
