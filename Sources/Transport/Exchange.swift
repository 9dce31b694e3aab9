import CCurl
import Glibc

/// One request on its way, and the answer to it as it comes: what libcurl's callbacks work on, all on the thread that
/// sends.
final class Exchange {
  /// Nil for a request without a body.
  let payload: Payload?
  private let isIdempotent: Bool
  private let maxAnswerBytes: Int
  private let refusesPrivateAddresses: Bool

  /// Bytes of the body that were handed to libcurl in this attempt of its.
  private var handed = 0
  /// The connection stands, and the request was about to be written.
  private(set) var isStarted = false
  /// All of the request may have left this machine.
  private(set) var mayHaveArrived = false
  /// Goes up with every sign of life.
  private(set) var marks = 0

  private(set) var isUnreadable = false
  private(set) var isTooLarge = false
  private(set) var isHeadTooLarge = false
  private(set) var refusedAddress: NetworkAddress?

  private var lines: [String] = []
  private var headBytes = 0
  private var isHead = true
  /// Of the answer that counts, once its head is complete.
  private(set) var status: Int?
  private(set) var headers = Headers()
  private(set) var body: [UInt8] = []

  init(payload: Payload?, isIdempotent: Bool, maxAnswerBytes: Int, refusesPrivateAddresses: Bool) {
    self.payload = payload
    self.isIdempotent = isIdempotent
    self.maxAnswerBytes = maxAnswerBytes
    self.refusesPrivateAddresses = refusesPrivateAddresses
  }

  // MARK: Connecting

  /// CURL_SOCKET_BAD, which Swift does not import.
  private static let badSocket: curl_socket_t = -1

  static let openerCallback: ccurl_opener = { context, _, address in
    guard let context, let address else { return badSocket }
    return Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue().open(address)
  }

  private func open(_ address: UnsafeMutablePointer<curl_sockaddr>) -> curl_socket_t {
    if refusesPrivateAddresses {
      // The address is longer than the member it begins in.
      let start = UnsafeRawPointer(address).advanced(by: MemoryLayout<curl_sockaddr>.offset(of: \.addr) ?? 0)
      let bytes = UnsafeRawBufferPointer(start: start, count: Int(address.pointee.addrlen))
      guard let found = NetworkAddress(socketAddress: bytes), found.isPublic else {
        refusedAddress = NetworkAddress(socketAddress: bytes) ?? NetworkAddress(bytes: [0, 0, 0, 0])
        return Self.badSocket
      }
    }
    // Not for the programs that this one starts.
    return socket(
      address.pointee.family, address.pointee.socktype | Int32(SOCK_CLOEXEC.rawValue), address.pointee.protocol)
  }

  static let startCallback: ccurl_before_request = { context, _, _, _, _ in
    guard let context else { return Int32(CURL_PREREQFUNC_ABORT) }
    Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue().start()
    return Int32(CURL_PREREQFUNC_OK)
  }

  private func start() {
    isStarted = true
    marks &+= 1
    if payload == nil || payload?.count == 0 { mayHaveArrived = true }
  }

  // MARK: Sending

  static let readCallback: ccurl_callback = { bytes, size, count, context in
    guard let bytes, let context else { return Int(CURL_READFUNC_ABORT) }
    let buffer = UnsafeMutableRawBufferPointer(start: bytes, count: size * count)
    return Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue().give(buffer)
  }

  private func give(_ buffer: UnsafeMutableRawBufferPointer) -> Int {
    marks &+= 1
    guard let payload else { return 0 }
    guard let length = payload.read(at: handed, into: buffer) else {
      isUnreadable = true
      return Int(CURL_READFUNC_ABORT)
    }
    handed += length
    if handed == payload.count { mayHaveArrived = true }
    return length
  }

  static let seekCallback: ccurl_seek = { context, offset, origin in
    guard let context else { return Int32(CURL_SEEKFUNC_FAIL) }
    let isDone = Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue().seek(Int(offset), origin)
    return Int32(isDone ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL)
  }

  /// libcurl begins again by itself where a connection that it kept turns out to be dead, even if the whole request went
  /// out on it. What must not be done twice is kept from that here; after an answer that asks for credentials it may.
  private func seek(_ offset: Int, _ origin: Int32) -> Bool {
    guard origin == SEEK_SET, let payload, 0...payload.count ~= offset else { return false }
    let isChallenged = status == 401 || status == 407
    guard isIdempotent || isChallenged || !mayHaveArrived else { return false }
    if isChallenged { mayHaveArrived = false }
    handed = offset
    return true
  }

  // MARK: Receiving

  static let headerCallback: ccurl_callback = { bytes, size, count, context in
    guard let bytes, let context else { return 0 }
    let exchange = Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue()
    return exchange.takeHeader(UnsafeRawBufferPointer(start: bytes, count: size * count)) ? size * count : 0
  }

  static let bodyCallback: ccurl_callback = { bytes, size, count, context in
    guard let bytes, let context else { return 0 }
    let exchange = Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue()
    return exchange.takeBody(UnsafeRawBufferPointer(start: bytes, count: size * count)) ? size * count : 0
  }

  private func takeHeader(_ bytes: UnsafeRawBufferPointer) -> Bool {
    marks &+= 1
    headBytes += bytes.count
    guard headBytes <= 256 << 10 else {
      isHeadTooLarge = true
      return false
    }
    let line = String(decoding: bytes, as: UTF8.self)
    if line.hasPrefix("HTTP/") {
      // Of an interim answer, one that asks for credentials, or the last one: only what follows it counts.
      lines = [line]
      isHead = true
      body = []
      return true
    }
    // Fields after the body say nothing that we look at.
    guard isHead else { return true }
    guard line.allSatisfy(\.isNewline) else {
      lines.append(line)
      return true
    }
    isHead = false
    let words = (lines.first ?? "").split(separator: " ", maxSplits: 2)
    guard words.count > 1, let status = Int(trimmed(words[1])) else { return true }
    self.status = status
    headers = Headers(lines: Array(lines.dropFirst()))
    if let length = headers["Content-Length"].flatMap({ Int($0) }), headers["Content-Encoding"] == nil {
      guard length <= maxAnswerBytes else {
        isTooLarge = true
        return false
      }
      // Not more than this on the word of a server.
      body.reserveCapacity(max(0, min(length, 64 << 20)))
    }
    return true
  }

  private func takeBody(_ bytes: UnsafeRawBufferPointer) -> Bool {
    marks &+= 1
    guard bytes.count <= maxAnswerBytes - body.count else {
      isTooLarge = true
      return false
    }
    body.append(contentsOf: bytes)
    return true
  }
}
