import Digest
import Dispatch
import Glibc
import PipelineKit
import TestSupport
import Testing

@testable import Engine

@Suite struct ResultStoreTests {
  private let temporary = TemporaryFolder()

  private func store(_ mostBytes: Int = 1 << 20) throws -> ResultStore {
    let folder = StateFolder.locate(PathBytes(temporary["state"]))
    try folder.make()
    return ResultStore(folder, mostBytes: mostBytes)
  }

  private func key(_ number: Int) -> [UInt8] { (0..<32).map { UInt8(truncatingIfNeeded: number &* 13 &+ $0) } }

  private func content(_ number: Int, _ count: Int = 1_000) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: number &+ $0 &* 3) }
  }

  private func file(_ number: Int, paid: Bool = false) -> String {
    let name = Hex.text(key(number))
    return "state/\(paid ? "paid" : "results")/\(name.prefix(2))/\(name.dropFirst(2))"
  }

  private func age(_ name: String, seconds: Int) {
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    let time = timespec(tv_sec: now.tv_sec - seconds, tv_nsec: 0)
    var times = [time, time]
    utimensat(AT_FDCWD, temporary[name], &times, 0)
  }

  @Test(arguments: [false, true]) func whatIsKeptIsFound(_ paid: Bool) throws {
    let store = try store()
    #expect(store.result(for: key(1), paid: paid) == nil)
    for number in 0..<20 { try store.keep(content(number, number * 37), for: key(number), paid: paid) }
    for number in 0..<20 { #expect(store.result(for: key(number), paid: paid) == content(number, number * 37)) }
    #expect(store.result(for: key(1), paid: !paid) == nil)
    try store.keep([9], for: key(1), paid: paid)
    #expect(store.result(for: key(1), paid: paid) == [9])
    #expect(store.size(paid: paid).count == 20)
    var status = stat()
    #expect(stat(temporary[file(3, paid: paid)], &status) == 0 && status.st_mode & 0o777 == 0o600)
    #expect(stat(temporary[paid ? "state/paid" : "state/results"], &status) == 0 && status.st_mode & 0o777 == 0o700)
    #expect(temporary.tree().filter { $0.hasSuffix(".tmp") } == [])
  }

  /// A changed byte, a cut end, a power cut that left nothing, another key's file.
  @Test(arguments: [false, true]) func damageIsNoResult(_ paid: Bool) throws {
    let store = try store()
    let whole = content(1, 100)
    try store.keep(whole, for: key(1), paid: paid)
    let good = try #require(temporary.read(file(1, paid: paid)))
    for index in good.indices {
      var bytes = good
      bytes[index] ^= 0x20
      temporary.write(bytes, to: file(1, paid: paid))
      #expect(store.result(for: key(1), paid: paid) == nil, "\(index)")
      #expect(temporary.read(file(1, paid: paid)) == nil)
    }
    for count in [0, 8, 56, good.count - 1] {
      temporary.write(good.prefix(count), to: file(1, paid: paid))
      #expect(store.result(for: key(1), paid: paid) == nil)
    }
    temporary.write(good + [0], to: file(1, paid: paid))
    #expect(store.result(for: key(1), paid: paid) == nil)
    temporary.write(good, to: file(2, paid: paid))
    #expect(store.result(for: key(2), paid: paid) == nil)
    // What was paid for can still be looked at.
    #expect((temporary.read(file(1, paid: true) + ".damaged") != nil) == paid)
    #expect(store.size(paid: paid).count == 0)
    try store.keep(whole, for: key(1), paid: paid)
    #expect(store.result(for: key(1), paid: paid) == whole)
  }

  @Test func theLeastRecentlyUsedGoFirst() throws {
    let store = try store(5 * 1_056)
    for number in 0..<10 {
      try store.keep(content(number), for: key(number), paid: false)
      age(file(number), seconds: 1_000 - number * 10)
      try store.keep(content(number), for: key(number), paid: true)
    }
    #expect(store.size(paid: false) == (10, 10 * 1_056))
    // Used: goes to the end of the queue.
    #expect(store.result(for: key(0), paid: false) != nil)
    #expect(store.trim() == (5, 5 * 1_056))
    for number in 0..<10 {
      #expect((store.result(for: key(number), paid: false) != nil) == (number == 0 || number > 5), "\(number)")
      #expect(store.result(for: key(number), paid: true) == content(number))
    }
    #expect(store.trim() == (0, 0))
    #expect(store.trim(to: 0).count == 5)
    #expect(store.size(paid: true).count == 10)
    // One that can never fit is not kept.
    try store.keep(content(1, 6_000), for: key(1), paid: false)
    #expect(store.size(paid: false).count == 0)
  }

  @Test func paidOnesGoOnlyWhenAskedFor() throws {
    let store = try store(0)
    for number in 0..<4 {
      try store.keep(content(number), for: key(number), paid: true)
      age(file(number, paid: true), seconds: number * 1_000)
    }
    _ = store.trim()
    #expect(store.size(paid: true).count == 4)
    #expect(store.prune(paid: true, usedBefore: RunClock.now() - 1_500) == (2, 2 * 1_056))
    #expect(store.result(for: key(1), paid: true) == content(1))
    #expect(store.result(for: key(2), paid: true) == nil)
  }

  @Test func leftoversOfTheDeadGoAndThoseOfTheLivingStay() throws {
    let store = try store()
    try store.keep(content(1), for: key(1), paid: false)
    try store.keep(content(1), for: key(1), paid: true)
    let mine = FileOwner.this
    // A process that ended a moment ago.
    let gone = RunProgram(["-c", "exit 0"], program: "/bin/sh")
    _ = gone.finish()
    var dead = mine
    dead.pid = gone.process
    var reused = mine
    reused.began += 1
    var elsewhere = mine
    elsewhere.host = Hex.text("another".utf8)
    var contained = mine
    contained.table += 1
    let folders = [file(1), file(1, paid: true)].map { String($0[..<($0.lastIndex(of: "/") ?? $0.endIndex)]) }
    for folder in folders {
      for (name, owner) in [("1", mine), ("2", dead), ("3", reused), ("4", elsewhere), ("5", contained)] {
        temporary.write("x", to: "\(folder)/.pipeline-\(owner.tag)-\(name).tmp")
      }
      temporary.write("x", to: "\(folder)/.pipeline-\(elsewhere.tag)-u6.tmp")
      age("\(folder)/.pipeline-\(elsewhere.tag)-u6.tmp", seconds: 100_000)
      temporary.write("x", to: "\(folder)/somebody's.tmp")
    }
    _ = store.trim()
    for folder in folders {
      let left = temporary.tree().filter { $0.hasPrefix(folder) && $0.hasSuffix(".tmp") }
      #expect(
        Set(left.map { $0.dropFirst(folder.count + 1) })
          == [
            ".pipeline-\(mine.tag)-1.tmp", ".pipeline-\(elsewhere.tag)-4.tmp", ".pipeline-\(contained.tag)-5.tmp",
            "somebody's.tmp",
          ])
    }
    #expect(store.result(for: key(1), paid: false) == content(1))
  }

  /// A program that has taken the place of one that crashed has its number and start, and counts from one again.
  @Test func whatAnEarlierLifeHasLeftIsNotInTheWay() throws {
    let store = try store()
    for paid in [false, true] {
      try store.keep(content(1), for: key(1), paid: paid)
      let folder = file(1, paid: paid).split(separator: "/").dropLast().joined(separator: "/")
      // More than all tests of this process have written by now and will meanwhile.
      for number in 1...5_000 where paid || number < 4 {
        temporary.write("x", to: "\(folder)/.pipeline-\(FileOwner.this.tag)-\(paid ? "" : "u")\(number).tmp")
      }
      try store.keep(content(2), for: key(1), paid: paid)
      #expect(store.result(for: key(1), paid: paid) == content(2))
    }
  }

  /// No memory is asked for what only the file's size promises.
  @Test(arguments: [false, true]) func aHugeHoleIsNoResult(_ paid: Bool) throws {
    let store = try store()
    try store.keep(content(1), for: key(1), paid: paid)
    try #require(truncate(temporary[file(1, paid: paid)], 1 << 42) == 0)
    #expect(store.result(for: key(1), paid: paid) == nil)
  }

  /// Several shards at once: everybody finds what is whole or nothing.
  @Test func manyKeepReadAndTrim() throws {
    let stores = [try store(20 * 1_056), try store(20 * 1_056)]
    DispatchQueue.concurrentPerform(iterations: 8) { worker in
      let store = stores[worker % 2]
      for step in 0..<200 {
        let number = (step * 7 + worker) % 40
        if step % 50 == 49 { _ = store.trim() }
        try? store.keep(content(number), for: key(number), paid: false)
        if let found = store.result(for: key((number + 1) % 40), paid: false) {
          #expect(found == content((number + 1) % 40))
        }
      }
    }
    _ = stores[0].trim()
    #expect(stores[1].size(paid: false).bytes <= 20 * 1_056)
    #expect(temporary.tree().filter { $0.hasSuffix(".tmp") } == [])
  }

  @Test func aPaidResultIsNotLostSilently() throws {
    let store = try store()
    // A file where the folder has to be.
    temporary.write("", to: "state/paid")
    temporary.write("", to: "state/results")
    try store.keep([1], for: key(1), paid: false)
    do {
      try store.keep([1], for: key(1), paid: true)
      Issue.record("kept nowhere")
    } catch {
      #expect(error.code == "state-write")
      #expect(error.kind == .environment)
    }
  }
}
