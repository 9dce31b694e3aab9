import Glibc

/// Who requests are signed for.
public struct AWSCredentials: Sendable {
  public let accessKeyID: String
  public let secretAccessKey: String
  /// Of temporary credentials.
  public let sessionToken: String?
  /// Where they come from, for messages: `the environment`, `profile work`.
  public let origin: String

  /// Makes all three known to `Secrets`.
  public init(accessKeyID: String, secretAccessKey: String, sessionToken: String?, origin: String) {
    Secrets.register(accessKeyID)
    Secrets.register(secretAccessKey)
    if let sessionToken { Secrets.register(sessionToken) }
    self.accessKeyID = accessKeyID
    self.secretAccessKey = secretAccessKey
    self.sessionToken = sessionToken
    self.origin = origin
  }

  public func signer(region: String) -> SigV4 {
    SigV4(
      accessKeyID: accessKeyID, secretAccessKey: secretAccessKey, sessionToken: sessionToken, region: region)
  }
}

/// What the environment and the shared AWS files say.
///
/// Variables: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_PROFILE`, `AWS_REGION`,
/// `AWS_DEFAULT_REGION`, `AWS_SHARED_CREDENTIALS_FILE`, `AWS_CONFIG_FILE`; an empty one is an unset one. Files:
/// `~/.aws/credentials` and `~/.aws/config`.
public struct AWSSettings: Sendable {
  private let variable: @Sendable (String) -> String?
  private let file: @Sendable (String) throws(S3Refusal) -> [UInt8]?

  /// - Parameters:
  ///   - variable: the value of an environment variable.
  ///   - file: the bytes of a file; nil where there is none.
  public init(
    variable: @escaping @Sendable (String) -> String? = AWSSettings.environment,
    file: @escaping @Sendable (String) throws(S3Refusal) -> [UInt8]? = AWSSettings.contents
  ) {
    self.variable = variable
    self.file = file
  }

  /// The credentials to use.
  ///
  /// A profile that is named here is used before anything else; otherwise the environment's own keys come first, then
  /// the profile that `AWS_PROFILE` names, then `default`.
  ///
  /// - Throws: where there are none, and for a profile that gets its keys in a way that is not supported: by a program,
  ///   by single sign-on, or by taking up a role.
  public func credentials(profile: String? = nil) throws(S3Refusal) -> AWSCredentials {
    if profile == nil, let credentials = try environmentCredentials() { return credentials }
    let named = profile ?? value("AWS_PROFILE")
    let name = named ?? "default"
    let (credentials, config) = (try read(.credentials), try read(.config))
    let (secret, shared) = (credentials.profiles[name] ?? [:], config.profiles[name] ?? [:])
    let places = "\(path(.credentials)) and \(path(.config))"
    guard credentials.profiles[name] != nil || config.profiles[name] != nil else {
      guard named != nil else {
        throw S3Refusal(
          "there are no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write a profile to "
            + path(.credentials))
      }
      let known = Set(credentials.profiles.keys).union(config.profiles.keys).sorted()
      let list = known.isEmpty ? "there are none in them" : "they hold \(known.prefix(12).joined(separator: ", "))"
      throw S3Refusal("there is no AWS profile \"\(name)\" in \(places); \(list)")
    }

    // Ways that stand before keys of the profile's own, since they make it another identity.
    let all = shared.merging(secret) { _, own in own }
    for (setting, way) in [
      ("role_arn", "takes up a role"), ("web_identity_token_file", "takes up a role with a web identity"),
      ("sso_session", "uses single sign-on"), ("sso_start_url", "uses single sign-on"),
      ("sso_account_id", "uses single sign-on"),
    ] where all[setting] != nil {
      throw unsupported(name, way: way, setting: setting)
    }
    if let found = try keys(of: secret, profile: name) { return found }
    for (setting, way) in [
      ("credential_process", "asks a program for its keys"), ("login_session", "uses a login of the AWS command line"),
    ] where all[setting] != nil {
      throw unsupported(name, way: way, setting: setting)
    }
    if let found = try keys(of: shared, profile: name) { return found }
    throw S3Refusal("the AWS profile \"\(name)\" has no aws_access_key_id in \(places)")
  }

