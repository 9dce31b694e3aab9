/// Models of one operator, written out byte by byte.
enum WrittenModels {
  /// An ONNX model whose output is the sigmoid of its input, `[1, 3, h, w]`; nil for open sides.
  static func sigmoidONNX(width: Int?, height: Int?) -> [UInt8] {
    func dimension(_ size: Int?, _ name: String) -> [UInt8] {
      field(1, size.map { number(1, $0) } ?? field(2, Array(name.utf8)))
    }
    func value(_ name: String) -> [UInt8] {
      let shape = dimension(1, "n") + dimension(3, "c") + dimension(height, "h") + dimension(width, "w")
      let tensor = number(1, 1) + field(2, shape)
      return field(1, Array(name.utf8)) + field(2, field(1, tensor))
    }
    let node = field(1, Array("x".utf8)) + field(2, Array("y".utf8)) + field(4, Array("Sigmoid".utf8))
    let graph = field(1, node) + field(2, Array("g".utf8)) + field(11, value("x")) + field(12, value("y"))
    return number(1, 8) + field(7, graph) + field(8, number(2, 13))
  }

  /// The same as an OpenVINO IR of 4 × 2 pixels.
  static let sigmoidIR: String = {
    let sides = "<dim>1</dim><dim>3</dim><dim>2</dim><dim>4</dim>"
    func port(_ id: Int) -> String { "<port id=\"\(id)\" precision=\"FP32\">\(sides)</port>" }
    return """
      <?xml version="1.0"?>
      <net name="sigmoid" version="11">
        <layers>
          <layer id="0" name="x" type="Parameter" version="opset1">
            <data shape="1,3,2,4" element_type="f32"/><output>\(port(0))</output>
          </layer>
          <layer id="1" name="y" type="Sigmoid" version="opset1">
            <input>\(port(0))</input><output>\(port(1))</output>
          </layer>
          <layer id="2" name="r" type="Result" version="opset1"><input>\(port(0))</input></layer>
        </layers>
        <edges>
          <edge from-layer="0" from-port="0" to-layer="1" to-port="0"/>
          <edge from-layer="1" from-port="1" to-layer="2" to-port="0"/>
        </edges>
      </net>
      """
  }()

  // Protocol Buffers: a field of bytes, and one of a number.
  private static func field(_ tag: Int, _ bytes: [UInt8]) -> [UInt8] {
    varint(tag << 3 | 2) + varint(bytes.count) + bytes
  }
  private static func number(_ tag: Int, _ value: Int) -> [UInt8] { varint(tag << 3) + varint(value) }

  private static func varint(_ value: Int) -> [UInt8] {
    var bytes: [UInt8] = []
    var rest = value
    while rest > 127 {
      bytes.append(UInt8(rest & 127 | 128))
      rest >>= 7
    }
    return bytes + [UInt8(rest)]
  }
}
