/// Has an ONNX model computed in 8-bit integers: a quantisation is put behind tensors whose ranges are known and on the
/// weights, as `FakeQuantize` operations, which OpenVINO turns into integer arithmetic.
///
/// The weights take 7 of their 8 bits. Processors without VNNI add pairs of products in 16 bits, which 8-bit weights
/// overflow; so masks are the same on those with it.
///
/// What is read and written of ONNX's protocol buffers: `ModelProto` 7 graph, 8 operator set; `GraphProto` 1 node,
/// 5 initializer; `NodeProto` 1 input, 2 output, 3 name, 4 operator, 5 attribute, 7 domain; `TensorProto` 1 dims,
/// 2 type, 4 floats, 8 name, 9 bytes; `AttributeProto` 1 name, 3 integer, 20 type (onnx.proto3).
struct EightBitModel {
  /// What is known of a model's numbers: found once on photographs, and held with the program.
  struct Calibration {
    /// The SHA-256 of the one file that it is for.
    var sha256: String
    /// Tensors with their largest value; the least is 0.
    var highest: [String: Float]
    /// Convolutions that stay in 32 bits, by name.
    var exact: Set<String>
  }

  /// The model, quantised; nil where the bytes are not such a model, or lack a tensor of the calibration.
  static func quantised(_ file: [UInt8], _ calibration: Calibration) -> [UInt8]? {
    var model = Message()
    var hasGraph = false
    let isWhole = fields(of: file[...]) { number, bytes, all in
      guard number == 7, !hasGraph, let bytes else {
        model.bytes += all
        return true
      }
      guard let graph = Self.graph(bytes, calibration) else { return false }
      model.add(7, graph.bytes)
      hasGraph = true
      return true
    }
    guard isWhole, hasGraph else { return nil }
    var operators = Message()
    operators.add(1, domain)
    operators.add(2, integer: 1)
    model.add(8, operators.bytes)
    return model.bytes
  }

  /// Where OpenVINO's own operations are in ONNX.
  private static let domain = "org.openvinotoolkit"
  private static let suffix = "/quantised"

  private static func graph(_ graph: ArraySlice<UInt8>, _ calibration: Calibration) -> Message? {
    var weights: [String: ArraySlice<UInt8>] = [:]
    var isWhole = fields(of: graph) { number, bytes, _ in
      if number == 5, let bytes, let name = text(8, in: bytes) { weights[name] = bytes }
      return true
    }
    guard isWhole else { return nil }
    var out = Message()
    var constants = Message()
    var found = 0
    func quantise(_ tensor: String, lowest: [Float], highest: [Float], shape: [Int]) {
      for (end, values) in [("/lowest", lowest), ("/highest", highest)] {
        var constant = Message()
        for side in shape { constant.add(1, integer: side) }
        constant.add(2, integer: 1)
        constant.add(8, tensor + end)
        constant.add(9, values.flatMap { value in (0..<4).map { UInt8(value.bitPattern >> (8 * $0) & 255) } })
        constants.add(5, constant.bytes)
      }
      var levels = Message()
      levels.add(1, "levels")
      levels.add(3, integer: lowest[0] < 0 ? 255 : 256)
      levels.add(20, integer: 2)
      var node = Message()
      for input in ["", "/lowest", "/highest", "/lowest", "/highest"] { node.add(1, tensor + input) }
      node.add(2, tensor + suffix)
      node.add(3, tensor + suffix)
      node.add(4, "FakeQuantize")
      node.add(5, levels.bytes)
      node.add(7, domain)
      out.add(1, node.bytes)
    }
    isWhole = fields(of: graph) { number, bytes, all in
      guard number == 1, let bytes else {
        out.bytes += all
        return true
      }
      let name = text(3, in: bytes) ?? ""
      let operation = text(4, in: bytes)
      guard !calibration.exact.contains(name), operation != "Shape" else {
        out.bytes += all
        return quantiseOutputs(of: bytes)
      }
      let isConvolution = operation == "Conv"
      var node = Message()
      var input = 0
      let isUnderstood = fields(of: bytes) { number, value, all in
        guard number == 1, let value else {
          node.bytes += all
          return true
        }
        let tensor = String(decoding: value, as: UTF8.self)
        var isQuantised = calibration.highest[tensor] != nil
        if isConvolution, input == 1 {
          guard let weight = weights[tensor], let (largest, rank) = largestOfEach(weight) else { return false }
          // Twice the range: half of the integers are used.
          quantise(
            tensor, lowest: largest.map { -2 * $0 }, highest: largest.map { 2 * $0 },
            shape: [largest.count] + [Int](repeating: 1, count: rank - 1))
          isQuantised = true
        }
        node.add(1, isQuantised ? tensor + suffix : tensor)
        input += 1
        return true
      }
      guard isUnderstood else { return false }
      out.add(1, node.bytes)
      return quantiseOutputs(of: bytes)
    }
    func quantiseOutputs(of node: ArraySlice<UInt8>) -> Bool {
      fields(of: node) { number, value, _ in
        guard number == 2, let value else { return true }
        let tensor = String(decoding: value, as: UTF8.self)
        if let highest = calibration.highest[tensor] {
          found += 1
          quantise(tensor, lowest: [0], highest: [highest], shape: [])
        }
        return true
      }
    }
    guard isWhole, found == calibration.highest.count else { return nil }
    out.bytes += constants.bytes
    return out
  }

