import Glibc
import Imaging
import JobSyntax
import PipelineKit
import Synchronization
import TestSupport
import Testing

@testable import Stages
@testable import Transport

/// What tests of `upload` need: encoded pictures, credentials in the environment, and a book of receipts.
struct UploadBench {
  let bench = StageBench()
  let book = ReceiptBook()

  /// Credentials that jobs of these tests name; set once, before anything reads the environment.
  private static let isReady: Bool = {
    for (name, value) in [
      ("UPLOAD_TEST_TOKEN", "token of the upload tests"), ("UPLOAD_TEST_USER", "tester"),
      ("UPLOAD_TEST_PASSWORD", "p\"ss wörd:%"), ("UPLOAD_TEST_SECRET", "secret of the upload tests"),
      ("UPLOAD_TEST_REFRESH", "refresh of the upload tests"),
    ] { setenv(name, value, 1) }
    return true
  }()

  init() { #expect(Self.isReady) }

  /// A picture with noise in it.
  func encoded(
    _ name: String = "shoe.png", directory: String = "", columns: [String: String] = [:], seed: UInt64 = 7,
    as options: EncodeOptions = .png(.init()), alpha: UInt8? = nil, side: Int = 8
  ) throws -> Item {
    var random = SeededGenerator(state: seed)
    let image = try Pictures.image(side, side, bands: alpha == nil ? 3 : 4) { _, _ in
      (0..<3).map { _ in UInt8.random(in: 0...255, using: &random) } + (alpha.map { [$0] } ?? [])
    }
    return bench.item(bench.folder["in/" + name], name: name, directory: directory, columns: columns)
      .with(image: image)
      .with(encoded: .init(bytes: try image.encoded(options), format: options.format, width: side, height: side))
  }

  func json(_ provider: String, _ more: String) -> String {
    "{ \"stage\": \"upload\", \"provider\": \"\(provider)\", \(more) }"
  }

  private var resources: StageResources { StageResources(run: bench.run, computeWorkers: 2, facts: RunFacts()) }

  func make(_ json: String) throws -> Upload {
    let findings = try StageBench.lint(Upload.self, json).filter { $0.severity == .error }
    #expect(findings.isEmpty, "\(findings.map(\.message))")
    return try Upload(StageBench.settings(Upload.self, json), resources: resources)
  }

  func keeper(_ json: String) throws -> any ReceiptKeeper {
    try #require(try Upload.receiptKeeper(StageBench.settings(Upload.self, json), resources: resources))
  }

  func context(_ journal: ItemJournal = ItemJournal()) -> StageContext {
    StageContext(
      stage: "upload", run: bench.run, journal: journal, temporaries: bench.temporaries, claims: bench.claims,
      services: book)
  }

  /// Sends a picture, and answers with what became of it and its receipt.
  @discardableResult
  func send(
    _ json: String, _ item: Item, journal: ItemJournal = ItemJournal()
  ) throws -> (outcome: Outcome, receipt: UploadReceipt?) {
    let before = Set(book.all.map(\.id))
    let outcome = try make(json).process(item, in: context(journal))
    return (outcome, book.all.first { !before.contains($0.id) })
  }

  /// The receipt of a picture that was sent.
  func receipt(_ json: String, _ item: Item, journal: ItemJournal = ItemJournal()) throws -> UploadReceipt {
    let (outcome, receipt) = try send(json, item, journal: journal)
    guard case .next = outcome else { throw StageError("test", "it was not sent: \(outcome)") }
    let found = try #require(receipt)
    #expect(!found.isUnknown && found.sha256.count == 32)
    return found
  }

  func failure(_ json: String, _ item: Item) throws -> StageError {
    let stage = try make(json)
    do throws(StageError) {
      let outcome = try stage.process(item, in: context())
      throw StageError("test", "it did not fail: \(outcome)")
    } catch {
      #expect(error.code != "test", "\(error)")
      return error
    }
  }

  /// What `init` throws.
  func refusal(_ json: String) throws -> StageError {
    let settings = try StageBench.settings(Upload.self, json)
    do throws(StageError) { _ = try Upload(settings, resources: resources) } catch { return error }
    throw StageError("test", "it was made")
  }

  func lint(_ json: String) throws -> [String] {
    try StageBench.lint(Upload.self, json).filter { $0.severity == .error }.map(\.message)
  }
}

/// Receipts in memory.
final class ReceiptBook: ItemServices {
  private let receipts = Mutex<[UploadReceipt]>([])
  /// Told of each booking as it is made.
  private let onBook = Mutex<(@Sendable (UploadReceipt) -> Void)?>(nil)

  var all: [UploadReceipt] { receipts.withLock { $0 } }
  var isForced: Bool { false }

  func begin(_ call: ServiceCall) throws(StageError) -> CallPermission { .refused("no calls that cost") }
  func finish(_ number: Int64, _ end: CallEnd) throws(StageError) {}
  func close(account: String, reason: String) {}
  func closure(of account: String) -> String? { nil }

  func receipt(options: [UInt8]) throws(StageError) -> UploadReceipt? {
    receipts.withLock { $0.last { $0.options == options } }
  }

  func book(_ receipt: UploadReceipt) throws(StageError) {
    receipts.withLock { receipts in
      receipts.removeAll { $0.id == receipt.id }
      receipts.append(receipt)
    }
  }

  func withdraw(_ receipt: UploadReceipt) throws(StageError) {
    receipts.withLock { $0.removeAll { $0.id == receipt.id } }
  }
}

/// An answer as a server might give it.
func answer(
  _ status: Int, _ headers: [(String, String)] = [], json: String? = nil, html: String? = nil, xml: String? = nil,
  url: String = "https://host.example/a"
) throws -> Response {
  let type = json != nil ? "application/json" : html != nil ? "text/html; charset=UTF-8" : "application/xml"
  let body = json ?? html ?? xml
  return Response(
    status: status, headers: Headers((body == nil ? [] : [("Content-Type", type)]) + headers),
    body: Array((body ?? "").utf8), url: try RequestURL(url))
}
