import TestSupport
import Testing
import Transport

@Suite struct AWSSettingsTests {
  private func settings(
    _ variables: [String: String] = [:], credentials: String? = nil, config: String? = nil
  ) -> AWSSettings {
    var files: [String: [UInt8]] = [:]
    files["/home/x/.aws/credentials"] = credentials.map { Array($0.utf8) }
    files["/home/x/.aws/config"] = config.map { Array($0.utf8) }
    let (variables, all) = (variables.merging(["HOME": "/home/x"]) { own, _ in own }, files)
    return AWSSettings(variable: { variables[$0] }, file: { path throws(S3Refusal) in all[path] })
  }

  /// `id secret token`, or the message.
  private func keys(_ settings: AWSSettings, profile: String? = nil) -> String {
    do throws(S3Refusal) {
      let found = try settings.credentials(profile: profile)
      return ([found.accessKeyID, found.secretAccessKey] + (found.sessionToken.map { [$0] } ?? []))
        .joined(separator: " ")
    } catch { return error.message }
  }

  private let file = """
    [default]
    aws_access_key_id = AKDEFAULT
    aws_secret_access_key = default/secret+key=
    [work]
    aws_access_key_id=AKWORK
    aws_secret_access_key=worksecret
    aws_session_token=worktoken
    """

  @Test func `the environment comes first, a named profile before it`() {
    let both = ["AWS_ACCESS_KEY_ID": "AKENV", "AWS_SECRET_ACCESS_KEY": "envsecret", "AWS_PROFILE": "work"]
    #expect(keys(settings(both, credentials: file)) == "AKENV envsecret")
    #expect(keys(settings(both, credentials: file), profile: "default") == "AKDEFAULT default/secret+key=")
    #expect(keys(settings(["AWS_PROFILE": "work"], credentials: file)) == "AKWORK worksecret worktoken")
    #expect(keys(settings(credentials: file)) == "AKDEFAULT default/secret+key=")
    let session = both.merging(["AWS_SESSION_TOKEN": "envtoken"]) { $1 }
    #expect(keys(settings(session)) == "AKENV envsecret envtoken")
    // Empty is unset.
    let empty = ["AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_PROFILE": ""]
    #expect(keys(settings(empty, credentials: file)).hasPrefix("AKDEFAULT"))
  }

  @Test func `half a pair of keys is named`() {
    #expect(keys(settings(["AWS_ACCESS_KEY_ID": "A"])) == "AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not")
    #expect(keys(settings(["AWS_SECRET_ACCESS_KEY": "A"])).hasPrefix("AWS_SECRET_ACCESS_KEY is set"))
    #expect(keys(settings(credentials: "[default]\naws_access_key_id=A")).contains("no aws_secret_access_key"))
    #expect(keys(settings(credentials: "[default]\naws_secret_access_key=A")).contains("no aws_access_key_id"))
  }

