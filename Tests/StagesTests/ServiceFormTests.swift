import JobSyntax
import Testing
import Transport

@testable import Stages

/// Every form of a request, taken apart again by readers of our own.
@Suite struct ServiceFormTests {
  /// What a server finds in a body: the picture's field, and the others in their order.
  private struct Read {
    var fields: [(name: String, text: String)] = []
    var files: [(name: String, filename: String, type: String, bytes: [UInt8])] = []
  }

  private static let bytes = (0..<1000).map { UInt8(truncatingIfNeeded: $0 &* 167 &+ 13) }
  private static let odd = "a \"b\"\\ &=+%ü\n1"

  private func form(_ isByAddress: Bool) -> ServiceForm {
    ServiceForm(
      picture: isByAddress
        ? .address(name: "picture", "https://h/a?b=c&d=%20")
        : .bytes(.init(name: "picture", payload: Payload(Self.bytes), filename: "p.jpg", type: "image/jpeg")),
      fields: [
        ("size", .text("full")), ("odd", .text(Self.odd)), ("shadow_type[car]", .text("3D")), ("crop", .flag(true)),
      ],
      files: [])
  }

  private func parts(_ body: [UInt8], boundary: String) throws -> Read {
    var read = Read()
    let mark = Array("--\(boundary)".utf8)
    var starts: [Int] = []
    var index = 0
    while index + mark.count <= body.count {
      if body[index..<index + mark.count].elementsEqual(mark) { starts.append(index) }
      index += 1
    }
    for (start, end) in zip(starts, starts.dropFirst()) {
      let part = body[(start + mark.count + 2)..<(end - 2)]
      let gap = try #require(
        part.indices.first { part[$0...].starts(with: [13, 10, 13, 10]) }, "a part without a head")
      let head = String(decoding: part[..<gap], as: UTF8.self).split(separator: "\r\n").map(String.init)
      let content = Array(part[(gap + 4)...])
      func value(_ key: String) -> String? {
        head[0].components(between: "\(key)=\"", and: "\"")
      }
      let name = try #require(value(" name") ?? value("name"))
      if let filename = value("filename") {
        let type = try #require(head.first { $0.hasPrefix("Content-Type: ") }).dropFirst(14)
        read.files.append((name, filename, String(type), content))
      } else {
        read.fields.append((name, String(decoding: content, as: UTF8.self)))
      }
    }
    return read
  }

  private func urlDecoded(_ text: Substring) -> String {
    var bytes: [UInt8] = []
    var rest = Array(text.utf8)[...]
    while let byte = rest.popFirst() {
      switch byte {
      case UInt8(ascii: "+"): bytes.append(32)
      case UInt8(ascii: "%"):
        let digits = String(decoding: rest.prefix(2), as: UTF8.self)
        rest = rest.dropFirst(2)
        bytes.append(UInt8(digits, radix: 16) ?? 0)
      default: bytes.append(byte)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  @Test(arguments: RequestForm.allCases)
  func everyFormCarriesEverything(form: RequestForm) throws {
    let body = self.form(form.source == .url).body(form.body, isBase64: form.source == .base64)
    let (payload, type) = try #require(try body.encoded(boundary: "bound"))
    let bytes = try payload.bytes()
    #expect(bytes.count == payload.count)
    var read = Read()
    switch form.body {
    case .raw:
      #expect(type == "image/jpeg")
      #expect(bytes == Self.bytes)
      return
    case .multipart:
      #expect(type == "multipart/form-data; boundary=bound")
      read = try parts(bytes, boundary: "bound")
    case .form:
      #expect(type == "application/x-www-form-urlencoded")
      for pair in String(decoding: bytes, as: UTF8.self).split(separator: "&") {
        let halves = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        read.fields.append((urlDecoded(halves[0]), urlDecoded(halves[1])))
      }
    case .json:
      #expect(type == "application/json")
      let root = try #require(StrictJSON.parse(SourceFile(name: "body", text: bytes)).root)
      for member in root.objectValue ?? [] {
        // A boolean stays one here.
        #expect((member.key == "crop") == (member.value.boolValue != nil))
        read.fields.append((member.key, member.value.stringValue ?? (member.value.boolValue == true ? "true" : "?")))
      }
    }
    switch form.source {
    case .file:
      #expect(read.files.map(\.name) == ["picture"])
      #expect(read.files.first?.filename == "p.jpg" && read.files.first?.type == "image/jpeg")
      #expect(read.files.first?.bytes == Self.bytes)
    case .base64:
      let first = read.fields.removeFirst()
      #expect(first.name == "picture")
      #expect(Base64.decode(first.text) == Self.bytes)
    case .url:
      let first = read.fields.removeFirst()
      #expect(first == ("picture", "https://h/a?b=c&d=%20"))
    }
    #expect(read.fields.map(\.name) == ["size", "odd", "shadow_type[car]", "crop"])
    #expect(read.fields.map(\.text) == ["full", Self.odd, "3D", "true"])
  }

  @Test("a background goes along as a second file")
  func files() throws {
    var form = form(false)
    form.files = [.init(name: "bg_image_file", payload: Payload([1, 2]), filename: "b.png", type: "image/png")]
    let body = try #require(try form.body(.multipart, isBase64: false).encoded(boundary: "b")).payload.bytes()
    let read = try parts(body, boundary: "b")
    #expect(read.files.map(\.name) == ["picture", "bg_image_file"])
    #expect(read.files.last?.bytes == [1, 2])
  }

  @Test("a large picture is read in pieces of any size")
  func pieces() throws {
    for form in [RequestForm.jsonBase64, .multipartBase64] {
      let body = self.form(false).body(form.body, isBase64: true)
      let payload = try #require(try body.encoded(boundary: "b")).payload
      let whole = try payload.bytes()
      for size in [1, 7, 1000] {
        var read: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: size)
        while read.count < payload.count {
          let at = read.count
          let count = try #require(piece.withUnsafeMutableBytes { payload.read(at: at, into: $0) })
          read += piece[..<count]
        }
        #expect(read == whole)
      }
    }
  }
}

extension String {
  fileprivate func components(between start: String, and end: String) -> String? {
    guard let from = firstRange(of: start)?.upperBound, let to = self[from...].firstRange(of: end)?.lowerBound else {
      return nil
    }
    return String(self[from..<to])
  }
}
