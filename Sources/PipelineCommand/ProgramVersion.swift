/// The program's version, for `--version`, reports and `doctor`.
public enum ProgramVersion {
  public static let text = "0.1.0"
}