  @Test func `none at all, and a profile that is not there, are told apart`() {
    #expect(keys(settings()).hasPrefix("there are no AWS credentials: set AWS_ACCESS_KEY_ID"))
    #expect(
      keys(settings(credentials: file, config: "[profile home]\nregion=x"), profile: "wrok")
        == "there is no AWS profile \"wrok\" in ~/.aws/credentials and ~/.aws/config; they hold default, home, work")
    #expect(keys(settings(["AWS_PROFILE": "x"])).contains("there are none in them"))
    #expect(keys(settings(config: "[default]\nregion = x")).contains("has no aws_access_key_id"))
  }

  @Test func `files stand elsewhere where variables say so`() throws {
    let elsewhere = AWSSettings(
      variable: { ["AWS_SHARED_CREDENTIALS_FILE": "~/c", "AWS_CONFIG_FILE": "/etc/f", "HOME": "/h"][$0] },
      file: { path throws(S3Refusal) in
        switch path {
        case "/h/c": Array("[default]\naws_access_key_id=A\naws_secret_access_key=B".utf8)
        case "/etc/f": Array("[default]\nregion=eu-north-1".utf8)
        default: throw S3Refusal("unexpected \(path)")
        }
      })
    #expect(keys(elsewhere) == "A B")
    #expect(try elsewhere.region() == "eu-north-1")
  }

  @Test(arguments: [
    // Line ends, spaces, capitals, comments, a byte order mark.
    "\u{FEFF}[p]\r\nAWS_Access_Key_ID =\tA \r\naws_secret_access_key : S/1+2= ; why\r\n",
    "# [p]\n;[p]\n[p] # the profile\naws_access_key_id=A #x\naws_secret_access_key=S/1+2=\t;y\n",
    // A setting that everything is indented in.
    "[p]\n    aws_access_key_id = A\n    aws_secret_access_key = S/1+2=\n",
    // Settings of a setting.
    "[p]\naws_access_key_id=A\ns3 =\n  aws_access_key_id = X\n  aws_secret_access_key = Y\naws_secret_access_key=S/1+2=",
    // Twice the same section, and twice the same setting: the later one.
    "[p]\naws_access_key_id=B\n[q]\naws_access_key_id=C\n[p]\naws_access_key_id=A\naws_secret_access_key=S/1+2=",
    // Nonsense between.
    "nonsense\n[p]\nnonsense\n=x\naws_access_key_id=A\n[broken\naws_access_key_id=C\n[p]\naws_secret_access_key=S/1+2=",
    "[ \"p\" ]\naws_access_key_id=A\naws_secret_access_key=S/1+2=",
  ])
  func `the ways of writing the file are read`(text: String) {
    #expect(keys(settings(credentials: text), profile: "p") == "A S/1+2=")
  }

  @Test func `a comment sign within a value is part of it`() {
    let text = "[default]\naws_access_key_id=A\naws_secret_access_key=S#1;2"
    #expect(keys(settings(credentials: text)) == "A S#1;2")
  }

  @Test func `the config file names its profiles otherwise, and counts for less`() throws {
    let config = """
      [default]
      region = weak
      [profile default]
      region = strong
      [profile work]
      region = eu-west-1
      aws_access_key_id = AKCONFIG
      aws_secret_access_key = configsecret
      [profile "two words"]
      aws_access_key_id = AK2
      aws_secret_access_key = S2
      [only]
      aws_access_key_id = X
      [sso-session work]
      sso_start_url = https://x
      [profilework]
      region = x
      """
    let both = settings(credentials: file, config: config)
    #expect(keys(both, profile: "work") == "AKWORK worksecret worktoken")
    #expect(keys(settings(config: config), profile: "work") == "AKCONFIG configsecret")
    #expect(keys(both, profile: "two words") == "AK2 S2")
    #expect(keys(both, profile: "only").contains("no AWS profile"))
    #expect(try both.region() == "strong" && both.region(profile: "work") == "eu-west-1")
    #expect(try both.region(profile: "two words") == nil)
    #expect(try settings(["AWS_DEFAULT_REGION": "d"], config: config).region(profile: "work") == "d")
    #expect(try settings(["AWS_DEFAULT_REGION": "d", "AWS_REGION": "r"]).region() == "r")
    #expect(try settings(["AWS_PROFILE": "work"], config: config).region() == "eu-west-1")
  }

  @Test(arguments: [
    ("role_arn = arn:aws:iam::1:role/x\nsource_profile = default", "takes up a role (role_arn)", true),
    ("sso_session = s", "single sign-on (sso_session)", true),
    ("sso_start_url = https://x", "single sign-on (sso_start_url)", true),
    ("web_identity_token_file = /t", "web identity", true),
    ("credential_process = /bin/x", "asks a program for its keys (credential_process)", false),
    ("login_session = x", "login of the AWS command line", false),
  ])
  func `a profile that gets its keys otherwise is named as not supported`(text: String, word: String, isFirst: Bool) {
    let config = "[profile p]\n" + text
    #expect(keys(settings(config: config), profile: "p").contains(word))
    #expect(keys(settings(config: config), profile: "p").contains("export-credentials --profile p"))
    // Beside keys of its own: those of another identity would be wrong, those that a program would give are not.
    let own = settings(credentials: "[p]\naws_access_key_id=A\naws_secret_access_key=B", config: config)
    #expect(keys(own, profile: "p").contains(word) == isFirst)
    #expect((keys(own, profile: "p") == "A B") == !isFirst)
  }

  @Test func `files of this machine are read, large and unreadable ones named`() throws {
    let folder = TemporaryFolder()
    let path = folder.path + "/credentials"
    folder.write(Array(file.utf8), to: "credentials")
    let variables = ["AWS_SHARED_CREDENTIALS_FILE": path, "AWS_CONFIG_FILE": folder.path + "/none"]
    let settings = AWSSettings(variable: { variables[$0] })
    #expect(keys(settings, profile: "work") == "AKWORK worksecret worktoken")
    #expect(try settings.region(profile: "work") == nil)
    folder.write([UInt8](repeating: 0x20, count: 1 << 20 + 1), to: "credentials")
    #expect(keys(settings, profile: "work").contains("larger than"))
    let onFolder = AWSSettings(variable: { ["AWS_SHARED_CREDENTIALS_FILE": folder.path][$0] })
    #expect(keys(onFolder).hasPrefix("cannot read \(folder.path): "))
  }

  @Test func `the keys are known as secrets`() throws {
    let text =
      "[default]\naws_access_key_id=AKCANARY0001\naws_secret_access_key=canary/secret+0001\naws_session_token=canarytoken0001"
    _ = try settings(credentials: text).credentials()
    for secret in ["canary/secret+0001", "canarytoken0001", "canary%2Fsecret%2B0001"] {
      #expect(Secrets.redacted("x \(secret) y") == "x *** y")
    }
  }
}
