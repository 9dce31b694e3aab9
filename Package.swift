// swift-tools-version: 6.1
import PackageDescription

// A target imports only the rows below it (see README, "How it is built"); the build refuses anything else
// because every build of ours passes `--explicit-target-dependency-import-check error`.
let package = Package(
  name: "pipeline",
  products: [
    .executable(name: "pipeline", targets: ["pipeline"]),
    .library(name: "PipelineKit", targets: ["PipelineKit"]),
    .library(name: "Imaging", targets: ["Imaging"]),
    .library(name: "JobSyntax", targets: ["JobSyntax"]),
    .library(name: "Stages", targets: ["Stages"]),
    .library(name: "Engine", targets: ["Engine"]),
    .library(name: "Conformance", targets: ["Conformance"]),
    .library(name: "PipelineCommand", targets: ["PipelineCommand"]),
  ],
  targets: [
    // Row 0: C libraries.
    .systemLibrary(name: "CVips", pkgConfig: "vips", providers: [.apt(["libvips-dev"])]),
    .systemLibrary(name: "CZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"])]),
    .systemLibrary(name: "CDeflate", pkgConfig: "libdeflate", providers: [.apt(["libdeflate-dev"])]),
    .target(name: "CJPEG", linkerSettings: [.linkedLibrary("jpeg")]),
    .systemLibrary(name: "CPango", pkgConfig: "pangocairo", providers: [.apt(["libpango1.0-dev"])]),
    .systemLibrary(name: "CCurl", pkgConfig: "libcurl", providers: [.apt(["libcurl4-openssl-dev"])]),
    .systemLibrary(name: "CCrypto", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"])]),
    .systemLibrary(name: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
    .systemLibrary(name: "CExpat", pkgConfig: "expat", providers: [.apt(["libexpat1-dev"])]),
    .target(name: "COpenVINO", linkerSettings: [.linkedLibrary("dl")]),
    .target(name: "CSystem"),
    .target(name: "CPlugin", linkerSettings: [.linkedLibrary("dl")]),

    // Row 1.
    .target(name: "JobSyntax"),
    .target(name: "Digest", dependencies: ["CCrypto"]),

    // Row 2.
    .target(name: "Imaging", dependencies: ["CVips", "CZlib", "CDeflate", "CJPEG", "CPango", "Digest"]),
    .target(
      name: "Inference", dependencies: ["COpenVINO", "CVips", "JobSyntax", "Digest"],
      resources: [.embedInCode("Catalogue/models.json")]),

    .target(name: "Transport", dependencies: ["CCurl", "CExpat", "Digest", "JobSyntax"]),

    // Row 3.
    .target(
      name: "PipelineKit",
      dependencies: ["Imaging", "Inference", "Transport", "JobSyntax", "Digest", "CSystem"]),

    // Row 4. These meet in PipelineKit and do not import each other.
    .target(
      name: "Stages", dependencies: ["PipelineKit", "Imaging", "Inference", "Transport", "JobSyntax", "Digest"]),
    .target(
      name: "Engine",
      dependencies: ["PipelineKit", "Imaging", "Transport", "JobSyntax", "Digest", "CSystem", "CSQLite"]),

    .target(name: "Pages", dependencies: ["PipelineKit", "Imaging", "JobSyntax", "Digest"]),
    .target(name: "Conformance", dependencies: ["PipelineKit", "Imaging", "JobSyntax", "CSystem"]),
    .target(
      name: "PluginHost", dependencies: ["PipelineKit", "Imaging", "JobSyntax", "Digest", "CPlugin", "CSystem"]),

    // Row 5 and 6.
    .target(
      name: "PipelineCommand",
      dependencies: [
        "Engine", "Pages", "PluginHost", "Conformance", "PipelineKit", "Imaging", "Inference", "Transport", "JobSyntax",
        "CSystem", "Digest",
      ],
      // The jobs that `pipeline init` writes.
      resources: ["cutout", "web", "marketplace", "portrait", "removebg-s3", "imgur"].map {
        .embedInCode("Templates/\($0).json")
      }),
    .executableTarget(name: "pipeline", dependencies: ["PipelineCommand", "Stages", "PipelineKit"]),

    // Measures inference alone against OpenVINO's own tool; see Tests/Benchmarks/inference.sh.
    .executableTarget(name: "inference-bench", dependencies: ["Inference"], path: "Tests/Benchmarks/InferenceBench"),

    // The program with a stage that crashes and hangs, for tests of what a run outlives.
    .executableTarget(
      name: "pipeline-faulty",
      dependencies: ["PipelineCommand", "Engine", "Stages", "PipelineKit", "JobSyntax", "Digest"],
      path: "Tests/Support/Faulty"),

    // The stage of the example package, built here too: from scratch that package takes as long as this one.
    .executableTarget(
      name: "pipeline-example", dependencies: ["PipelineCommand", "Stages", "PipelineKit", "Imaging"],
      path: "pipelines/plugins/compiled-in/Sources/pipeline-soften"),

    // What tests share: temporary folders, pictures made in code, running the program.
    .target(
      name: "TestSupport", dependencies: ["Imaging", "JobSyntax"], path: "Tests/Support",
      exclude: ["Faulty", "peers", "plugins"]),
    .testTarget(name: "JobSyntaxTests", dependencies: ["JobSyntax", "TestSupport"]),
    .testTarget(name: "ImagingTests", dependencies: ["Imaging", "TestSupport"]),
    .testTarget(name: "InferenceTests", dependencies: ["Inference", "Imaging", "TestSupport"]),
    .testTarget(name: "TransportTests", dependencies: ["Transport", "Digest", "TestSupport"]),
    .testTarget(
      name: "PipelineKitTests", dependencies: ["PipelineKit", "Inference", "Transport", "JobSyntax", "TestSupport"]),
    .testTarget(
      name: "StagesTests",
      dependencies: [
        "Stages", "Conformance", "PipelineKit", "Transport", "Imaging", "Inference", "JobSyntax", "Digest",
        "TestSupport",
      ]),
    .testTarget(
      name: "EngineTests",
      dependencies: ["Engine", "Stages", "PipelineKit", "Imaging", "Transport", "JobSyntax", "Digest", "TestSupport"]),
    .testTarget(name: "PagesTests", dependencies: ["Pages", "PipelineKit", "Imaging", "JobSyntax", "TestSupport"]),
    .testTarget(
      name: "CommandTests",
      dependencies: [
        "PipelineCommand", "Conformance", "Engine", "Pages", "Stages", "PipelineKit", "Imaging", "Inference",
        "Transport", "Digest", "JobSyntax", "TestSupport",
      ]),
  ],
  swiftLanguageModes: [.v6]
)

// The tests compute pixels and start the program some thousand times: with this set, as `make test` does, a debug build is
// optimised, and the suite takes half the time. In no other build, as others could not depend on a package with unsafe flags.
if Context.environment["PIPELINE_TEST_BUILD"] == "1" {
  for target in package.targets where [.regular, .executable].contains(target.type) {
    target.swiftSettings = (target.swiftSettings ?? []) + [.unsafeFlags(["-O"], .when(configuration: .debug))]
  }
}
