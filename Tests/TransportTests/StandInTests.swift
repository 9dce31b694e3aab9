import TestSupport
import Testing

/// The stand-in against the contracts of the services it stands in for: one row for each of theirs.
@Suite struct StandInTests {
  @Test(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
  func `every row of the contracts holds`() throws {
    var settings = RunProgram.Settings()
    settings.environment = Peers.pythonVariables
    let run = RunProgram.run(
      [StandIn.contractTests], settings, program: try Peers.python("python"), limit: 300)
    #expect(run.exitCode == 0, Comment(rawValue: run.error))
    let rows = run.output.split(separator: "\n").last { $0.hasPrefix("rows: ") }.flatMap { Int($0.dropFirst(6)) }
    // Fewer than there were would mean that rows were lost on the way here.
    #expect(rows ?? 0 >= 144, Comment(rawValue: run.output))
    print("stand-in: \(rows ?? 0) rows")
  }

  @Test(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
  func `a test tells it what to answer, and asks what came`() throws {
    let server = try Peers.standIn()
    let (place, other) = (Peers.freshName(), Peers.freshName())
    try server.script(.sink, key: place, [("status", 503), ("retryAfter", 2)], [("status", 500), ("times", 2)])
    var statuses: [Int] = []
    for target in ["/sink/\(other)/a"] + (1...4).map({ "/sink/\(place)/\($0)?b=%2B" }) {
      let headers = [("Content-Type", "image/png"), ("X-Mine", "1")]
      let answer = try PlainHTTP.send("PUT", target, port: server.port, headers: headers, body: [1, 2, 3])
      if answer.status == 503 { #expect(answer.headers["retry-after"] == "2") }
      statuses.append(answer.status)
    }
    #expect(statuses == [201, 503, 500, 500, 201])
    let log = try server.log(.sink, key: place)
    #expect(log.map(\.status) == [503, 500, 500, 201] && log.map(\.fate).last == "answered")
    #expect(log.first?.target == "/sink/\(place)/1?b=%2B" && log.first?.header("x-mine") == "1")
    #expect(Set(log.map(\.connection)).count == 4)
    let stored = try #require(log.last)
    #expect(try server.upload(sha256: stored.sha256) == [1, 2, 3])
  }

  @Test(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
  func `credits are counted by key and picture`() throws {
    let server = try Peers.standIn()
    let key = Peers.freshName("key")
    try server.addKey(.removebg, key, [("credits", 1.25)])
    let sample = try PlainHTTP.send("GET", "/pictures/sample/64x48-1.png", port: server.port)
    #expect(sample.status == 200 && sample.body.count > 100)
    let address = try server.addPicture(sample.body, place: key, name: "a.png", type: "image/png")
    let form = "image_url=\(address)&size=full"
    let headers = [("X-Api-Key", key), ("Content-Type", "application/x-www-form-urlencoded")]
    let statuses = try (1...2).map { _ in
      try PlainHTTP.send("POST", "/v1.0/removebg", port: server.port, headers: headers, body: Array(form.utf8)).status
    }
    #expect(statuses == [200, 402])
    let picture = try #require(try server.log(.removebg, key: key).first?.picture)
    #expect(try server.charges(key: key) == [picture: StandIn.Charge(count: 1, credits: 1)])
    #expect(try server.state(.removebg, key: key)["credits"]?.numberValue?.double == 0.25)
    try server.reset(key: key)
    #expect(try server.state(.removebg, key: key).isNull)
  }
}
