import Testing
import Transport

@Suite struct BodyTests {
  private func text(_ body: RequestBody) throws -> (String, String) {
    let encoded = try #require(try body.encoded(boundary: "B"))
    return (String(decoding: try encoded.payload.bytes(), as: UTF8.self), encoded.type)
  }

  @Test func `parts stand in their order, files with type and name`() throws {
    let (body, type) = try text(
      .multipart([
        .text("size", "auto"), .file("image", Payload("PNG"), filename: "a.webp", type: "image/webp"), .text("ü\"", ""),
        .file("image", Payload([]), filename: "b.png", type: "image/png"),
      ]))
    #expect(type == "multipart/form-data; boundary=B")
    #expect(
      body == """
        --B\r
        Content-Disposition: form-data; name="size"\r
        \r
        auto\r
        --B\r
        Content-Disposition: form-data; name="image"; filename="a.webp"\r
        Content-Type: image/webp\r
        \r
        PNG\r
        --B\r
        Content-Disposition: form-data; name="ü%22"\r
        \r
        \r
        --B\r
        Content-Disposition: form-data; name="image"; filename="b.png"\r
        Content-Type: image/png\r
        \r
        \r
        --B--\r

        """)
  }

  @Test(arguments: [
    ("we\"ird.webp", "we%22ird.webp"), ("a\r\nX: b.png", "a%0D%0AX: b.png"), ("../../etc/p.png", "p.png"),
    ("C:\\x\\y.png", "y.png"), ("ü ö.png", "ü ö.png"), ("a\u{0}b\u{7F}.png", "a_b_.png"), ("", "file"), ("..", "file"),
    ("a/", "file"),
  ])
  func `file names cannot break out of their field`(name: String, expected: String) throws {
    let (body, _) = try text(.multipart([.file("f", Payload("x"), filename: name, type: "image/png")]))
    #expect(body.contains("; filename=\"\(expected)\"\r\nContent-Type: image/png\r\n\r\nx\r\n"))
  }

  @Test func `types must be types, and boundaries are never the same`() throws {
    for type in ["", "a\r\nb"] {
      let body = RequestBody.multipart([.file("f", Payload("x"), filename: "a", type: type)])
      #expect(transportFailure { () throws(TransportError) in _ = try body.encoded() }?.code == .failed)
    }
    let body = RequestBody.multipart([.text("a", "b")])
    #expect(try body.encoded()?.type != body.encoded()?.type)
  }

  @Test func `forms are encoded as browsers do`() throws {
    let (body, type) = try text(
      .form([("a b", Payload("1+1=2&ü")), ("image_file_b64", Payload("ab+/=")), ("e", Payload("*-._~"))]))
    #expect(type == "application/x-www-form-urlencoded")
    #expect(body == "a+b=1%2B1%3D2%26%C3%BC&image_file_b64=ab%2B%2F%3D&e=*-._%7E")
  }

  @Test func `payloads read the same from every place`() throws {
    let bytes = (0..<1000).map { UInt8(truncatingIfNeeded: $0 &* 37) }
    let plain = Payload(bytes)
    let joined = Payload.joined([
      Payload([]), Payload(Array(bytes[..<1])), Payload([]), Payload(Array(bytes[1..<500])),
      Payload(Array(bytes[500...])), Payload([]),
    ])
    // A source that hands out no more than 7 bytes at once.
    let slow = Payload(count: 1000) { offset, buffer in
      let length = min(7, buffer.count, 1000 - offset)
      for index in 0..<length { buffer[index] = bytes[offset + index] }
      return length
    }
    for payload in [plain, joined, slow] {
      #expect(try payload.bytes() == bytes && payload.count == 1000)
      for offset in [0, 1, 2, 499, 500, 999, 1000] {
        var part = [UInt8](repeating: 0, count: 600)
        let length = try #require(part.withUnsafeMutableBytes { payload.read(at: offset, into: $0) })
        #expect(part[..<length] == bytes[offset..<min(1000, offset + 600)])
      }
    }
    let broken = Payload(count: 1000) { offset, _ in offset < 500 ? 0 : -1 }
    #expect(transportFailure { () throws(TransportError) in _ = try broken.bytes() }?.code == .failed)
  }

  @Test func `base64 of a payload reads the same from every place`() throws {
    for count in [0, 1, 2, 3, 4, 5, 100, 49_150, 49_151, 49_152, 49_153, 100_000] {
      let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 37 &+ $0 >> 7) }
      let expected = Base64.encode(bytes)
      let payload = Payload.base64(of: Payload(bytes))
      #expect(payload.count == expected.count)
      #expect(try payload.bytes() == expected)
      for offset in 0..<min(expected.count, 9) {
        var part = [UInt8](repeating: 0, count: 5)
        let length = try #require(part.withUnsafeMutableBytes { payload.read(at: offset, into: $0) })
        #expect(part[..<length] == expected[offset..<min(expected.count, offset + 5)])
      }
    }
  }
}
