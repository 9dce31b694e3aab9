"""The HTTP half of the stand-in: connections, requests, answers, and the faults that a test asks for."""

import email.utils
import gzip
import hashlib
import json
import socket
import socketserver
import ssl
import sys
import threading
import time
import traceback
import urllib.parse

import forms

REASONS = {
    200: "OK", 201: "Created", 202: "Accepted", 204: "No Content", 206: "Partial Content", 301: "Moved Permanently",
    302: "Found", 303: "See Other", 304: "Not Modified", 307: "Temporary Redirect", 308: "Permanent Redirect",
    400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 408: "Request Timeout", 409: "Conflict", 411: "Length Required",
    412: "Precondition Failed", 413: "Payload Too Large", 415: "Unsupported Media Type", 425: "Too Early",
    429: "Too Many Requests", 500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway",
    503: "Service Unavailable", 504: "Gateway Timeout", 507: "Insufficient Storage",
}  # fmt: skip

HTML = b"<!DOCTYPE html><html><head><title>Just a moment</title></head><body><h1>Service maintenance</h1></body></html>"


class Closed(Exception):
    """The other side has gone, or sent what is no HTTP."""


class Answer:
    __slots__ = ("status", "headers", "body")

    def __init__(self, status, body=b"", type=None, headers=()):
        self.status = status
        self.headers = list(headers)
        self.body = body
        if type:
            self.headers.insert(0, ("Content-Type", type))

    @staticmethod
    def json(status, value, headers=(), type="application/json"):
        return Answer(status, json.dumps(value, separators=(",", ":")).encode(), type, headers)

    @staticmethod
    def html(status):
        return Answer(status, HTML, "text/html; charset=utf-8")


class Request:
    """One request as it came. Paths and queries are as sent; `fields` and `query_fields` are decoded."""

    def __init__(self, method, target, headers, connection, peer, server):
        self.method = method
        self.target = target
        # As a proxy is asked: then this is that host.
        self.proxied_host = None
        if target.lower().startswith("http://"):
            self.proxied_host, slash, target = target[len("http://") :].partition("/")
            target = slash + target or "/"
        self.path, _, self.query = target.partition("?")
        self.headers = headers
        self.connection = connection
        self.peer = peer
        self.server = server
        self.body = b""
        self.is_chunked = False
        self.received = time.time()
        self._fields = None

    def header(self, name):
        name = name.lower()
        return next((value for key, value in self.headers if key.lower() == name), None)

    @property
    def query_fields(self):
        return forms.urlencoded(self.query)

    def query_value(self, name):
        return next((part.text for part in self.query_fields if part.name == name), None)

    @property
    def kind(self):
        return forms.media_type(self.header("content-type"))[0]

    @property
    def fields(self):
        """The fields of the body in order, by its content type; none for a type that is no form."""
        if self._fields is None:
            kind, parameters = forms.media_type(self.header("content-type"))
            if kind == "multipart/form-data":
                self._fields = forms.multipart(self.body, parameters.get("boundary"))
            elif kind == "application/x-www-form-urlencoded":
                self._fields = forms.urlencoded(self.body)
            elif kind == "application/json":
                self._fields = forms.json_fields(self.body)
            else:
                self._fields = []
        return self._fields

    @property
    def base(self):
        """The address by which the client came."""
        scheme = "https" if self.server.tls else "http"
        return f"{scheme}://{self.header('host') or '127.0.0.1:%d' % self.server.server_address[1]}"

    @property
    def segments(self):
        return [urllib.parse.unquote(piece) for piece in self.path.split("/")[1:]]


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 512

    def __init__(self, application, tls=None):
        super().__init__(("127.0.0.1", 0), Connection)
        self.application = application
        self.tls = tls

    def handle_error(self, request, client_address):
        # Clients that leave are part of the tests; anything else shows on standard error.
        if not isinstance(sys.exc_info()[1], (OSError, Closed)):
            super().handle_error(request, client_address)


