import Imaging
import JobSyntax
import TestSupport
import Testing

/// The page in a browser: what it shows, what its controls do, what it asks for.
@Suite(.enabled(if: Browser.program != nil, "there is no Chromium here (PIPELINE_CHROMIUM)"), .serialized)
struct HTMLReportBrowserTests {
  private static func open(_ browser: Browser, _ scene: Scene) throws {
    _ = scene.run("run", "job.json", "--html", "report.html")
    try browser.open("file://" + scene.folder["report.html"])
  }

  private static func text(_ browser: Browser, _ expression: String) throws -> String {
    try browser.evaluate(expression).stringValue ?? "not a text"
  }

  private static func number(_ browser: Browser, _ expression: String) throws -> Double {
    try browser.evaluate(expression).numberValue?.double ?? .nan
  }

  /// The names on the cards, as they are shown and in their order.
  private static let shown = """
    JSON.stringify([...document.querySelectorAll(".card")].sort((a, b) => \
    a.getAttribute("aria-posinset") - b.getAttribute("aria-posinset")).map(card => \
    card.querySelector(".name").innerText))
    """

  private static func names(_ browser: Browser) throws -> [String] {
    try json(text(browser, shown)).arrayValue?.compactMap(\.stringValue) ?? []
  }

  /// Whether a dialog is.
  private static func isOpen(_ browser: Browser, _ id: String) throws -> Bool {
    try browser.evaluate("document.getElementById('\(id)').open").boolValue ?? false
  }

  /// Chooses in a control as a person would have.
  private static func set(_ browser: Browser, _ control: String, _ value: String) throws {
    try browser.evaluate(
      """
      { const control = document.getElementById("\(control)"); control.value = "\(value)";
        control.dispatchEvent(new Event("\(control == "search" ? "input" : "change")", { bubbles: true })); }
      """)
  }

  @Test func `The page opens from a file and asks for nothing`() throws {
    let (browser, scene) = (try Browser(), try HTMLReportTests.scene())
    try Self.open(browser, scene)
    #expect(browser.complaints == [])
    #expect(try Self.text(browser, "document.title") == "scene: report")
    #expect(try Self.names(browser).count == 8)
    #expect(try Self.names(browser).contains("in/x⟨U+202E⟩gpj.exe.jpg"))
    #expect(try Self.number(browser, "document.querySelectorAll('main').length") == 1)
    // Every picture that is on the page is there.
    let pictures = "[...document.querySelectorAll('.card img')]"
    try browser.evaluate("Promise.all(\(pictures).map(picture => picture.decode()))")
    #expect(try Self.number(browser, "\(pictures).filter(picture => picture.naturalWidth > 0).length") == 14)
    let other = browser.requests.filter { !$0.hasPrefix("data:") }
    #expect(other == ["file://" + scene.folder["report.html"]])
    // An injected script, handler or address is refused by the policy.
    try browser.evaluate(
      """
      document.body.insertAdjacentHTML("beforeend", "<img src=https://example.invalid/x onerror=window.taken=1>");
      { const script = document.createElement("script");
        script.textContent = "window.taken=1";
        document.body.append(script); }
      new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))
      """)
    #expect(try Self.text(browser, "String(window.taken)") == "undefined")
    #expect(browser.complaints.contains { $0.contains("Content Security Policy") })
  }

