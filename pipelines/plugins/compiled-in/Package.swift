// swift-tools-version: 6.1
import PackageDescription

// The program with one more stage. `swift build` here makes a `pipeline-soften` that has all that `pipeline` has.
let package = Package(
  name: "pipeline-soften",
  dependencies: [.package(name: "pipeline", path: "../../..")],
  targets: [
    .executableTarget(
      name: "pipeline-soften",
      dependencies: ["PipelineKit", "Imaging", "Stages", "PipelineCommand"].map {
        .product(name: $0, package: "pipeline")
      })
  ],
  swiftLanguageModes: [.v6]
)
