/// The program's version, for `--version`, reports and `doctor`.
public enum ProgramVersion {
  public static let text = "0.1.0"
  /// The day of that version, for the manual page.
  static let date = "2026-12-01"
}
