/// What to try for a kind of failure, where the failure itself does not say.
enum FailureHint {
  static func text(for code: String) -> String? { texts[code] }

  private static let texts: [String: String] = [
    "child-start": "the machine may be out of processes or memory; run again when it has room",
    "condition-value":
      "a manifest's column that a condition compares must hold a number or a word of the kind it asks for",
    "crash": "keep the file and report it; all others are done without it",
    "damaged": "get the file anew; \"onDamage\": \"warn\" in \"decode\" uses what can be read",
    "deadline": "run.itemDeadline sets the limit",
    "deferred": "run again when the files are whole, or the network is there",
    "empty": "get the file anew, or leave files of no size out of the inputs",
    "encoder": "look at the settings of \"encode\", or take another format",
    "exec-failed": "run the program by hand on one of the pictures; the report has all it said",
    "exec-signal": "run the program by hand on one of the pictures; the report has all it said",
    "fetch-missing": "look at the address in a browser: it may have moved, or need a login",
    "fetch-refused": "the job says where pictures may be fetched from: see \"network\" in the README",
    "font-missing": "`fc-list` names the fonts of this machine; a file's path is a font too",
    "io": "look at the file's permissions and at the disk that it is on",
    "limit": "raise the limit under \"limits\" in the job if such pictures are meant",
    "memory": "run with fewer workers, --jobs 1, or give the process more memory",
    "output-denied": "give the user that runs this the right to write there",
    "output-failed": "look at the disk that the output goes to",
    "output-folder": "something that is no folder has the name of one; move it, or change \"to\"",
    "output-is-folder": "a folder has the output's name; move it, or change \"to\"",
    "output-is-special": "the output's name is a device or a pipe; change \"to\"",
    "output-name": "change \"to\" so that it gives a name that the file system takes",
    "output-name-too-long": "shorten \"to\", such as by ${item.index} in the place of ${item.stem}",
    "output-read-only": "write to another disk, or mount this one for writing",
    "s3-bucket": "look at the bucket's name, its region and who may read or write it",
    "service-answer": "the service may have changed or stand behind a proxy; look at what it answered in the report",
    "service-failed": "look at the network, the proxy and the service's own pages; the next run tries again",
    "service-too-large": "make pictures smaller with \"resize\" before",
    "template-value": "the input lacks what a template names: look at the manifest's columns",
    "too-large": "make the picture smaller with \"resize\", or lower \"minQuality\"",
    "unknown": "settle what became of the requests: `pipeline receipts resolve`",
    "unsupported": "convert such files first, or leave them out of the inputs",
  ]
}
