import CCrypto

/// Keyed digests (FIPS 198-1, RFC 2104) with SHA-256.
public enum HMAC {
  /// The authentication code of bytes in memory, 32 bytes; key and bytes may have any length.
  public static func sha256(key: [UInt8], _ bytes: [UInt8]) -> [UInt8] {
    var code = [UInt8](repeating: 0, count: 32)
    let isMade = key.withUnsafeBytes { key in
      bytes.withUnsafeBytes { bytes in
        ccrypto_hmac_sha256(key.baseAddress, key.count, bytes.baseAddress, bytes.count, &code)
      }
    }
    // As for SHA-256 itself: only where an administrator has forbidden it.
    precondition(isMade == 1, "OpenSSL offers no HMAC with SHA-256")
    return code
  }

  public static func sha256(key: [UInt8], _ text: String) -> [UInt8] { sha256(key: key, Array(text.utf8)) }
}