  /// The largest distance from 0 in each row of a tensor of floats, along its first axis, and its number of axes.
  private static func largestOfEach(_ tensor: ArraySlice<UInt8>) -> (largest: [Float], rank: Int)? {
    var shape: [Int] = []
    var raw: ArraySlice<UInt8> = []
    var type = 0
    let isWhole = fields(of: tensor) { number, bytes, all in
      switch (number, bytes) {
      case (1, nil): shape.append(integer(in: all) ?? 0)
      // Packed.
      case (1, let bytes?):
        var at = bytes.startIndex
        while at < bytes.endIndex {
          guard let side = varint(bytes, &at) else { return false }
          shape.append(Int(clamping: side))
        }
      case (2, nil): type = integer(in: all) ?? 0
      case (4, _?), (9, _?): raw = bytes ?? []
      default: break
      }
      return true
    }
    guard isWhole, type == 1, let rows = shape.first, raw.count == bytes(ofFloats: shape) else { return nil }
    let row = raw.count / rows
    let largest = raw.withUnsafeBytes { bytes in
      (0..<rows).map { index in
        stride(from: index * row, to: (index + 1) * row, by: 4).reduce(Float(0)) { most, at in
          max(
            most, abs(Float(bitPattern: UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: at, as: UInt32.self))))
          )
        }
      }
    }
    // A row of zeros has no range of its own.
    return (largest.map { $0 > 0 && $0.isFinite ? $0 : 1 }, shape.count)
  }

  /// What a tensor of floats takes; nil for sides that no tensor in memory has.
  private static func bytes(ofFloats shape: [Int]) -> Int? {
    var bytes = 4
    for side in shape {
      let (product, isTooLarge) = bytes.multipliedReportingOverflow(by: side)
      guard side > 0, !isTooLarge else { return nil }
      bytes = product
    }
    return bytes
  }

  // MARK: Protocol buffers

  /// A message being written.
  private struct Message {
    var bytes: [UInt8] = []

    mutating func add(_ field: Int, _ value: some Collection<UInt8>) {
      varint(field << 3 | 2)
      varint(value.count)
      bytes += value
    }

    mutating func add(_ field: Int, _ text: String) { add(field, Array(text.utf8)) }

    mutating func add(_ field: Int, integer value: Int) {
      varint(field << 3)
      varint(value)
    }

    private mutating func varint(_ value: Int) {
      var rest = UInt64(value)
      while rest > 127 {
        bytes.append(UInt8(rest & 127 | 128))
        rest >>= 7
      }
      bytes.append(UInt8(rest))
    }
  }

  /// Calls `body` with each field: its number, its bytes where it has a length, and the field whole, until it returns
  /// false.
  ///
  /// - Returns: whether all were read.
  private static func fields(
    of message: ArraySlice<UInt8>, _ body: (Int, ArraySlice<UInt8>?, ArraySlice<UInt8>) -> Bool
  ) -> Bool {
    var at = message.startIndex
    while at < message.endIndex {
      let start = at
      guard let key = varint(message, &at) else { return false }
      var value: ArraySlice<UInt8>?
      var length: UInt64 = 0
      switch key & 7 {
      case 0: guard varint(message, &at) != nil else { return false }
      case 1: length = 8
      case 2:
        guard let stated = varint(message, &at) else { return false }
        length = stated
      case 5: length = 4
      default: return false
      }
      guard length <= UInt64(message.endIndex - at) else { return false }
      let end = at + Int(length)
      if key & 7 == 2 { value = message[at..<end] }
      at = end
      guard body(Int(clamping: key >> 3), value, message[start..<end]) else { return false }
    }
    return true
  }

  private static func varint(_ bytes: ArraySlice<UInt8>, _ at: inout Int) -> UInt64? {
    var value: UInt64 = 0
    for shift in stride(from: UInt64(0), to: 64, by: 7) {
      guard at < bytes.endIndex else { return nil }
      let byte = bytes[at]
      at += 1
      value |= UInt64(byte & 127) << shift
      if byte < 128 { return value }
    }
    return nil
  }

  /// The number in a whole field of one.
  private static func integer(in field: ArraySlice<UInt8>) -> Int? {
    var at = field.startIndex
    guard varint(field, &at) != nil, let value = varint(field, &at) else { return nil }
    return Int(exactly: value)
  }

  private static func text(_ field: Int, in message: ArraySlice<UInt8>) -> String? {
    var found: String?
    let isWhole = fields(of: message) { number, bytes, _ in
      if number == field, let bytes { found = String(decoding: bytes, as: UTF8.self) }
      return true
    }
    return isWhole ? found : nil
  }
}
