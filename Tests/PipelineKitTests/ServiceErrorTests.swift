import PipelineKit
import Testing
import Transport

@Suite struct ServiceErrorTests {
  /// What a service asks for is anybody's number.
  @Test(arguments: [0.2, 121, 1e9, 1.8446744073709552e19, 1e300, .infinity])
  func anyWaitCanBeTold(_ wait: Double) {
    let error = StageError(ServiceFailure(.putOff, "503", wait: wait), of: "remove.bg")
    #expect(error.kind == .budget && error.code == "service-wait" && error.message.contains("asks to wait"))
  }

  @Test(arguments: [
    ("canary-value\n", "canary-value"), ("canary-value\r\n", "canary-value"), (" canary value ", " canary value "),
  ])
  func theEndOfALineIsNoPartOfACredential(_ value: String, _ expected: String) throws {
    let template = try #require(Template.parse("Bearer ${secret.KEY}").template)
    #expect(try Credential(template).reveal { _ in value } == "Bearer " + expected)
  }

  @Test(arguments: ["a\nb-canary", "tab\tcanary", "\u{7f}canary"])
  func controlCharactersAreRefused(_ value: String) throws {
    let template = try #require(Template.parse("${secret.KEY}").template)
    #expect(throws: StageError.self) { try Credential(template).reveal { _ in value } }
  }
}
