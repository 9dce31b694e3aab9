import Foundation
import JobSyntax
import TestSupport
import Testing

@Suite struct JSONNumberTests {
  @Test(
    arguments: [
      ("2", 2), ("2.0", 2), ("2e3", 2000), ("2.50e1", 25), ("120e-1", 12), ("-7", -7), ("0", 0), ("-0", 0),
      ("0e99999999999999999999", 0), ("9223372036854775807", .max), ("-9223372036854775808", .min), ("0.001e3", 1),
      ("2.5", nil), ("1e-1", nil), ("9223372036854775808", nil), ("-9223372036854775809", nil), ("1e19", nil),
      ("1e99999999999999999999", nil), ("1e-99999999999999999999", nil),
    ] as [(String, Int?)])
  func integersAreExact(_ text: String, _ integer: Int?) throws {
    #expect(try #require(JSONNumber(text: text)).integer == integer)
  }

  @Test func doublesThatDoNotExistAreNil() throws {
    #expect(JSONNumber(text: "1e400")?.double == nil)
    #expect(JSONNumber(text: "-1e400")?.double == nil)
    #expect(JSONNumber(text: "1e-400")?.double == nil)
    #expect(JSONNumber(text: "0e400")?.double == 0)
    #expect(JSONNumber(text: "0.1")?.double == 0.1)
    #expect(JSONNumber(text: "5e-324")?.double == .leastNonzeroMagnitude)
    #expect(JSONNumber(text: "1.7976931348623157e308")?.double == .greatestFiniteMagnitude)
    #expect(JSONNumber(text: "-0.0")?.isNegativeZero == true)
    #expect(JSONNumber(text: "-0.01")?.isNegativeZero == false)
  }

  @Test(arguments: ["", "-", "01", "+1", ".5", "5.", "1e", "1e+", "0x1", "1 ", " 1", "1.2.3", "Infinity", "nan", "١"])
  func whatIsNoNumberIsNone(_ text: String) {
    #expect(JSONNumber(text: text) == nil)
  }
}

@Suite struct JSONTextTests {
  @Test func escapesOnlyWhatItMust() {
    let text = JSONText.string("\"\\/\u{8}\t\n\u{C}\r\u{0}\u{1F}\u{7F}\u{2028}é😀\u{FFFD}")
    #expect(text.rendered() == #""\"\\/\b\t\n\f\r\u0000\u001f"# + "\u{7F}\u{2028}é😀\u{FFFD}\"")
  }

  @Test func everyScalarReadsBackTheSame() throws {
    let all = (0...0x10FFFF as ClosedRange<UInt32>).lazy.filter { $0 < 0x3000 || $0 % 97 == 0 }
      .compactMap(Unicode.Scalar.init)
    var string = ""
    string.unicodeScalars.append(contentsOf: all)
    let root = try #require(parse(JSONText.string(string).rendered()).root)
    #expect(root.stringValue.map { Array($0.unicodeScalars) } == Array(string.unicodeScalars))
  }

  @Test func doublesAreShortestAndReadBack() throws {
    #expect(JSONText.number(0.1).rendered() == "0.1")
    #expect(JSONText.number(2).rendered() == "2.0")
    #expect(JSONText.array([.number(.infinity), .number(-.infinity), .number(.nan)]).rendered() == "[null,null,null]")
    var random = SeededGenerator(state: 7)
    for _ in 0..<2_000 {
      let double = Double(bitPattern: random.next())
      guard double.isFinite else { continue }
      let text = JSONText.number(double).rendered()
      let number = try #require(JSONNumber(text: text))
      #expect(number.double == double)
    }
  }

  @Test func prettyKeepsTheOrderOfKeys() throws {
    let text: JSONText = ["z": 1, "a": [true, nil, "x", 2.5], "empty": [:], "none": [], "m": ["k": [["deep": -1]]]]
    #expect(text.rendered() == #"{"z":1,"a":[true,null,"x",2.5],"empty":{},"none":[],"m":{"k":[{"deep":-1}]}}"#)
    #expect(
      text.rendered(pretty: true) == """
        {
          "z": 1,
          "a": [
            true,
            null,
            "x",
            2.5
          ],
          "empty": {},
          "none": [],
          "m": {
            "k": [
              {
                "deep": -1
              }
            ]
          }
        }
        """)
    #expect(try JSONText(#require(parse(text.rendered(pretty: true)).root).value) == text)
  }

  @Test func orderMattersToEquality() {
    #expect((["a": 1, "b": 2] as JSONText) == ["a": 1, "b": 2])
    #expect((["a": 1, "b": 2] as JSONText) != ["b": 2, "a": 1])
    #expect(JSONText.integer(1) != .number(1))
  }
}

@Suite struct NearestNameTests {
  static let known = ["width", "height", "fit", "onError", "background", "to", "stage", "kernel", "quality", "chroma"]

  @Test(
    arguments: [
      ("widht", "width"), ("Width", "width"), ("hieght", "height"), ("heigth", "height"), ("on_error", "onError"),
      ("on-error", "onError"), ("ONERROR", "onError"), ("onErr", "onError"), ("qualty", "quality"), ("ot", "to"),
      ("backgroundd", "background"), ("bakcgruond", "background"), ("fits", "fit"), ("stages", "stage"),
      ("x", nil), ("zzz", nil), ("w", nil), ("output", nil), ("colour", nil), ("", nil), ("___", nil), ("width", nil),
      ("depth", nil), ("kenal", "kernel"), ("kanal", nil),
    ] as [(String, String?)])
  func findsWhatWasMeant(_ name: String, _ expected: String?) {
    #expect(NearestName.suggestion(for: name, among: NearestNameTests.known) == expected)
  }

  @Test func tiesDoNotDependOnOrder() {
    let names = ["bat", "cat", "rat", "cab"]
    #expect(NearestName.suggestion(for: "dat", among: names) == "bat")
    #expect(NearestName.suggestion(for: "dat", among: names.reversed()) == "bat")
    #expect(NearestName.suggestion(for: "dat", among: Set(names)) == "bat")
    #expect(NearestName.suggestion(for: "ca", among: names) == "cab")
    // The same but for case and hyphens: the one written more alike.
    #expect(NearestName.suggestion(for: "on-error", among: ["onError", "on_error"]) == "on_error")
  }

  @Test func hugeNamesAreNotCompared() {
    let huge = String(repeating: "a", count: 1_000_000)
    #expect(NearestName.suggestion(for: huge, among: [huge + "b", "a"]) == nil)
    #expect(NearestName.suggestion(for: "aa", among: [huge]) == nil)
  }
}