  /// The region that the environment, else the profile, names.
  public func region(profile: String? = nil) throws(S3Refusal) -> String? {
    if let region = value("AWS_REGION") ?? value("AWS_DEFAULT_REGION") { return region }
    let name = profile ?? value("AWS_PROFILE") ?? "default"
    for kind in [AWSProfileFile.Kind.config, .credentials] {
      if let region = try read(kind).profiles[name]?["region"], !region.isEmpty { return region }
    }
    return nil
  }

  // MARK: - Sources

  private func environmentCredentials() throws(S3Refusal) -> AWSCredentials? {
    switch (value("AWS_ACCESS_KEY_ID"), value("AWS_SECRET_ACCESS_KEY")) {
    case (nil, nil): return nil
    case (let id?, let secret?):
      return AWSCredentials(
        accessKeyID: id, secretAccessKey: secret, sessionToken: value("AWS_SESSION_TOKEN"), origin: "the environment")
    case (_?, nil): throw S3Refusal("AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not")
    case (nil, _?): throw S3Refusal("AWS_SECRET_ACCESS_KEY is set and AWS_ACCESS_KEY_ID is not")
    }
  }

  private func keys(of settings: [String: String], profile: String) throws(S3Refusal) -> AWSCredentials? {
    func setting(_ name: String) -> String? { settings[name].flatMap { $0.isEmpty ? nil : $0 } }
    switch (setting("aws_access_key_id"), setting("aws_secret_access_key")) {
    case (nil, nil): return nil
    case (let id?, let secret?):
      return AWSCredentials(
        accessKeyID: id, secretAccessKey: secret,
        sessionToken: setting("aws_session_token") ?? setting("aws_security_token"), origin: "profile \(profile)")
    case (_?, nil): throw S3Refusal("the AWS profile \"\(profile)\" has no aws_secret_access_key beside its key id")
    case (nil, _?): throw S3Refusal("the AWS profile \"\(profile)\" has no aws_access_key_id beside its secret key")
    }
  }

  private func unsupported(_ profile: String, way: String, setting: String) -> S3Refusal {
    S3Refusal(
      "the AWS profile \"\(profile)\" \(way) (\(setting)), which is not supported; get its keys into the environment "
        + "with: aws configure export-credentials --profile \(profile) --format env")
  }

  private func value(_ name: String) -> String? { variable(name).flatMap { $0.isEmpty ? nil : $0 } }

  private func path(_ kind: AWSProfileFile.Kind) -> String {
    let (name, usual) =
      kind == .credentials
      ? ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials") : ("AWS_CONFIG_FILE", "~/.aws/config")
    return value(name) ?? usual
  }

  private func read(_ kind: AWSProfileFile.Kind) throws(S3Refusal) -> AWSProfileFile {
    var path = path(kind)
    if path.hasPrefix("~/") {
      guard let home = value("HOME") else { return AWSProfileFile([], kind: kind) }
      path = home + path.dropFirst(1)
    }
    return AWSProfileFile(try file(path) ?? [], kind: kind)
  }

  /// An environment variable of this process.
  public static let environment: @Sendable (String) -> String? = { name in getenv(name).map { String(cString: $0) } }

  /// Shared files are small; what is larger is none.
  private static let largestFile = 1 << 20

  /// The bytes of a file of at most 1 MiB; nil where there is none.
  public static let contents: @Sendable (String) throws(S3Refusal) -> [UInt8]? = { path throws(S3Refusal) in
    func failure(_ number: Int32) -> S3Refusal {
      S3Refusal("cannot read \(path): \(strerror(number).map { String(cString: $0) } ?? "error \(number)")")
    }
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else {
      if errno == ENOENT || errno == ENOTDIR { return nil }
      throw failure(errno)
    }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 1 << 14)
    while true {
      let count = Glibc.read(descriptor, &piece, piece.count)
      if count == 0 { return bytes }
      if count < 0 {
        if errno == EINTR { continue }
        throw failure(errno)
      }
      bytes += piece[..<count]
      guard bytes.count <= largestFile else { throw S3Refusal("\(path) is larger than \(largestFile) bytes") }
    }
  }
}
