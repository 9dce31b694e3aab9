import JobSyntax
import PipelineKit

/// What goes on after an item failed.
public enum OnError: String, FieldChoice {
  case `continue`, stop

  public var help: String {
    switch self {
    case .continue: "the other items are still worked on"
    case .stop: "no further item is started"
    }
  }
}

/// The top level of a job file, declared like the settings of a stage.
public enum JobSpec {
  static let schema = Field<String?>.text("$schema", help: "where the JSON Schema lies; for editors")
  static let version = Field<Int>.integer("version", in: 1...1, default: nil, help: "version of the job format: 1")
  static let name = Field<String?>.text(
    "name", help: "what reports call the job; the file's name without its ending when absent")
  static let vars = Field<JSONNode?>(
    "vars", type: .any, absent: .some(nil), help: "values for ${vars.NAME}; `--set NAME=VALUE` replaces them"
  ) { node, _ in .some(node) }
  static let input = Field<Settings>.object(
    "input",
    ObjectShape(
      [Input.files, Input.directory, Input.list, Input.manifest, Input.recursive, Input.all, Input.allowEmpty]
        + Remote.fields,
      exactlyOne: ["files", "directory", "list", "manifest", "urls", "s3", "imgur"]),
    help: "where the pictures come from")
  static let stages = Field<[JSONNode]>(
    "stages", type: .stages, absent: nil, help: "the chain, in order; each an object with \"stage\" and its settings"
  ) { node, _ in node.arrayValue }
  static let run = Field<Settings?>.optionalObject(
    "run", ObjectShape([Run.onError, Run.deadline, Run.itemDeadline, Run.graceTime, Run.timeZone]),
    help: "how the run behaves")
  static let limits = Field<Settings?>.optionalObject(
    "limits",
    ObjectShape([
      Limits.maxPixels, Limits.maxSide, Limits.maxFrames, Limits.maxProfileBytes, Limits.maxMetadataBytes,
      Limits.maxExpansion, Limits.memory, Limits.results,
    ]),
    help: "what a picture may ask of this machine; checked from its header, before any pixel")
  static let state = Field<String?>.text(
    "state", .path,
    help:
      "the folder that keeps what runs must remember; .pipeline beside the job file when absent. --state replaces it"
  )
  static let plugins = Field<[String]>.texts(
    "plugins", .path, count: 0...100, default: [],
    help:
      "shared libraries with stages, each opened by its path: their code runs in this program. --plugin adds more"
  )
  static let portable = Field<Bool>.boolean(
    "portable", default: false,
    help: "outputs whose names differ only in case or Unicode form are an error instead of a warning")

  public enum Input {
    static let files = Field<[String]?>(
      "files", type: .array(.text(.path), count: 1...100_000), absent: .some(nil),
      help: "paths and globs: * ? […] {a,b} ** ; endings match without regard to case"
    ) { node, _ in node.arrayValue.map { .some($0.compactMap(\.stringValue).map(Template.literal)) } }
    static let directory = Field<String?>.text("directory", .path, help: "a folder; its pictures, by their endings")
    static let list = Field<String?>.text(
      "list", .path,
      help: "a file with one path or address a line, paths relative to that file; \"-\" reads standard input")
    static let manifest = Field<String?>.text(
      "manifest", .path,
      help:
        "a CSV file with a header, or JSON lines (.jsonl); the path or address stands in column path, file or input, and each column becomes ${item.NAME}"
    )
    static let recursive = Field<Bool>.boolean(
      "recursive", default: true, help: "whether a directory's subfolders are read too")
    static let all = Field<Bool>.boolean(
      "all", default: false,
      help: "whether files of a directory and keys of a bucket without a known ending are taken too")
    static let allowEmpty = Field<Bool>.boolean("allowEmpty", default: false, help: "whether no input at all is fine")
  }

  public enum Run {
    static let onError = Field<OnError>.choice("onError", default: .continue, help: "what goes on after an item failed")
    static let deadline = Field<Double?>.number(
      "deadline", in: 0.001...1e9, unit: "seconds",
      help: "after this long no further item is started, and the run ends within graceTime with exit 5")
    static let itemDeadline = Field<Double>.number(
      "itemDeadline", in: 0.001...1e9, default: 300, unit: "seconds",
      help: "how long one item may be worked on, waiting not counted; it then fails with deadline")
    static let graceTime = Field<Double>.number(
      "graceTime", in: 0...1e9, default: 10, unit: "seconds",
      help: "how long items in flight may still take after a signal or the run's deadline")
    static let timeZone = Field<String>.text(
      "timeZone", default: "UTC", help: "time zone of ${run.date}, such as Europe/Berlin")
  }

