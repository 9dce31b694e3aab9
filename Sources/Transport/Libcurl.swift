import CCurl

/// What every use of libcurl shares.
enum Libcurl {
  /// An easy or multi handle, which Swift sees as a raw pointer.
  typealias Handle = UnsafeMutableRawPointer

  /// Set up once, before anything else of it is called.
  static let isReady = ccurl_start() == CURLE_OK

  /// What went wrong, in libcurl's words where it left some in the error buffer.
  static func words(_ code: CURLcode, _ buffer: UnsafeRawBufferPointer) -> String {
    let said = String(decoding: buffer.prefix { $0 != 0 }, as: UTF8.self)
    return said.isEmpty ? String(cString: curl_easy_strerror(code)) : said
  }

  static func errorCode(_ code: CURLcode) -> TransportError.Code {
    switch code {
    // A handshake that fails before certificates are looked at may be a server that is starting or overloaded.
    case CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY, CURLE_COULDNT_CONNECT, CURLE_SSL_CONNECT_ERROR,
      CURLE_PROXY:
      .unreachable
    case CURLE_PARTIAL_FILE, CURLE_RECV_ERROR, CURLE_SEND_ERROR, CURLE_GOT_NOTHING, CURLE_OPERATION_TIMEDOUT,
      CURLE_HTTP2_STREAM, CURLE_HTTP2, CURLE_SEND_FAIL_REWIND:
      .interrupted
    case CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CERTPROBLEM, CURLE_SSL_CIPHER, CURLE_SSL_CACERT_BADFILE,
      CURLE_SSL_ISSUER_ERROR, CURLE_SSL_INVALIDCERTSTATUS, CURLE_SSL_CLIENTCERT, CURLE_SSL_CRL_BADFILE:
      .tls
    case CURLE_URL_MALFORMAT, CURLE_UNSUPPORTED_PROTOCOL: .address
    default: .failed
    }
  }
}

/// libcurl's list of text lines, freed with the value.
struct TextList: ~Copyable {
  private(set) var pointer: UnsafeMutablePointer<curl_slist>?

  init() { pointer = nil }

  mutating func append(_ line: String) throws(TransportError) {
    guard let longer = curl_slist_append(pointer, line) else {
      throw TransportError(.failed, "no memory for a request")
    }
    pointer = longer
  }

  deinit { curl_slist_free_all(pointer) }
}