class Connection(socketserver.BaseRequestHandler):
    """One connection, kept open as HTTP/1.1 has it."""

    def setup(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.server.tls:
            self.request = self.server.tls.wrap_socket(self.request, server_side=True)
        self.stream = self.request.makefile("rb", 1 << 16)
        self.number = None
        self.ends_in_order = True

    def handle(self):
        try:
            while self.serve_one():
                pass
        except (OSError, ssl.SSLError, Closed):
            pass

    def finish(self):
        try:
            self.stream.close()
            # On a TLS connection this sends the closing alert, without which a client may take an answer for cut off.
            if self.server.tls and self.ends_in_order:
                self.request.settimeout(2)
                self.request.unwrap()
        except (OSError, ValueError):
            pass
        finally:
            self.request.close()

    def line(self):
        line = self.stream.readline(65537)
        if len(line) > 65536:
            raise Closed
        return line

    def serve_one(self):
        line = self.line()
        if not line:
            return False
        words = line.decode("latin-1").split()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self.write(Answer(400, b"bad request line", "text/plain"), None, close=True)
            return False
        headers = []
        while True:
            line = self.line()
            if line in (b"\r\n", b"\n", b""):
                break
            name, colon, value = line.decode("latin-1").rstrip("\r\n").partition(":")
            if not colon:
                raise Closed
            headers.append((name, value.strip(" \t")))
        application = self.server.application
        request = Request(words[0], words[1], headers, self.number, self.client_address[0], self.server)
        is_control = request.path.startswith("/control/")
        if request.method == "CONNECT":
            return self.tunnel(request)
        if self.number is None and not is_control:
            self.number = application.new_connection()
        request.connection = self.number
        close = (request.header("connection") or "").lower() == "close"

        if is_control:
            self.read_body(request)
            answer = application.control(request)
            self.write(answer, request, close=close)
            return not close

        exchange = application.exchange(request)
        drop_at = exchange.drop_at()
        if drop_at is not None:
            self.take(min(drop_at, int(request.header("content-length") or drop_at)))
            exchange.record("dropped while the body came")
            self.reset()
            return False
        early = exchange.before_body()
        if early is not None:
            self.write(early, request, close=True)
            self.drain()
            return False
        if (request.header("expect") or "").lower() == "100-continue":
            self.request.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.read_body(request)
        answer, faults = exchange.answer()
        if faults.get("delay") or exchange.latency:
            time.sleep(faults.get("delay", 0) + exchange.latency)
        if faults.get("drop"):
            if faults["drop"] == "reset":
                self.reset()
            self.ends_in_order = False
            return False
        if faults.get("cut") is not None or faults.get("cutBody") is not None or faults.get("stall"):
            return self.write_faulty(answer, request, faults)
        self.write(answer, request, close=close, chunked=faults.get("chunked", False))
        return not close

    def tunnel(self, request):
        """A proxy's CONNECT: every host is this machine, and its own TLS listener where the port is 443."""
        application = self.server.application
        host, _, port = request.target.rpartition(":")
        port = application.tls_port if port == "443" else int(port) if port.isdigit() else None
        try:
            other = socket.create_connection(("127.0.0.1", port), 5) if port else None
        except OSError:
            other = None
        application.log.add(tunnel_entry(request, 200 if other else 502))
        if other is None:
            self.write(Answer(502, b"no way there", "text/plain"), request, close=True)
            return False
        self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        threading.Thread(target=copied, args=(other, self.request), daemon=True).start()
        copied(self.request, other)
        return False

    def take(self, count):
        data = self.stream.read(count)
        if len(data) < count:
            raise Closed
        return data

    def read_body(self, request):
        encoding = (request.header("transfer-encoding") or "").lower()
        if encoding:
            if encoding != "chunked":
                raise Closed
            request.is_chunked = True
            pieces = []
            while True:
                try:
                    size = int(self.line().split(b";")[0], 16)
                except ValueError:
                    raise Closed from None
                if size == 0:
                    break
                pieces.append(self.take(size))
                self.take(2)
            while self.line() not in (b"\r\n", b"\n", b""):
                pass
            request.body = b"".join(pieces)
            return
        length = request.header("content-length")
        if length is not None:
            if not length.isdigit():
                raise Closed
            request.body = self.take(int(length))

    def rendered(self, answer, request, close, chunked=False):
        headers = list(answer.headers)
        names = {name.lower() for name, _ in headers}
        body = answer.body
        if "date" not in names:
            headers.append(("Date", email.utils.formatdate(usegmt=True)))
        if answer.status not in (204, 304) and not chunked and "content-length" not in names:
            headers.append(("Content-Length", str(len(body))))
        if chunked:
            headers.append(("Transfer-Encoding", "chunked"))
            body = b"".join(b"%x\r\n%s\r\n" % (len(body[i : i + 65536]), body[i : i + 65536])
                            for i in range(0, len(body), 65536)) + b"0\r\n\r\n"  # fmt: skip
        headers.append(("Connection", "close" if close else "keep-alive"))
        head = f"HTTP/1.1 {answer.status} {REASONS.get(answer.status, 'Answer')}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
        if answer.status in (204, 304) or (request is not None and request.method == "HEAD"):
            body = b""
        return head.encode("latin-1"), body

    def write(self, answer, request, close, chunked=False):
        head, body = self.rendered(answer, request, close, chunked)
        if len(body) < 65536:
            self.request.sendall(head + body)
        else:
            self.request.sendall(head)
            self.request.sendall(body)

    def write_faulty(self, answer, request, faults):
        head, body = self.rendered(answer, request, close=False)
        whole = head + body
        stall = faults.get("stall")
        if stall:
            after = len(head) + int(stall.get("after", 0))
            self.request.sendall(whole[:after])
            time.sleep(float(stall["seconds"]))
            self.request.sendall(whole[after:])
            return True
        count = faults["cut"] if faults.get("cut") is not None else len(head) + faults["cutBody"]
        self.request.sendall(whole[: int(count)])
        # Not a reset: it may take back what was sent just before. On TLS the closing alert is missing.
        self.ends_in_order = False
        self.request.shutdown(socket.SHUT_WR)
        self.drain()
        return False

    def reset(self):
        """Lets the connection end with RST."""
        self.ends_in_order = False
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")

    def drain(self):
        """Reads on for a moment, so that the client gets the answer before it learns that nobody reads any more."""
        self.request.settimeout(2)
        try:
            self.request.shutdown(socket.SHUT_WR)
            end = time.monotonic() + 2
            while time.monotonic() < end and self.request.recv(1 << 16):
                pass
        except OSError:
            pass


def copied(source, sink):
    """Hands on what comes until it ends."""
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def tunnel_entry(request, status):
    return {
        "service": "proxy", "key": request.target, "method": request.method, "target": request.target,
        "path": request.target, "query": "", "headers": [list(pair) for pair in request.headers], "connection": None,
        "time": request.received, "length": 0, "sha256": hashlib.sha256(b"").hexdigest(), "chunked": False,
        "fields": [], "status": status, "fate": "answered", "charged": 0, "picture": None, "remarks": [],
        "proxied": request.target,
    }  # fmt: skip


class Exchange:
    """One request on its way through a service, with the script entry that applies to it, if any."""

    def __init__(self, application, request):
        self.application = application
        self.request = request
        self.service = application.service_of(request)
        self.rule = None
        self.remarks = []
        self.entry = None
        self.charged = 0
        self.picture = None

    @property
    def latency(self):
        return self.application.settings[self.service.name].get("latency", 0)

    def remark(self, text):
        """Notes what the service takes, but its page advises against."""
        if text not in self.remarks:
            self.remarks.append(text)

    def take_rule(self, early):
        if self.rule is None:
            self.rule = self.application.scripts.take(self.service, self.request, early)
        return self.rule

    def drop_at(self):
        rule = self.take_rule(early=True)
        return rule.get("dropAt") if rule else None

    def before_body(self):
        answer = self.service.before_body(self)
        if answer is not None:
            self.record(None, answer)
        return answer

    def answer(self):
        rule = self.take_rule(early=False) or {}
        answer = None
        is_canned = any(name in rule for name in ("status", "shape", "html", "to"))
        if self.request.header("expect"):
            self.remark("Expect header sent")
        try:
            if not is_canned or rule.get("process"):
                answer = self.service.answer(self)
            if is_canned:
                answer = self.canned(rule)
        except forms.Malformed as error:
            self.remark(str(error))
            answer = self.service.malformed(self, str(error))
        except Exception:
            # A fault of the stand-in's own, or a script entry that makes no sense: it must not pass for a service's.
            answer = Answer(500, ("stand-in: " + traceback.format_exc()).encode(), "text/plain")
            self.remark("stand-in broke: " + traceback.format_exc(limit=-1))
        if rule and not is_canned:
            self.amend(answer, rule)
        self.record("dropped" if rule.get("drop") else None, answer)
        return answer, rule

    def canned(self, rule):
        if "shape" in rule:
            answer = self.service.shape(rule["shape"], self, rule)
            if "status" in rule:
                answer.status = rule["status"]
        elif "to" in rule:
            answer = Answer(rule.get("status", 302), b"", None, [("Location", rule["to"])])
        elif rule.get("html"):
            answer = Answer.html(rule.get("status", 200))
        else:
            body = rule.get("body", "")
            if "bodyBase64" in rule:
                answer = Answer(rule["status"], forms.strict_base64(rule["bodyBase64"]), rule.get("type"))
            elif isinstance(body, str):
                answer = Answer(rule["status"], body.encode(), rule.get("type", "text/plain"))
            else:
                answer = Answer.json(rule["status"], body, type=rule.get("type", "application/json"))
        self.amend(answer, rule)
        return answer

    def amend(self, answer, rule):
        """Adds what a script entry says of headers and waits."""
        def put(name, value):
            answer.headers = [pair for pair in answer.headers if pair[0].lower() != name.lower()]
            answer.headers.append((name, str(value)))

        now = time.time()
        if rule.get("gzip"):
            answer.body = gzip.compress(answer.body, 6)
            put("Content-Encoding", "gzip")
        if "retryAfter" in rule:
            put("Retry-After", rule["retryAfter"])
        if "retryAfterDate" in rule:
            put("Retry-After", email.utils.formatdate(now + rule["retryAfterDate"], usegmt=True))
        if "reset" in rule:
            is_epoch = rule.get("resetAs", "epoch") == "epoch"
            put(self.service.reset_header, int(now + rule["reset"]) if is_epoch else rule["reset"])
        for name, value in rule.get("headers", {}).items():
            put(name, value)

    def record(self, fate, answer=None):
        request = self.request
        entry = {
            "service": self.service.name,
            "key": self.service.key_of(request),
            "method": request.method,
            "target": request.target,
            "path": request.path,
            "query": request.query,
            "headers": [list(pair) for pair in request.headers],
            "connection": request.connection,
            "time": request.received,
            "length": len(request.body),
            "sha256": hashlib.sha256(request.body).hexdigest(),
            "chunked": request.is_chunked,
            "fields": self.described_fields(),
            "status": answer.status if answer else None,
            "fate": fate or ("scripted" if self.rule else "answered"),
            "charged": self.charged,
            "picture": self.picture,
            "remarks": self.remarks,
            "proxied": request.proxied_host,
        }
        self.application.log.add(entry)

    def described_fields(self):
        try:
            return [part.described() for part in self.request.fields]
        except forms.Malformed:
            return None


class Log:
    """What came, up to a bound, and counts that go on beyond it."""

    def __init__(self, most=50_000):
        self.most = most
        self.lock = threading.Lock()
        self.clear()
        self.is_on = True

    def clear(self):
        self.entries = []
        self.lost = 0
        self.counts = {}
        self.number = 0

    def add(self, entry):
        with self.lock:
            entry["n"] = self.number
            self.number += 1
            counts = self.counts.setdefault(entry["service"], {})
            name = str(entry["status"]) if entry["fate"] in ("answered", "scripted") else "dropped"
            counts[name] = counts.get(name, 0) + 1
            if self.is_on and len(self.entries) < self.most:
                self.entries.append(entry)
            else:
                self.lost += 1

    def select(self, service=None, key=None, path=None):
        with self.lock:
            return [
                entry
                for entry in self.entries
                if (service is None or entry["service"] == service)
                and (key is None or entry["key"] == key)
                and (path is None or entry["path"].startswith(path))
            ]

    def forget(self, key):
        with self.lock:
            self.entries = [entry for entry in self.entries if entry["key"] != key]


class Scripts:
    """What the next answers are to be instead of the usual ones."""

    # What an entry may hold: who it is for, and what happens.
    KNOWN = {
        "service", "key", "method", "path", "times", "after", "process",
        "delay", "drop", "dropAt", "cut", "cutBody", "stall", "chunked",
        "status", "headers", "body", "bodyBase64", "gzip", "type", "html", "shape", "to", "code", "message", "minutes",
        "retryAfter", "retryAfterDate", "reset", "resetAs",
    }  # fmt: skip

    def __init__(self):
        self.lock = threading.Lock()
        self.entries = []

    def add(self, entry):
        unknown = set(entry) - self.KNOWN
        if unknown or "service" not in entry:
            raise ValueError(f"script entry with unknown {sorted(unknown)} or without a service")
        entry = dict(entry)
        entry.setdefault("times", 1)
        with self.lock:
            self.entries.append(entry)

    def take(self, service, request, early):
        """The first entry that fits; entries whose `after` is not over count down and let the next try."""
        if not self.entries:
            return None
        key = service.key_of(request)
        with self.lock:
            for entry in self.entries:
                if early != ("dropAt" in entry) or entry["service"] != service.name:
                    continue
                if entry.get("key") not in (None, key) or entry.get("method") not in (None, request.method):
                    continue
                if not request.path.startswith(entry.get("path", "")):
                    continue
                if entry.get("after", 0) > 0:
                    entry["after"] -= 1
                    continue
                entry["times"] -= 1
                if entry["times"] <= 0:
                    self.entries.remove(entry)
                return dict(entry)
        return None

    def select(self, key=None):
        with self.lock:
            return [dict(entry) for entry in self.entries if key is None or entry.get("key") == key]

    def forget(self, key=None):
        with self.lock:
            self.entries = [entry for entry in self.entries if key is not None and entry.get("key") != key]


class Service:
    """What the services have in common."""

    name = ""
    reset_header = "X-RateLimit-Reset"

    def __init__(self, application):
        self.application = application
        self.lock = threading.RLock()
        self.clear()

    def clear(self):
        """Forgets everything."""

    def forget(self, key):
        """Forgets what belongs to one key."""

    def add_key(self, settings):
        raise ValueError(f"{self.name} has no keys")

    def key_of(self, request):
        return None

    def before_body(self, exchange):
        return None

    def answer(self, exchange):
        raise NotImplementedError

    def malformed(self, exchange, message):
        return Answer(400, message.encode(), "text/plain")

    def shape(self, name, exchange, rule):
        raise ValueError(f"{self.name} has no shape {name}")

    @property
    def settings(self):
        return self.application.settings[self.name]


def tls_context(certificate, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    return context
