extension ModelRecipe {
  /// Whether the model could be used: that its file is there and is the one the recipe names, and OpenVINO too. Costs
  /// the time to read the file; compiles nothing.
  ///
  /// Throws `modelMissing`, `checksum`, `runtimeMissing` or `runtimeVersion`.
  ///
  /// - Parameter file: the model's file; nil looks it up by the recipe's file name.
  public func checkInstallation(
    file: String? = nil, home: PipelineHome = .current
  ) throws(InferenceError) {
    let isFromCatalogue = file == nil
    let file = if let file { file } else { try ModelCatalogue.locate(self, home: home) }
    let digest = try FileDigest.ofFile(file)
    try check(digest, of: file)
    if isFromCatalogue, !hasChecksum { try ModelPins(home).check(digest, of: self, file: file) }
    _ = try Runtime.open(try home.locateRuntime())
  }
}
