import JobSyntax
import PipelineKit
import Transport

/// The fields of inputs that are no files here, how they are read, and what is wrong with them as they are written.
extension JobSpec {
  public enum Remote {
    static let urls = Field<[String]?>(
      "urls", type: .array(.text(.plain), count: 1...100_000), absent: .some(nil),
      help: "addresses of pictures, http or https; they are fetched one by one, while others are worked on"
    ) { node, _ in node.arrayValue.map { .some($0.compactMap(\.stringValue).map(Template.literal)) } }
    static let bucket = Field<Settings?>.optionalObject(
      "s3", ObjectShape(BucketFields.all),
      help: "a bucket of Amazon S3 or a service of that kind; listed when the run is planned")
    static let imgur = Field<Settings?>.optionalObject(
      "imgur",
      ObjectShape(ImgurFields.all, atLeastOne: ImgurFields.queries.map(\.name)),
      help: "a search of Imgur's gallery; asked when the run is planned")
    static let allowPrivate = Field<Bool>.boolean(
      "allowPrivate", default: false,
      help:
        "whether addresses may lie in private, loopback, link-local and reserved networks. Looked at after name resolution and "
        + "on each redirect; through a proxy, which resolves names itself, only by the name or number in the address")
    static let maxBytes = Field<Int>.integer(
      "maxBytes", in: 1...4_294_967_296, default: 268_435_456, unit: "bytes",
      help: "the largest picture that is fetched")
    static let timeout = Field<Double>.number(
      "timeout", in: 0.05...86_400, default: 60, unit: "seconds",
      help: "how long one request for a picture at an address may take as a whole")
    static let headers = Field<[NamedTemplate]>.templates(
      "headers", allowsSecrets: true,
      help:
        "further headers of requests for addresses, such as `Authorization`; they never go along with a redirect to "
        + "another server")
    static let headerHosts = Field<[String]>.texts(
      "headerHosts", default: [],
      help:
        "the hosts that `headers` are for; needed with `list` and `manifest`, which others may have written. Those of "
        + "`urls` when left out")
    static let fields: [any FieldDeclaration] = [
      urls, bucket, imgur, allowPrivate, maxBytes, timeout, headers, headerHosts,
    ]
  }

  enum BucketFields {
    static let bucket = Field<String>.text("bucket", default: nil, help: "the bucket's name")
    static let prefix = Field<String?>.text(
      "prefix", help: "what keys begin with, such as photos/2026/; all when left out")
    static let delimiter = Field<String?>.text(
      "delimiter", help: "keys that have it after the prefix are left out: \"/\" takes no folders below")
    static let suffixes = Field<[String]>.texts(
      "suffixes", count: 0...1_000, default: [],
      help: "what keys end in, such as .jpg, in any case; the endings of pictures when left out")
    static let region = Field<String?>.text(
      "region",
      help: "the bucket's region; AWS_REGION or the profile's when left out, else what the endpoint is usually given")
    static let endpoint = Field<String?>.text(
      "endpoint", help: "the service's address, such as https://minio.example:9000; Amazon's when left out")
    static let addressing = Field<S3Bucket.Addressing>(
      "addressing",
      type: .choice([
        Choice("auto", "in the host at Amazon where the name allows it, in the path elsewhere"),
        Choice("path", "https://host/bucket/key"), Choice("virtual", "https://bucket.host/key"),
      ]), absent: .auto, defaultText: "auto", help: "where the bucket's name stands in an address"
    ) { node, _ in node.stringValue.flatMap { S3Bucket.Addressing(rawValue: $0) } }
    static let profile = Field<String?>.text(
      "profile",
      help:
        "the profile of the shared AWS files whose keys are used; the environment's keys, then AWS_PROFILE when left out"
    )
    static let accessKeyID = Field<Credential?>.credential(
      "accessKeyId", help: "the key's identifier, instead of the environment's and the profile's")
    static let secretAccessKey = Field<Credential?>.credential(
      "secretAccessKey", help: "the secret key, beside accessKeyId")
    static let sessionToken = Field<Credential?>.credential(
      "sessionToken", help: "the token of temporary keys, beside accessKeyId")
    static let all: [any FieldDeclaration] = [
      bucket, prefix, delimiter, suffixes, region, endpoint, addressing, profile, accessKeyID, secretAccessKey,
      sessionToken,
    ]
  }

  enum ImgurFields {
    enum Sort: String, FieldChoice {
      case time, viral, top

      var help: String {
        switch self {
        case .time: "the newest first"
        case .viral: "what is seen most now first"
        case .top: "the best rated first"
        }
      }
    }

    enum Window: String, FieldChoice {
      case all, day, week, month, year

      var help: String { self == .all ? "of all time" : "of the last \(rawValue)" }
    }

