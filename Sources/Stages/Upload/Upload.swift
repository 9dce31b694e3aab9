import Digest
import Imaging
import JobSyntax
import PipelineKit

/// Sends encoded pictures to a service.
public struct Upload: ExchangingStage, ReceiptedStage {
  /// Everyone that pictures can be sent to.
  static let providers: [any UploadProvider.Type] = [
    S3Upload.self, PresignedUpload.self, AzureUpload.self, WebDAVUpload.self, HTTPUpload.self, ImgurUpload.self,
    ImgbbUpload.self,
  ]

  static let provider = Field<String>(
    "provider", type: .choice(providers.map { Choice($0.name, $0.help) }), absent: nil,
    help: "who the picture is sent to"
  ) { node, _ in node.stringValue }
  static let concurrency = Field<Int?>.integer(
    "concurrency", in: 1...256, help: "pictures sent at once; network.requests when left out")

  public static let spec = StageSpec(
    name: "upload", summary: "Sends the encoded picture to a service.",
    notes: [
      "Every picture that was sent leaves a receipt in the state folder: its link, what it can be deleted by, its hash. "
        + "`pipeline receipts` lists, verifies and deletes. The report shows the link.",
      "A request that creates something new is never repeated once it may have arrived: the picture then ends as "
        + "`unknown`, and `pipeline receipts resolve` settles it. What replaces by name (PUT) is repeated.",
    ],
    fields: [provider, concurrency] + UploadFields.shared + providers.flatMap { $0.fields },
    examples: [
      #"{ "stage": "upload", "provider": "s3", "bucket": "shop-pictures", "region": "eu-central-1" }"#,
      #"{ "stage": "upload", "provider": "s3", "endpoint": "http://localhost:9000", "bucket": "shop", "key": "img/${item.stem}.${ext}", "ifAbsent": true }"#,
      #"{ "stage": "upload", "provider": "presigned", "url": "${item.url}", "contentType": "image/webp" }"#,
      #"{ "stage": "upload", "provider": "azure", "sasURL": "${secret.AZURE_SAS_URL}", "path": "shop/${item.stem}.${ext}", "metadata": { "source": "${item.name}" } }"#,
      #"{ "stage": "upload", "provider": "webdav", "endpoint": "https://cloud.example/remote.php/dav/files/shop/", "user": "${secret.DAV_USER}", "password": "${secret.DAV_PASSWORD}", "overwrite": "skip" }"#,
      #"{ "stage": "upload", "provider": "http", "url": "https://img.example/api/upload", "headers": { "Authorization": "Bearer ${secret.IMG_TOKEN}" }, "fields": { "title": "${item.stem}" }, "linkPointer": "/data/link" }"#,
      #"{ "stage": "upload", "provider": "imgur", "clientId": "${secret.IMGUR_CLIENT_ID}", "title": "${item.stem}", "album": "${secret.ALBUM_DELETEHASH}" }"#,
      #"{ "stage": "upload", "provider": "imgbb", "apiKey": "${secret.IMGBB_KEY}", "expiration": 86400 }"#,
    ])

  private static func type(of settings: Settings) -> (any UploadProvider.Type)? {
    providers.first { $0.name == settings[provider] }
  }

  public static func plan(_ settings: Settings) -> StagePlan {
    var plan = StagePlan(accepts: .encoded, produces: .output)
    plan.exchanges = settings[concurrency] ?? type(of: settings)?.concurrency ?? 8
    return plan
  }

  public static func check(_ settings: Settings) -> [Diagnostic] {
    UploadFields.check(settings) + (type(of: settings)?.check(settings) ?? [])
  }

  public static func receiptKeeper(
    _ settings: Settings, resources: StageResources
  ) throws(StageError) -> (any ReceiptKeeper)? {
    try make(settings, resources).receiptKeeper
  }

  private static func make(
    _ settings: Settings, _ resources: StageResources
  ) throws(StageError) -> any UploadProvider {
    guard let type = type(of: settings) else {
      throw StageError("internal-fault", "upload has no provider \"\(settings[provider])\"", kind: .job)
    }
    return try type.init(settings, resources: resources)
  }

  private let uploader: any UploadProvider
  private let name: String

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    name = settings[Self.provider]
    uploader = try Self.make(settings, resources)
  }

  public func begin(_ item: Item, in context: StageContext) throws(StageError) -> StageStep {
    guard let encoded = item.encoded else {
      throw StageError("internal-fault", "upload got an item that was not encoded", kind: .job)
    }
    let prepared = try uploader.prepare(encoded, for: item, in: context)
    let sent = prepared.encoded
    var options = SHA256()
    options.update(counted: name.utf8)
    options.update(counted: prepared.target.utf8)
    let target = options.finish()
    let hash = sent.bytes.withUnsafeBytes { SHA256.digest(of: $0) }
    return .exchange { context throws(StageError) in
      let answer = try context.uploadOnce(
        provider: name, options: target, sha256: hash, isRepeatable: prepared.isRepeatable
      ) { () throws(StageError) in try prepared.send(context) }
      let link: String?
      switch answer {
      case .unknown(let receipt): return .outcome(.unknown(receipt: receipt))
      case .sent(let receipt, _): link = receipt.link
      // An output is what the picture was made into.
      case .alreadyThere(_, isSame: false): return .outcome(.next(item))
      case .alreadyThere(let there, isSame: true): link = there
      }
      let isBooked = context.book(
        OutputRecord(
          place: .link(link ?? ""), format: sent.format.rawValue, width: sent.width, height: sent.height,
          bytes: sent.bytes.count, sha256: Hex.text(hash)))
      guard isBooked else { throw StageError("cancelled", "the picture was given up; it was sent") }
      return .outcome(.next(item))
    }
  }
}
