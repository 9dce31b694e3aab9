extension ModelRecipe {
  /// Whether the model could be used: that its file is there and is the one the recipe names, and OpenVINO too. Costs
  /// the time to read the file; compiles nothing.
  ///
  /// Throws `modelMissing`, `checksum`, `runtimeMissing` or `runtimeVersion`.
  public func checkInstallation(home: PipelineHome = .current) throws(InferenceError) {
    let file = try ModelCatalogue.locate(self, home: home)
    try check(try FileDigest.ofFile(file), of: file)
    _ = try Runtime.open(try home.locateRuntime())
  }
}
