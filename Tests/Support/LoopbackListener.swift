import Dispatch
import Glibc

/// A port of this machine that takes connections until it goes.
final class LoopbackListener: Sendable {
  let port: UInt16
  private let descriptor: Int32

  init() {
    descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    precondition(descriptor >= 0, "no socket")
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    let descriptor = descriptor
    port = withUnsafeMutableBytes(of: &address) { bytes in
      guard let pointer = bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self) else { return 0 }
      let bound = bind(descriptor, pointer, size) == 0 && listen(descriptor, 64) == 0
      precondition(bound && getsockname(descriptor, pointer, &size) == 0, "no port")
      return UInt16(bigEndian: bytes.load(fromByteOffset: 2, as: UInt16.self))
    }
  }

  /// Hands every connection over, in the order they come, on a thread of its own; whoever gets one closes it.
  func takeConnections(_ body: @escaping @Sendable (Int32) -> Void) {
    DispatchQueue(label: "listener \(port)").async { [descriptor] in
      while true {
        let connection = accept(descriptor, nil, nil)
        if connection < 0 { return }
        body(connection)
      }
    }
  }

  deinit {
    shutdown(descriptor, Int32(SHUT_RDWR))
    close(descriptor)
  }
}
