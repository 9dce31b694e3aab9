import TestSupport
import Testing
import Transport

/// Downloads against a server of our own on this machine.
@Suite struct DownloadTests {
  private let file = (0..<50_000).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }

  private func fetch(
    _ address: String, offset: Int = 0, validator: String? = nil
  ) throws(TransportError) -> (head: Download.Head?, body: [UInt8]) {
    var head: Download.Head?
    var body: [UInt8] = []
    try Download(try Address(address), offset: offset, validator: validator).run(
      head: {
        head = $0
        return true
      },
      body: {
        body += $0
        return true
      })
    return (head, body)
  }

  private func failure(_ body: () throws(TransportError) -> Void) -> TransportError? {
    do throws(TransportError) {
      try body()
      return nil
    } catch { return error }
  }

  @Test func `a file comes whole, asked for without a range and uncompressed`() throws {
    let server = FileServer(["a.bin": file])
    let (head, body) = try fetch(server.address + "/a.bin")
    #expect(body == file)
    #expect(head?.status == 200 && head?.length == file.count && head?.validator == "\"v1\"")
    let request = try #require(server.requests.first)
    #expect(request.line == "GET /a.bin HTTP/1.1")
    #expect(request.headers["range"] == nil && request.headers["if-range"] == nil)
    #expect(request.headers["accept-encoding"] == "identity")
  }

  @Test func `the rest of a file is asked for with range and version`() throws {
    let server = FileServer(["a.bin": file])
    let (head, body) = try fetch(server.address + "/a.bin", offset: 49_990, validator: "\"v1\"")
    #expect(body == Array(file[49_990...]))
    #expect(head?.status == 206 && head?.rangeStart == 49_990 && head?.rangeTotal == 50_000)
    let request = try #require(server.requests.first)
    #expect(request.headers["range"] == "bytes=49990-" && request.headers["if-range"] == "\"v1\"")
    // A weak tag does not go into If-Range (RFC 9110, section 13.1.5).
    server.behave { $0.tag = "W/\"v1\"" }
    #expect(try fetch(server.address + "/a.bin").head?.validator == nil)
    let beyond = try fetch(server.address + "/a.bin", offset: 50_000)
    #expect(beyond.head?.status == 416 && beyond.head?.rangeTotal == 50_000 && beyond.body.isEmpty)
  }

  @Test func `a connection that breaks is an interruption, a status an answer`() throws {
    let server = FileServer(["a.bin": file])
    server.behave { $0.cuts = [100] }
    #expect(failure { () throws(TransportError) in _ = try fetch(server.address + "/a.bin") }?.code == .interrupted)
    let missing = failure { () throws(TransportError) in _ = try fetch(server.address + "/b.bin") }
    #expect(missing?.code == .status && missing?.status == 404)
    #expect(missing?.message == "the server answered 404: there is no such file")
    let nobody = failure { () throws(TransportError) in _ = try fetch("http://127.0.0.1:1/a.bin") }
    #expect(nobody?.code == .unreachable)
  }

  @Test func `who has enough ends it without an error`() throws {
    let server = FileServer(["a.bin": file])
    var pieces = 0
    try Download(try Address(server.address + "/a.bin")).run(
      head: { _ in true },
      body: { _ in
        pieces += 1
        return false
      })
    #expect(pieces == 1)
    try Download(try Address(server.address + "/a.bin")).run(
      head: { _ in false },
      body: { _ in
        pieces += 1
        return true
      })
    #expect(pieces == 1)
  }

  @Test(arguments: [
    "http://example.com/a", "http://127.0.0.1.example.com/a", "http://192.168.1.2/a", "ftp://example.com/a",
    "file:///etc/passwd", "no address", "", "https://user:secret@example.com/a",
  ])
  func `only https, and http on this machine`(_ address: String) {
    let error = failure { () throws(TransportError) in _ = try Address(address) }
    #expect(error?.code == .address)
    #expect(error?.message.contains("secret") == false)
  }

  @Test(arguments: ["https://example.com/a", "http://127.0.0.1:80/a", "http://localhost/a", "http://[::1]:8/a"])
  func `addresses that may be fetched from`(_ address: String) throws { _ = try Address(address) }

  @Test(arguments: ["http://127.0.0.1:1/a.bin", "file:///etc/passwd"])
  func `a redirect leads to https or nowhere`(_ target: String) {
    let server = FileServer(["a.bin": file])
    server.behave { $0.redirect = target }
    let error = failure { () throws(TransportError) in _ = try fetch(server.address + "/a.bin") }
    #expect(error?.code == .address)
    #expect(server.requests.count == 1)
  }
}