    enum Kind: String, FieldChoice {
      case jpg, png, gif, album

      var help: String { self == .album ? "albums alone" : "\(rawValue.uppercased()) files alone" }
    }

    enum Size: String, FieldChoice {
      case small, med, big, lrg, huge

      var help: String {
        switch self {
        case .small: "at most 500 pixels"
        case .med: "500 to 2,000 pixels"
        case .big: "2,000 to 5,000 pixels"
        case .lrg: "5,000 to 10,000 pixels"
        case .huge: "10,000 pixels and more"
        }
      }
    }

    static let query = Field<String?>.text(
      "q",
      help: "words to search for, with AND, OR, NOT and parentheses, also tag:, user:, title:, ext:, subreddit:, album:"
    )
    static let allWords = Field<String?>.text("q_all", help: "words that must all be there")
    static let anyWord = Field<String?>.text("q_any", help: "words of which one must be there")
    static let exactly = Field<String?>.text("q_exactly", help: "words that must be there in this order")
    static let without = Field<String?>.text("q_not", help: "words that must not be there")
    static let kind = Field<Kind?>.choice("q_type", help: "what kind of files")
    static let size = Field<Size?>.choice("q_size_px", help: "how large")
    static let sort = Field<Sort>.choice("sort", default: .time, help: "what comes first")
    static let window = Field<Window>.choice("window", default: .all, help: "how far back; for \"sort\": \"top\"")
    static let pages = Field<Int>.integer(
      "pages", in: 1...10_000, default: 1, help: "pages of the search that are read; an empty one is the last")
    static let limit = Field<Int>.integer(
      "limit", in: 1...1_000_000, default: 100, unit: "pictures", help: "after so many no more are looked for")
    static let mature = Field<Bool>.boolean(
      "nsfw", default: false, help: "whether what is marked as not for everyone is taken")
    static let clientID = Field<Credential>.requiredCredential("clientId", help: "the application's Client-ID")
    static let endpoint = Field<String>.text(
      "endpoint", default: "https://api.imgur.com", help: "another address of the service, without /3/")
    static let queries: [Field<String?>] = [query, allWords, anyWord, exactly, without]
    static let all: [any FieldDeclaration] =
      queries + [kind, size, sort, window, pages, limit, mature, clientID, endpoint]
  }

  // MARK: Reading

  static func bucketSearch(_ settings: Settings, takesAll: Bool) -> BucketSearch? {
    guard settings.hasValue(for: BucketFields.bucket) else { return nil }
    var bucket = RemoteBucket(settings[BucketFields.bucket])
    bucket.region = settings[BucketFields.region]
    bucket.endpoint = settings[BucketFields.endpoint]
    bucket.addressing = settings[BucketFields.addressing]
    bucket.profile = settings[BucketFields.profile]
    bucket.accessKeyID = settings[BucketFields.accessKeyID]
    bucket.secretAccessKey = settings[BucketFields.secretAccessKey]
    bucket.sessionToken = settings[BucketFields.sessionToken]
    var search = BucketSearch(bucket)
    search.prefix = settings[BucketFields.prefix] ?? ""
    search.delimiter = settings[BucketFields.delimiter]
    search.suffixes = settings.isSet(BucketFields.suffixes) ? settings[BucketFields.suffixes] : nil
    search.takesAll = takesAll
    return search
  }

  static func imgurSearch(_ settings: Settings) -> ImgurSearch? {
    guard settings.hasValue(for: ImgurFields.clientID) else { return nil }
    var search = ImgurSearch(clientID: settings[ImgurFields.clientID])
    for field in ImgurFields.queries {
      if let words = settings[field] { search.parameters.append(.init(field.name, words)) }
    }
    if let kind = settings[ImgurFields.kind] { search.parameters.append(.init("q_type", kind.rawValue)) }
    if let size = settings[ImgurFields.size] { search.parameters.append(.init("q_size_px", size.rawValue)) }
    search.sort = settings[ImgurFields.sort].rawValue
    search.window = settings[ImgurFields.window].rawValue
    search.pages = settings[ImgurFields.pages]
    search.limit = settings[ImgurFields.limit]
    search.takesMature = settings[ImgurFields.mature]
    search.endpoint = settings[ImgurFields.endpoint]
    return search
  }

  /// How pictures are fetched; of a job whose input was checked.
  static func readRemote(_ input: Settings?, _ declaration: InputDeclaration) -> RemoteOptions {
    var options = RemoteOptions()
    if case .bucket(let search, _) = declaration { options.bucket = search.bucket }
    // Inputs of the command line come with nothing else.
    guard let input else { return options }
    options.allowsPrivate = input[Remote.allowPrivate]
    options.mostBytes = input[Remote.maxBytes]
    options.timeout = input[Remote.timeout]
    options.headers = input[Remote.headers]
    options.headerHosts = Set(input[Remote.headerHosts].map { $0.lowercased() })
    if case .addresses(let texts, _) = declaration, !input.isSet(Remote.headerHosts) {
      for text in texts { if let url = try? RequestURL(text) { options.headerHosts.insert(url.host) } }
    }
    return options
  }

