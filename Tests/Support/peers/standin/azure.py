"""Azure Blob with shared access signatures, as the emulator has it: /ACCOUNT/CONTAINER/BLOB?SAS."""

import base64
import datetime
import hashlib
import hmac
import re
import time
import urllib.parse
import uuid
from email.utils import formatdate

import forms
from web import Answer, Service

MIB = 1 << 20
CODES = {
    "MissingRequiredHeader": 400, "InvalidHeaderValue": 400, "InvalidMd5": 400, "Md5Mismatch": 400,
    "InvalidQueryParameterValue": 400, "InvalidMetadata": 400, "MissingContentLengthHeader": 411,
    "AuthenticationFailed": 403, "AuthorizationPermissionMismatch": 403, "AuthorizationProtocolMismatch": 403,
    "AuthorizationSourceIPMismatch": 403, "AuthorizationResourceTypeMismatch": 403,
    "AuthorizationServiceMismatch": 403, "ContainerNotFound": 404, "BlobNotFound": 404, "BlobAlreadyExists": 409,
    "ConditionNotMet": 412, "LeaseIdMissing": 412, "RequestBodyTooLarge": 413, "InternalError": 500,
    "OperationTimedOut": 500, "ServerBusy": 503, "UnsupportedHttpVerb": 405,
}  # fmt: skip


class Refused(Exception):
    def __init__(self, code, message="", detail=None):
        self.code = code
        self.message = message
        self.detail = detail