  @Test func `Pictures are filtered, searched and sorted`() throws {
    let browser = try Browser()
    let scene = try Scene()
    for (index, name) in ["b", "a10", "a2", "c"].enumerated() {
      let bytes = (0..<64 * 64 * 3).map { UInt8(truncatingIfNeeded: $0 * (index * index * 7 + 1) >> 3) }
      let picture = try Image(width: 64, height: 64, bands: 3, bytes: bytes).encoded(.png(.init(compression: 0)))
      scene.folder.write(picture.array, to: "in/\(name).png")
    }
    scene.folder.write("none", to: "in/bad.png")
    scene.job(encode: #"{ "stage": "encode", "format": "png" }"#)
    try Self.open(browser, scene)
    #expect(try Self.names(browser) == ["in/a10.png", "in/a2.png", "in/b.png", "in/bad.png", "in/c.png"])
    #expect(try Self.text(browser, "document.getElementById('shown').textContent") == "5 pictures")

    try Self.set(browser, "sort", "name")
    #expect(try Self.names(browser) == ["in/a2.png", "in/a10.png", "in/b.png", "in/bad.png", "in/c.png"])
    try browser.evaluate("document.getElementById('direction').click()")
    #expect(try Self.names(browser).first == "in/c.png")
    try browser.evaluate("document.getElementById('direction').click()")

    // By the report's own numbers, largest first; what has no result comes last.
    try Self.set(browser, "sort", "size")
    let bySize = ["a10", "a2", "b", "c"].map { ("in/\($0).png", scene.folder.read("out/\($0).png")?.count ?? 0) }
    let expected = bySize.sorted { $0.1 > $1.1 || ($0.1 == $1.1 && $0.0 < $1.0) }.map(\.0)
    #expect(try Self.names(browser) == expected + ["in/bad.png"])

    try Self.set(browser, "sort", "order")
    try Self.set(browser, "search", "A1")
    #expect(try Self.names(browser) == ["in/a10.png"])
    #expect(try Self.text(browser, "document.getElementById('shown').textContent") == "1 of 5 pictures")
    try Self.set(browser, "search", "nothing")
    #expect(try Self.text(browser, "document.querySelector('.nothing').textContent") == "No picture is like that.")
    try Self.set(browser, "search", "")
    try Self.set(browser, "status", "failed")
    #expect(try Self.names(browser) == ["in/bad.png"])
    try browser.evaluate("document.getElementById('warned').click()")
    #expect(try Self.names(browser) == [])
    #expect(browser.complaints == [])
  }

  @Test func `The handle follows mouse and keys`() throws {
    let (browser, scene) = (try Browser(), try Scene(pictures: 2))
    scene.job()
    try Self.open(browser, scene)
    try browser.evaluate("document.querySelector('.card').scrollIntoView({ block: 'center' })")
    let box = "document.querySelector('.card .pair').getBoundingClientRect()"
    let (x, y) = (try Self.number(browser, "\(box).left"), try Self.number(browser, "\(box).top"))
    let width = try Self.number(browser, "\(box).width")
    let handle = "document.querySelector('.card .handle')"
    let now = "Number(\(handle).getAttribute('aria-valuenow'))"
    #expect(try Self.number(browser, now) == 50)
    try browser.drag(from: (x + width / 2, y + 90), to: (x + width / 4, y + 90))
    #expect(try Self.number(browser, now) == 25)
    #expect(
      try Self.text(browser, "getComputedStyle(document.querySelector('.card .before')).clipPath").contains("75%"))
    #expect(try Self.text(browser, "document.activeElement.getAttribute('role')") == "slider")
    try browser.press("ArrowRight")
    #expect(try Self.number(browser, now) == 27)
    try browser.press("PageUp")
    #expect(try Self.number(browser, now) == 37)
    try browser.press("End")
    #expect(try Self.text(browser, "\(handle).getAttribute('aria-valuetext')") == "100 % before")
    try browser.press("ArrowRight")
    #expect(try Self.number(browser, now) == 100)
    try browser.press("Home")
    #expect(try Self.number(browser, now) == 0)
    // The pair beside it has not moved.
    #expect(try Self.number(browser, "document.querySelectorAll('.handle')[1].getAttribute('aria-valuenow') | 0") == 50)
    try Self.set(browser, "background", "black")
    #expect(
      try Self.text(browser, "getComputedStyle(document.querySelector('.card .pair')).backgroundColor")
        == "rgb(0, 0, 0)")
    #expect(browser.complaints == [])
  }

  @Test func `Keys reach everything`() throws {
    let (browser, scene) = (try Browser(), try HTMLReportTests.scene())
    try Self.open(browser, scene)
    try browser.press("/")
    #expect(try Self.text(browser, "document.activeElement.id") == "search")
    try browser.type("gpj")
    #expect(try Self.names(browser) == ["in/x⟨U+202E⟩gpj.exe.jpg"])
    try browser.evaluate("document.getElementById('search').value = ''; document.activeElement.blur()")
    try browser.press("f")
    #expect(try Self.names(browser) == ["in/broken.jpg"])
    try browser.press("f")
    #expect(try Self.names(browser).count == 8)
    try browser.press("?")
    #expect(try Self.isOpen(browser, "help"))
    try browser.press("Escape")
    #expect(try !Self.isOpen(browser, "help"))
    try browser.press("j")
    try browser.press("j")
    #expect(try Self.number(browser, "document.activeElement.closest('.card').getAttribute('aria-posinset') | 0") == 2)
    try browser.press("Enter")
    #expect(try Self.isOpen(browser, "detail"))
    let names = try Self.names(browser)
    #expect(try Self.text(browser, "document.getElementById('detail-name').innerText") == names[1])
    try browser.evaluate("document.activeElement.blur()")
    try browser.press("ArrowRight")
    #expect(try Self.text(browser, "document.getElementById('detail-name').innerText") == names[2])
    #expect(try Self.text(browser, "location.hash") == "#picture-2")
    try browser.press("Escape")
    #expect(try !Self.isOpen(browser, "detail"))
    // From the list of failures to the picture.
    try browser.evaluate("document.querySelector('.failure a').click()")
    try browser.evaluate("new Promise(done => setTimeout(done, 0))")
    #expect(try Self.text(browser, "document.getElementById('detail').innerText").contains("broken.jpg"))
    #expect(try Self.text(browser, "document.getElementById('detail').innerText").contains("unsupported"))
    #expect(browser.complaints == [])
  }

  /// Texts whose contrast with what is behind them is below 4.5 (WCAG 2.2, 1.4.3), as JSON.
  private static let faint = """
    (() => {
      const parse = text => { const n = text.match(/[\\d.]+/g).map(Number); return [n[0], n[1], n[2], n[3] ?? 1]; };
      const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
      const light = c => [0, 1, 2].map(i => c[i] / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
      const found = [];
      const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !element.getClientRects().length) continue;
        const layers = [];
        for (let e = element; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
        let back = layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
        const front = over(parse(getComputedStyle(element).color), back);
        const [a, b] = [light(front), light(back)];
        const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        if (ratio < 4.5) found.push(walker.currentNode.data.trim() + ": " + ratio.toFixed(2));
      }
      return JSON.stringify(found);
    })()
    """

  /// What a person must be able to name.
  private static let controls: Set<String> = [
    "button", "link", "textbox", "searchbox", "combobox", "checkbox", "slider", "image", "dialog", "listbox",
  ]

  @Test func `Light, dark and narrow, all can be read and named`() throws {
    let (browser, scene) = (try Browser(), try HTMLReportTests.scene())
    try Self.open(browser, scene)
    var backgrounds: [String] = []
    for isDark in [false, true] {
      try browser.setDark(isDark)
      backgrounds.append(try Self.text(browser, "getComputedStyle(document.body).backgroundColor"))
      for width in [1280, 400] {
        try browser.resize(width: width, height: 900)
        #expect(try Self.text(browser, Self.faint) == "[]", "\(isDark ? "dark" : "light"), \(width)")
        #expect(try Self.number(browser, "document.documentElement.scrollWidth") <= Double(width))
        try browser.evaluate("location.hash = '#picture-1'; new Promise(done => setTimeout(done, 0))")
        #expect(try Self.text(browser, Self.faint) == "[]", "opened, \(isDark ? "dark" : "light"), \(width)")
        try browser.evaluate("document.getElementById('detail').close()")
      }
    }
    #expect(backgrounds[0] != backgrounds[1])
    try browser.resize(width: 1280, height: 900)
    try browser.evaluate("document.getElementById('list').scrollIntoView(); new Promise(requestAnimationFrame)")
    try browser.evaluate("new Promise(requestAnimationFrame)")
    try browser.send("Accessibility.enable")
    var named = 0
    for node in try browser.send("Accessibility.getFullAXTree")["nodes"]?.arrayValue ?? []
    where node["ignored"]?.boolValue == false {
      guard let role = node["role"]?["value"]?.stringValue, Self.controls.contains(role) else { continue }
      let name = node["name"]?["value"]?.stringValue ?? ""
      #expect(!name.isEmpty, "a \(role) has no name")
      named += 1
    }
    #expect(named > 30)
    // The focus can be seen.
    try browser.press("Tab")
    #expect(try Self.number(browser, "parseFloat(getComputedStyle(document.activeElement).outlineWidth)") >= 2)
  }

  @Test func `Ten thousand pictures open and answer within a second`() throws {
    let (browser, scene) = (try Browser(), try Scene(pictures: 40))
    var items: [JSONText] = []
    for index in 0..<10_000 {
      // Of most there is no file: making 20,000 small pictures is not what this is about.
      let name = index % 50 == 0 ? "in/p\(index / 50 % 40 < 10 ? "0" : "")\(index / 50 % 40).jpg" : "gone/\(index).jpg"
      let isFailed = index % 1000 == 7
      items.append(
        .object(
          [
            ("index", .integer(index)), ("input", .string(name)), ("status", isFailed ? "failed" : "done"),
            ("outputs", []), ("stages", [["name": "decode", "milliseconds": .number(Double(index % 97) + 0.5)]]),
            ("warnings", []),
          ] + (isFailed ? [("error", ["code": "damaged", "stage": "decode", "message": "it is damaged"])] : [])))
    }
    let run: JSONText = [
      "job": "many", "exitCode": 1, "wallSeconds": 60, "counts": ["done": 9990, "failed": 10],
    ]
    scene.folder.write(JSONText.object([("run", run), ("items", .array(items))]).rendered(), to: "report.json")
    let result = scene.run("report", "html", "report.json", "--output", "report.html")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(result.error.contains("with the folder report.files"))

    // The first opening warms up the browser.
    for _ in 0..<2 { try browser.open("file://" + scene.folder["report.html"]) }
    let opened = try Self.number(browser, "performance.getEntriesByName('report-first-rows')[0].startTime")
    #expect(opened < 1000)
    let filtered = try browser.evaluate(
      """
      new Promise(done => {
        const search = document.getElementById("search"), start = performance.now();
        search.value = "in/p07";
        search.dispatchEvent(new Event("input"));
        requestAnimationFrame(() => requestAnimationFrame(() =>
          done({ time: performance.now() - start, text: document.getElementById("shown").textContent })));
      })
      """)
    #expect(filtered["text"]?.stringValue == "5 of 10,000 pictures")
    let time = try #require(filtered["time"]?.numberValue?.double)
    #expect(time < 1000)
    // Only what is near the window exists, also at the end.
    try Self.set(browser, "search", "")
    try browser.evaluate("window.scrollTo(0, document.body.scrollHeight / 2); new Promise(requestAnimationFrame)")
    try browser.evaluate("new Promise(requestAnimationFrame)")
    #expect(try Self.number(browser, "document.querySelectorAll('.card').length") < 80)
    try Self.set(browser, "search", "in/p")
    try browser.evaluate("Promise.all([...document.querySelectorAll('.card img')].map(picture => picture.decode()))")
    // Details come from a file beside the page.
    try browser.evaluate("location.hash = '#picture-5007'")
    let detail = try Self.text(
      browser,
      """
      new Promise(done => {
        const box = document.getElementById("detail");
        const look = () => box.innerText.includes("damaged") ? done(box.innerText) : requestAnimationFrame(look);
        look();
      })
      """)
    #expect(detail.contains("gone/5007.jpg"))
    let folder = "file://" + scene.folder.path + "/report."
    #expect(browser.requests.allSatisfy { $0.hasPrefix(folder) || $0.hasPrefix("data:") })
    #expect(browser.complaints == [])

    // Written again, the folder holds one version.
    _ = scene.run("report", "html", "report.json", "--output", "report.html")
    let versions = Set(
      scene.folder.tree().compactMap { path -> Substring? in
        let parts = path.split(separator: "/")
        return parts.first == "report.files" && parts.count > 1 ? parts[1] : nil
      })
    #expect(versions.count == 1)
  }
}