  // MARK: Rules

  /// - Parameter node: the job's `input`.
  static func checkRemote(
    _ input: Settings, _ node: JSONNode, _ declaration: InputDeclaration, _ checker: inout FieldChecker
  ) {
    func report(
      _ code: String, _ message: String, at place: JSONNode?, expected: String, found: String, hint: String? = nil,
      severity: Diagnostic.Severity = .error
    ) {
      let place = place ?? node
      checker.report(
        code, message, at: place.range, path: place.path, expected: expected, found: found, hint: hint,
        severity: severity)
    }
    if !declaration.mayBeRemote {
      for field in [Remote.allowPrivate, Remote.maxBytes, Remote.timeout, Remote.headers] as [any FieldDeclaration]
      where input.isSet(field) {
        report(
          "no-effect", "\"\(field.name)\" is for pictures that are fetched, and this input names files",
          at: node[field.name], expected: "no such field", found: field.name, severity: .warning)
      }
    }
    if case .addresses(let texts, _) = declaration, !input[Remote.allowPrivate] {
      let nodes = node["urls"]?.arrayValue ?? []
      for (index, text) in texts.enumerated() {
        guard let url = try? RequestURL(text), url.isPrivate else { continue }
        report(
          "private-address", "\(url.host) lies in a private or reserved network, which is not asked",
          at: index < nodes.count ? nodes[index] : nil, expected: "a public address", found: url.display,
          hint: "\"allowPrivate\": true in \"input\" allows it")
      }
    }
    for header in input[Remote.headers] {
      if let variable = header.template.variables.first(where: { !$0.isKnownHere }) {
        report(
          "variable-not-allowed",
          "\"headers\" are the same for all pictures: ${\(variable.name)} may not stand there", at: node["headers"],
          expected: "text, also with ${secret.NAME}", found: "${\(variable.name)}")
      }
    }
    switch declaration {
    case .list, .manifest:
      guard !input[Remote.headers].isEmpty, input[Remote.headerHosts].isEmpty else { break }
      report(
        "missing-field", "\"headers\" would go to every host that a list or manifest names", at: node["headers"],
        expected: "\"headerHosts\" beside it", found: "none",
        hint: "name the hosts that they are for in \"headerHosts\"")
    case .bucket(let search, _):
      checkBucket(search.bucket, node["s3"]) { report($0, $1, at: $2, expected: $3, found: $4) }
    case .imgur(let search, _):
      let advanced = search.parameters.first { $0.name != "q" }
      if let advanced, search.parameters.contains(where: { $0.name == "q" }) {
        report(
          "exclusive-fields", "Imgur ignores \"q\" beside \"\(advanced.name)\"", at: node["imgur"]?["q"],
          expected: "one of them", found: "both", hint: "put its words into \"q_all\"")
      }
      if search.window != "all", search.sort != "top" {
        report(
          "no-effect", "\"window\" is for \"sort\": \"top\" alone", at: node["imgur"]?["window"],
          expected: "\"sort\": \"top\"", found: search.sort, severity: .warning)
      }
    case .files, .directory, .addresses: break
    }
  }

  private static func checkBucket(
    _ bucket: RemoteBucket, _ node: JSONNode?,
    _ report: (_ code: String, _ message: String, _ at: JSONNode?, _ expected: String, _ found: String) -> Void
  ) {
    // A region that only the environment names is looked at when the run is planned.
    do throws(S3Refusal) {
      _ = try bucket.bucket(region: "us-east-1")
    } catch {
      report("wrong-value", error.message, node?["bucket"], "a bucket", bucket.name)
    }
    if (bucket.accessKeyID == nil) != (bucket.secretAccessKey == nil) {
      report(
        "missing-field", "\"accessKeyId\" and \"secretAccessKey\" go together, and one is missing", node, "both", "one")
    }
    if bucket.sessionToken != nil, bucket.accessKeyID == nil {
      report(
        "missing-field", "\"sessionToken\" is part of \"accessKeyId\" and \"secretAccessKey\"", node, "all three",
        "the token alone")
    }
    if bucket.profile != nil, bucket.accessKeyID != nil {
      report(
        "exclusive-fields", "\"profile\" and \"accessKeyId\" name two different keys; keep one", node?["profile"],
        "one of them", "both")
    }
  }
}

extension TemplateVariable {
  /// Those of the environment that are not set have their own finding.
  fileprivate var isKnownHere: Bool {
    switch self {
    case .secret, .environment: true
    default: false
    }
  }
}