class Azure(Service):
    name = "azure"

    def clear(self):
        # Account: its key and containers. Container: blobs by name.
        self.accounts = {}

    def forget(self, key):
        with self.lock:
            self.accounts.pop(key, None)

    def add_key(self, settings):
        name = settings["key"]
        with self.lock:
            account = self.accounts.setdefault(
                name, {"secret": hashlib.sha256(b"azure" + name.encode()).digest(), "containers": {}}
            )
            for container in settings.get("containers", []):
                account["containers"].setdefault(container, {})

    def state(self, key):
        with self.lock:
            account = self.accounts.get(key)
            if account is None:
                return None
            return {
                container: {
                    name: {field: value for field, value in blob.items() if field != "data"} | {"size": blob["size"]}
                    for name, blob in blobs.items()
                }
                for container, blobs in account["containers"].items()
            }

    def key_of(self, request):
        return request.segments[0]

    # --- signatures ---

    def signature(self, account, values, container, blob):
        """HMAC of a service SAS (sr), or of an account SAS (ss, srt), over the decoded parameters."""
        version = values.get("sv", "")

        def value(name):
            return values.get(name, "")

        if "ss" in values:
            lines = [account, value("sp"), value("ss"), value("srt"), value("st"), value("se"), value("sip"),
                     value("spr"), version]  # fmt: skip
            if version >= "2020-12-06":
                lines.append(value("ses"))
            lines.append("")
        else:
            resource = f"/blob/{account}/{container}" + (f"/{blob}" if value("sr") == "b" else "")
            lines = [value("sp"), value("st"), value("se"), resource, value("si"), value("sip"), value("spr"), version,
                     value("sr"), ""]  # fmt: skip
            if version >= "2020-12-06":
                lines.append(value("ses"))
            lines += [value(name) for name in ("rscc", "rscd", "rsce", "rscl", "rsct")]
        secret = self.accounts[account]["secret"]
        digest = hmac.new(secret, "\n".join(lines).encode(), hashlib.sha256).digest()
        return base64.b64encode(digest).decode()

    def minted(self, settings):
        """A SAS for a container, a blob, or with `services` an account."""
        account, container, blob = settings["account"], settings.get("container"), settings.get("blob")
        values = {"sv": settings.get("version", "2021-08-06")}
        if "services" in settings:
            values |= {"ss": settings["services"], "srt": settings.get("types", "o")}
        else:
            values["sr"] = "b" if blob else "c"
        if "start" in settings:
            values["st"] = settings["start"]
        values["se"] = settings.get("expires", "2099-01-01T00:00:00Z")
        values["sp"] = settings.get("permissions", "cw")
        for name, parameter in (("protocol", "spr"), ("ip", "sip")):
            if name in settings:
                values[parameter] = settings[name]
        values["sig"] = self.signature(account, values, container, blob)
        return urllib.parse.urlencode(values, quote_via=urllib.parse.quote, safe="")

    def awkward(self, settings):
        """A SAS whose signature holds + and /, which shows whether a client sends the query byte for byte."""
        for second in range(10_000):
            end = datetime.datetime(2099, 1, 1) + datetime.timedelta(seconds=second)
            query = self.minted(settings | {"expires": end.strftime("%Y-%m-%dT%H:%M:%SZ")})
            signature = query.rpartition("sig=")[2]
            if "%2B" in signature and "%2F" in signature:
                return query
        raise ValueError("no such signature")

    def check(self, request, account, container, blob):
        """What the signature allows; refuses whatever is wrong with it."""
        try:
            parts = request.query_fields
        except forms.Malformed as error:
            raise Refused("InvalidQueryParameterValue", str(error)) from None
        values = {}
        for part in parts:
            if part.name in values:
                raise Refused("InvalidQueryParameterValue", f"{part.name} given twice")
            values[part.name] = part.text
        if request.header("authorization") is not None:
            raise Refused("AuthenticationFailed", "Server failed to authenticate the request.",
                          "Authorization header beside a shared access signature")  # fmt: skip
        if account not in self.accounts:
            raise Refused("AuthenticationFailed", "Server failed to authenticate the request.", "Unknown account")
        for name in ("sv", "se", "sp", "sig"):
            if not values.get(name):
                raise Refused("AuthenticationFailed", "Server failed to authenticate the request.",
                              f"{name} is missing")  # fmt: skip
        # Compared as text: a signature whose + came as a space, or that was encoded twice, differs.
        if not hmac.compare_digest(self.signature(account, values, container, blob).encode(), values["sig"].encode()):
            raise Refused("AuthenticationFailed", "Server failed to authenticate the request.",
                          "Signature did not match")  # fmt: skip
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        if values["se"] < now or values.get("st", "") > now:
            raise Refused("AuthenticationFailed", "Server failed to authenticate the request.",
                          f"Signature not valid in the specified time frame: Expiry [{values['se']}]")  # fmt: skip
        if values.get("spr") == "https" and not request.server.tls:
            raise Refused("AuthorizationProtocolMismatch", "This request is not authorized using this protocol.")
        if "sip" in values and values["sip"] != request.peer:
            raise Refused("AuthorizationSourceIPMismatch", "This request is not authorized from this source IP.")
        if "ss" in values and "b" not in values["ss"]:
            raise Refused("AuthorizationServiceMismatch", "This request is not authorized using this service.")
        if "srt" in values and "o" not in values["srt"]:
            raise Refused("AuthorizationResourceTypeMismatch", "This request is not authorized for this resource.")
        return values

    def need(self, values, permissions):
        if not any(letter in values["sp"] for letter in permissions):
            raise Refused("AuthorizationPermissionMismatch",
                          "This request is not authorized to perform this operation using this permission.")  # fmt: skip

    # --- answers ---

    def error(self, code, message="", detail=None, is_head=False):
        status = CODES[code]
        identifier = str(uuid.uuid4())
        text = f"{message or code}\nRequestId:{identifier}\nTime:{time.strftime('%Y-%m-%dT%H:%M:%S.0000000Z', time.gmtime())}"
        more = f"<AuthenticationErrorDetail>{escaped(detail)}</AuthenticationErrorDetail>" if detail else ""
        body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{escaped(text)}</Message>{more}</Error>'
        headers = [("x-ms-request-id", identifier), ("x-ms-version", "2021-08-06"), ("x-ms-error-code", code)]
        # The body may start with a byte order mark.
        return Answer(status, b"\xef\xbb\xbf" + body.encode(), "application/xml", headers)

    def malformed(self, exchange, message):
        return self.error("InvalidHeaderValue", message)

    def shape(self, name, exchange, rule):
        return self.error(name, rule.get("message", ""))

    def place(self, request):
        account, container, blob = (request.path.split("/", 3)[1:] + ["", ""])[:3]
        return urllib.parse.unquote(account), urllib.parse.unquote(container), urllib.parse.unquote(blob)

    def before_body(self, exchange):
        """What is refused without reading a body, so that a body too large is not read."""
        request = exchange.request
        if request.method != "PUT":
            return None
        if request.header("content-length") is None:
            return self.error("MissingContentLengthHeader", "The content length header is missing.")
        version = (request.query_value("sv") if "sv=" in request.query else None) or "2021-08-06"
        most = 5000 * MIB if version >= "2019-12-12" else 256 * MIB if version >= "2016-05-31" else 64 * MIB
        if int(request.header("content-length")) > self.settings.get("maxBytes", most):
            return self.error("RequestBodyTooLarge", "The request body is too large and exceeds the maximum limit.")
        return None

    def answer(self, exchange):
        request = exchange.request
        account, container, blob = self.place(request)
        try:
            values = self.check(request, account, container, blob)
            blobs = self.accounts[account]["containers"].get(container)
            if blobs is None:
                raise Refused("ContainerNotFound", "The specified container does not exist.")
            if not blob:
                raise Refused("InvalidQueryParameterValue", "No blob is named.")
            with self.lock:
                if request.method == "PUT":
                    return self.put(exchange, values, blobs, blob)
                if request.method in ("GET", "HEAD"):
                    self.need(values, "r")
                    return self.get(request, blobs, blob)
                if request.method == "DELETE":
                    self.need(values, "d")
                    if blob not in blobs:
                        raise Refused("BlobNotFound", "The specified blob does not exist.")
                    del blobs[blob]
                    return Answer(202, headers=self.common())
            raise Refused("UnsupportedHttpVerb", "The resource doesn't support the specified HTTP verb.")
        except Refused as refusal:
            return self.error(refusal.code, refusal.message, refusal.detail)

    def common(self):
        return [("x-ms-request-id", str(uuid.uuid4())), ("x-ms-version", "2021-08-06")]

    def put(self, exchange, values, blobs, name):
        request = exchange.request
        kind = request.header("x-ms-blob-type")
        if kind is None:
            raise Refused("MissingRequiredHeader", "An HTTP header that's mandatory for this request is not specified.")
        if kind != "BlockBlob":
            raise Refused("InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format.")
        old = blobs.get(name)
        if old is not None and "w" not in values["sp"]:
            # With `c` alone blobs are created, never replaced.
            self.need(values, "w")
        self.need(values, "cw")
        if request.header("x-ms-tags") is not None:
            self.need(values, "t")
        if old is not None and request.header("if-none-match") == "*":
            raise Refused("BlobAlreadyExists", "The specified blob already exists.")
        match = request.header("if-match")
        if match is not None and (old is None or match not in ("*", old["etag"])):
            raise Refused("ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.")
        if old is not None and request.header("if-none-match") == old["etag"]:
            raise Refused("ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.")
        if old is not None and old.get("lease") and request.header("x-ms-lease-id") != old["lease"]:
            raise Refused("LeaseIdMissing", "There is currently a lease on the blob and no lease ID was specified.")
        digest = hashlib.md5(request.body).digest()
        given = request.header("content-md5")
        if given is not None:
            wanted = forms.strict_base64(given)
            if wanted is None or len(wanted) != 16:
                raise Refused("InvalidMd5", "The MD5 value specified in the request is invalid.")
            if wanted != digest:
                raise Refused("Md5Mismatch", "The MD5 value specified did not match with the calculated one.")
        metadata = {}
        for header, value in request.headers:
            if header.lower().startswith("x-ms-meta-"):
                key = header[10:]
                if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
                    raise Refused("InvalidMetadata", "The metadata specified is invalid. It has characters not permitted.")
                metadata[key] = value
        stored = {"Content-Type": request.header("x-ms-blob-content-type") or request.header("content-type")
                  or "application/octet-stream"}  # fmt: skip
        for header in ("cache-control", "content-disposition", "content-encoding"):
            value = request.header("x-ms-blob-" + header)
            if value is not None:
                stored["-".join(word.title() for word in header.split("-"))] = value
        exchange.picture = hashlib.sha256(request.body).hexdigest()
        etag = '"0x8D%013X"' % (time.time_ns() & 0xFFFFFFFFFFFFF)
        blobs[name] = {
            "headers": stored, "metadata": metadata, "etag": etag, "sha256": exchange.picture,
            "md5": base64.b64encode(digest).decode(), "size": len(request.body), "modified": formatdate(usegmt=True),
            "tier": request.header("x-ms-access-tier"), "tags": request.header("x-ms-tags"),
            "data": request.body if self.application.keeps else b"",
        }  # fmt: skip
        return Answer(201, headers=[("ETag", etag), ("Last-Modified", blobs[name]["modified"]),
                                    ("Content-MD5", blobs[name]["md5"]), *self.common()])  # fmt: skip

    def get(self, request, blobs, name):
        if name not in blobs:
            raise Refused("BlobNotFound", "The specified blob does not exist.")
        blob = blobs[name]
        headers = [("ETag", blob["etag"]), ("Last-Modified", blob["modified"]), ("Content-MD5", blob["md5"]),
                   ("x-ms-blob-type", "BlockBlob"), *blob["headers"].items(),
                   *((f"x-ms-meta-{key}", value) for key, value in blob["metadata"].items()), *self.common()]  # fmt: skip
        return Answer(200, blob["data"], headers=headers)


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
