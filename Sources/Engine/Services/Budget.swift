import JobSyntax
import PipelineKit

/// What a job may spend, in the credits of the services it pays.
public struct Budget: Sendable, Hashable {
  /// In one run.
  public var credits: Double?
  /// Of one day, and of one month, in the run's time zone, over all runs that keep their state in the same place.
  public var perDay: Double?
  public var perMonth: Double?

  public init(credits: Double? = nil, perDay: Double? = nil, perMonth: Double? = nil) {
    self.credits = credits
    self.perDay = perDay
    self.perMonth = perMonth
  }

  /// Whether it needs to know what other runs have spent.
  public var spansRuns: Bool { perDay != nil || perMonth != nil }
}

extension JobSpec {
  public enum Spending {
    static let credits = Field<Double?>.number(
      "credits", in: 0...1e9, unit: "credits", help: "what one run may spend")
    static let perDay = Field<Double?>.number(
      "perDay", in: 0...1e9, unit: "credits",
      help: "what all runs of a day may spend, in run.timeZone; with shards it needs --budget-ledger")
    static let perMonth = Field<Double?>.number(
      "perMonth", in: 0...1e9, unit: "credits",
      help: "what all runs of a calendar month may spend, in run.timeZone; with shards it needs --budget-ledger")
  }

  static let budget = Field<Settings?>.optionalObject(
    "budget",
    ObjectShape(
      [Spending.credits, Spending.perDay, Spending.perMonth], atLeastOne: ["credits", "perDay", "perMonth"]),
    help: "what may be paid to services, in their credits; without it no call that costs is made")

  public enum Network {
    static let caBundle = Field<String?>.text(
      "caBundle", .path, help: "a PEM file of the authorities to trust, instead of the system's")
    static let proxy = Field<String?>.text(
      "proxy", help: "the proxy's address, instead of the environment's (https_proxy, http_proxy); \"\" for none")
    static let noProxy = Field<String?>.text(
      "noProxy",
      help: "hosts reached without the proxy, with commas between them, instead of the environment's no_proxy"
    )
    static let requests = Field<Int>.integer(
      "requests", in: 1...256, default: 8, help: "exchanges of one stage at once, where the stage does not say")
    static let maxWait = Field<Double>.number(
      "maxWait", in: 0...86_400, default: 120, unit: "seconds",
      help:
        "the longest that a service may ask to wait; beyond, what is left is for the next run, and this one ends with "
        + "exit code 5")
  }

  static let network = Field<Settings?>.optionalObject(
    "network",
    ObjectShape([Network.caBundle, Network.proxy, Network.noProxy, Network.requests, Network.maxWait]),
    help: "how services are reached")

  /// What the job says about the network.
  static func readNetwork(_ settings: Settings, folder: PathBytes) -> NetworkOptions {
    var options = NetworkOptions()
    guard let network = settings[network] else { return options }
    options.caBundle = network[Network.caBundle].map { folder.joining(PathBytes($0)).normalised }
    options.proxy = network[Network.proxy]
    options.noProxy = network[Network.noProxy]
    options.requests = network[Network.requests]
    options.maxWait = network[Network.maxWait]
    return options
  }

  static func readBudget(_ settings: Settings) -> Budget? {
    settings[budget].map {
      Budget(
        credits: $0[Spending.credits], perDay: $0[Spending.perDay], perMonth: $0[Spending.perMonth])
    }
  }
}
