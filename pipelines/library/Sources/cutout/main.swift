// Runs a job from Swift: reads it, says what is wrong with it, plans it, does the work, and tells each picture's end.
//
//     swift run --package-path pipelines/library cutout pipelines/cutout.json
import Engine
import Glibc
import JobSyntax
import PipelineKit
import Stages
import Synchronization

/// Told of each picture as it ends, from any thread.
final class Teller: RunObserver {
  private let failures = Mutex<[String]>([])

  func itemEnded(_ record: ItemRecord, finished: Int) {
    let outputs = record.outputs.map { output in
      switch output.place {
      case .path(let path): path.printable
      case .link(let link): link
      }
    }
    print("\(finished): \(record.input) \(record.status.rawValue) \(outputs.joined(separator: ", "))")
    if let error = record.error { failures.withLock { $0.append("\(record.input): \(error.message)") } }
  }

  var failed: [String] { failures.withLock { $0 } }
}

guard let file = CommandLine.arguments.dropFirst().first else {
  print("usage: cutout JOB")
  exit(2)
}
var registry = StageRegistry()
try BuiltInStages.register(in: &registry)

let loaded = try JobLoader(registry: registry).load(path: file)
print(DiagnosticRenderer().text(loaded.diagnostics, sources: loaded.sources, color: false), terminator: "")
guard let job = loaded.job else { exit(3) }

var options = RunOptions()
options.keepsReport = true
let session = try JobSession(job, options: options)
let plan = try session.plan()
print("\(plan.inputs.count) pictures, \(plan.workCount) to work on")

let teller = Teller()
let outcome = try session.run(plan, report: job.baseFolder.joining("report.json"), observer: teller)
for failure in teller.failed { print("failed: \(failure)") }
print("\(outcome.counts[.done]) done in \(outcome.wallSeconds) s")
exit(outcome.exitCode)
