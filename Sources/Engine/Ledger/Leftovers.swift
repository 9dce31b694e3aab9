import Glibc
import PipelineKit

/// Temporary files of runs that were killed: their names carry the run, so that nobody else's are touched.
enum Leftovers {
  /// Removes what dead runs have left in folders.
  ///
  /// - Parameters:
  ///   - runs: the identifiers of runs that are known to be over, such as those of a ledger whose lock is held.
  ///   - folders: looked through by themselves.
  ///   - trees: looked through with all below.
  /// - Returns: how many files were removed.
  @discardableResult
  static func clear(of runs: Set<String>, in folders: Set<PathBytes>, below trees: Set<PathBytes> = []) -> Int {
    guard !runs.isEmpty else { return 0 }
    let prefixes = runs.map { Array(".pipeline-\($0)-".utf8) }
    var count = 0
    func look(_ folder: PathBytes, goesDeep: Bool) {
      for name in folder.entryNames {
        let bytes = name.bytes
        let isOurs = bytes.suffix(4).elementsEqual(".tmp".utf8) && prefixes.contains { bytes.starts(with: $0) }
        guard isOurs || goesDeep && bytes.first != UInt8(ascii: ".") else { continue }
        let path = folder.joining(name)
        guard case .success(let status) = FileStatus.of(path.bytes, followingLinks: false) else { continue }
        if isOurs, status.kind == .regular {
          if path.withCString({ unlink($0) }) == 0 { count += 1 }
        } else if goesDeep, status.kind == .folder {
          look(path, goesDeep: true)
        }
      }
    }
    for folder in trees { look(folder, goesDeep: true) }
    for folder in folders where !trees.contains(where: { folder == $0 || folder.isInside($0) }) {
      look(folder, goesDeep: false)
    }
    return count
  }
}

extension JobRun {
  /// Clears what runs that were killed have left where this job writes.
  func clearLeftovers(of runs: [LedgerRun], _ plan: RunPlan) {
    guard !runs.isEmpty else { return }
    var folders: Set<PathBytes> = []
    for index in plan.inputs.indices {
      for case let path? in outputs(of: plan, at: index) { folders.insert(path.parent) }
      guard job.onSuccess.changesSources else { continue }
      // A source that is moved to another file system is copied there first.
      let identity = plan.identity(of: plan.inputs[index], at: index)
      if let target = (try? job.onSuccess.target(of: identity, in: values)) ?? nil { folders.insert(target.parent) }
    }
    for run in runs { if let path = run.reportPath { folders.insert(path.parent) } }
    Leftovers.clear(of: Set(runs.map(\.id)), in: folders, below: openEndedFolders)
  }
}