  public enum Limits {
    static let maxPixels = Field<Int>.integer(
      "maxPixels", in: 1...10_000_000_000, default: 120_000_000, unit: "pixels", help: "width × height of an input")
    static let maxSide = Field<Int>.integer(
      "maxSide", in: 1...10_000_000, default: 65_500, unit: "pixels", help: "the longer side of an input")
    static let maxFrames = Field<Int>.integer(
      "maxFrames", in: 1...1_000_000, default: 1_000, help: "frames or pages of an input")
    static let maxProfileBytes = Field<Int>.integer(
      "maxProfileBytes", in: 1...1_073_741_824, default: 16_777_216, unit: "bytes",
      help: "an input's colour profile, unpacked")
    static let maxMetadataBytes = Field<Int>.integer(
      "maxMetadataBytes", in: 1...1_073_741_824, default: 16_777_216, unit: "bytes",
      help: "an input's EXIF, XMP, IPTC, comments and text together, unpacked")
    static let maxExpansion = Field<Int>.integer(
      "maxExpansion", in: 1...1_000_000_000, default: 10_000,
      help: "bytes of pixels that one byte of an input may stand for; matters above 64 MiB of pixels")
    static let memory = Field<Int?>.integer(
      "memory", in: 16_777_216...1_000_000_000_000_000, unit: "bytes",
      help:
        "estimated bytes that items in flight may hold together; when absent, half of what is free under the limits of machine, control group and `ulimit -v`. An item that alone asks for more runs alone"
    )
    static let results = Field<Int>.integer(
      "results", in: 0...1_000_000_000_000_000, default: 2_147_483_648, unit: "bytes",
      help: "results of costly stages kept in the state folder, such as masks; those not used for longest go first")
  }

  /// Every top-level field.
  public static let shape = ObjectShape([
    schema, version, name, vars, plugins, input, stages, run, limits, network, budget, state, onSuccess, portable,
  ])

  /// The JSON Schema of a job file, with the registry's stages.
  public static func schema(_ registry: StageRegistry) -> JSONText {
    // Editors offer the examples where a stage is to be written, and its name's explanation in the list of names.
    let examples = registry.all.compactMap { $0.spec.examples.first }.compactMap { example in
      StrictJSON.parse(SourceFile(name: "example", text: Array(example.utf8))).root.map { JSONText($0.value) }
    }
    let stage: JSONText = .object([
      ("type", "object"), ("description", "One stage of the chain: its name, and its settings."),
      ("examples", .array(examples)), ("required", .array(["stage"])),
      (
        "properties",
        .object([
          (
            "stage",
            .object([
              ("description", "The stage's name."), ("enum", .array(registry.all.map { .string($0.spec.name) })),
              (
                "enumDescriptions",
                .array(registry.all.map { .string($0.spec.summary.replacing("`", with: "")) })
              ),
            ])
          )
        ])
      ),
      (
        "allOf",
        .array(
          registry.all.map { descriptor in
            .object([
              (
                "if",
                .object([
                  ("properties", .object([("stage", .object([("const", .string(descriptor.spec.name))]))])),
                  ("required", .array(["stage"])),
                ])
              ),
              ("then", .object([("$ref", .string("#/$defs/\(descriptor.spec.name)"))])),
            ])
          })
      ),
    ])
    // No stage can have a name with a colon.
    let reference: JSONText = .object([("$ref", "#/$defs/job:stage")])
    let body = FieldPages.objectSchema(shape, stages: reference)
    guard case .object(let members) = body else { return body }
    return .object(
      [
        ("$schema", "https://json-schema.org/draft/2020-12/schema"),
        ("title", "pipeline job file"),
      ] + members + [
        (
          "$defs",
          .object(
            [("job:stage", stage), (Condition.schemaName, Condition.schema)]
              + registry.all.map { ($0.spec.name, $0.spec.schema(stages: reference)) })
        )
      ])
  }
}
