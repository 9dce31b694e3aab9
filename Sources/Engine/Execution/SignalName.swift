import Glibc

/// What signals are called.
public enum SignalName {
  private static let names: [Int32: String] = [
    SIGHUP: "SIGHUP", SIGINT: "SIGINT", SIGQUIT: "SIGQUIT", SIGILL: "SIGILL", SIGTRAP: "SIGTRAP", SIGABRT: "SIGABRT",
    SIGBUS: "SIGBUS", SIGFPE: "SIGFPE", SIGKILL: "SIGKILL", SIGSEGV: "SIGSEGV", SIGTERM: "SIGTERM", SIGSYS: "SIGSYS",
    SIGXCPU: "SIGXCPU",
  ]

  /// `SIGSEGV`; `signal 40` for one without a name of its own.
  public static func text(_ number: Int32) -> String { names[number] ?? "signal \(number)" }
}
