import TestSupport
import Testing

@testable import Inference

@Suite struct RuntimeTests {
  private func opening(_ source: String) throws -> InferenceError? {
    let fake = try FakeRuntime(source)
    return failure { () throws(InferenceError) in try Model.runtimeVersion(home: fake.home) }
  }

  @Test func `another version is refused by its number, before anything else is missed`() throws {
    let error = try #require(try opening(FakeRuntime.version("2025.3.0-1-old")))
    #expect(error.code == .runtimeVersion)
    #expect(error.message.contains("2025.3.0-1-old") && error.message.contains("2026.x"))
    // A version that merely starts alike.
    #expect(try #require(try opening(FakeRuntime.version("20260.1"))).code == .runtimeVersion)
  }

  @Test func `the first function that is missing is named`() throws {
    let none = try #require(try opening("int nothing;"))
    #expect(none.code == .runtimeMissing)
    #expect(none.message.contains("ov_get_openvino_version"))
    #expect(try #require(try opening(FakeRuntime.version("2026.1"))).message.contains("ov_get_error_info"))
    // The one that Swift cannot call is looked up by itself.
    let without = FakeRuntime.complete.replacingName("ov_core_compile_model(", by: "other(")
    #expect(try #require(try opening(without)).message.contains("ov_core_compile_model"))
  }

  @Test func `a file that is no library says so`() throws {
    let folder = TemporaryFolder()
    folder.write("not ELF", to: "libopenvino_c.so.1")
    let home = PipelineHome(variable: { $0 == "PIPELINE_OPENVINO" ? folder.path : nil })
    let error = try #require(failure { () throws(InferenceError) in try Model.runtimeVersion(home: home) })
    #expect(error.code == .runtimeMissing)
    #expect(error.message.contains(folder["libopenvino_c.so.1"]))
  }

  @Test func `precision is always asked for, and bf16 only of a CPU that has it`() throws {
    let fake = try FakeRuntime(FakeRuntime.complete)
    #expect(try fake.model(requests: 1, precision: .f32).precisionUsed == "f32")
    #expect(try fake.model(requests: 1, precision: .fast).precisionUsed == "bf16")
    let plain = try FakeRuntime(FakeRuntime.complete.replacingName("FP32 BF16", by: "FP32 INT8"))
    #expect(try plain.model(requests: 1, precision: .fast).precisionUsed == "f32")
    #expect(try plain.model(requests: 1).runtimeVersion == "2026.9.9-test")
  }
}

extension String {
  func replacingName(_ name: String, by other: String) -> String {
    var text = self
    while let range = text.firstRange(of: name) { text.replaceSubrange(range, with: other) }
    return text
  }
}
