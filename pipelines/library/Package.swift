// swift-tools-version: 6.1
import PackageDescription

let package = Package(
  name: "cutout",
  dependencies: [.package(name: "pipeline", path: "../..")],
  targets: [
    .executableTarget(
      name: "cutout",
      dependencies: [
        .product(name: "Engine", package: "pipeline"), .product(name: "Stages", package: "pipeline"),
        .product(name: "PipelineKit", package: "pipeline"), .product(name: "JobSyntax", package: "pipeline"),
      ])
  ],
  swiftLanguageModes: [.v6]
)
