"""Imgur API v3: uploads, deletion, credits, gallery search, tokens."""

import hashlib
import re
import time
import urllib.error
import urllib.parse
import urllib.request

import pictures
from forms import Malformed, strict_base64
from web import Answer, Service

FORMATS = {"JPEG": "jpg", "PNG": "png", "GIF": "gif", "TIFF": "tiff"}
FIELDS = {"image", "type", "album", "title", "description", "name", "disable_audio"}
ADVANCED = {"q_all", "q_any", "q_exactly", "q_not", "q_type", "q_size_px"}
SIZES = {"small": (0, 500), "med": (500, 2000), "big": (2000, 5000), "lrg": (5000, 10000), "huge": (10000, 1 << 40)}
UPLOAD_COST, CALL_COST = 10, 1


class Application:
    """A registered client and what is left of its credits."""

    def __init__(self, settings):
        self.secret = settings.get("secret", "")
        self.user_limit = self.user = int(settings.get("userLimit", 500))
        self.client_limit = self.client = int(settings.get("clientLimit", 12_500))
        self.post_limit = self.post = int(settings.get("postLimit", 1_250))
        # `epoch` as the page has it, or `seconds` as has been seen.
        self.reset_as = settings.get("resetAs", "epoch")
        self.reset = time.time() + settings.get("reset", 3600)
        # Album id: its deletehash where it is anonymous.
        self.albums = dict(settings.get("albums", {}))


class Imgur(Service):
    name = "imgur"
    reset_header = "X-RateLimit-UserReset"

    def clear(self):
        self.applications = {}
        # Access token: (client id, refresh token, albums, account).
        self.tokens = {}
        self.images = {}
        self.gallery = []
        self.albums = {}
        self.uploads = 0

    def forget(self, key):
        with self.lock:
            self.applications.pop(key, None)
            self.tokens = {token: entry for token, entry in self.tokens.items() if entry["client"] != key}
            self.images = {id: image for id, image in self.images.items() if image["client"] != key}

    def add_key(self, settings):
        with self.lock:
            if "token" in settings:
                self.tokens[settings["token"]] = {
                    "client": settings["key"],
                    "refresh": settings.get("refresh"),
                    "albums": list(settings.get("albums", [])),
                    "account": settings.get("account", "someone"),
                    "expired": bool(settings.get("expired", False)),
                }
                if settings["key"] in self.applications:
                    return
            self.applications[settings["key"]] = Application(
                {name: value for name, value in settings.items() if "token" not in settings or name != "albums"}
            )

    def state(self, key):
        with self.lock:
            application = self.applications.get(key)
            if application is None:
                return None
            images = [{name: value for name, value in image.items() if name != "data"}
                      for image in self.images.values() if image["client"] == key]  # fmt: skip
            return {"userRemaining": application.user, "clientRemaining": application.client, "images": images}

    def authorization(self, request):
        scheme, _, value = (request.header("authorization") or "").partition(" ")
        return scheme.lower(), value.strip()

    def key_of(self, request):
        scheme, value = self.authorization(request)
        if scheme == "bearer":
            return self.tokens[value]["client"] if value in self.tokens else None
        return value if scheme == "client-id" else None

    # --- answers ---

    def error(self, exchange, status, message, headers=()):
        """Shape a."""
        value = {"error": message, "request": exchange.request.path, "method": exchange.request.method}
        return Answer.json(status, {"data": value, "success": False, "status": status}, headers)

    def exception(self, exchange, status, code, message):
        """Shape b."""
        value = {"code": code, "message": message, "type": "ImgurException", "exception": []}
        value = {"error": value, "request": exchange.request.path, "method": exchange.request.method}
        return Answer.json(status, {"data": value, "success": False, "status": status})

    def malformed(self, exchange, message):
        return self.error(exchange, 400, message)

    def shape(self, name, exchange, rule):
        message = rule.get("message")
        if name == "dailyLimit":
            return self.error(exchange, 429, message or "Daily client requests exceeded", self.exhausted(exchange))
        if name == "typeInvalid":
            return self.exception(exchange, 400, 1003, message or "File type invalid (1)")
        if name == "overSize":
            return self.exception(exchange, 400, 1002, message or "File is over the size limit")
        if name == "invalidURL":
            return self.error(exchange, 400, message or "Invalid URL")
        if name == "errorsArray":
            entry = {"id": "6f1f2d", "code": "429", "status": "Too Many Requests", "detail": "Too Many Requests"}
            return Answer.json(429, {"errors": [entry]}, type="application/vnd.imgur.v1+json")
        if name == "overCapacity":
            text = message or "Imgur is temporarily over capacity. Please try again later."
            return Answer.json(403, {"data": {"error": text}, "success": False, "status": 403})
        if name == "tooFast":
            minutes = rule.get("minutes", 13)
            text = message or f"You are uploading too fast. Please wait {minutes} more minutes."
            return self.exception(exchange, 400, 429, text)
        if name == "successFalse":
            return self.error(exchange, 200, message or "Internal processing error")
        if name == "blockedClient":
            return self.error(exchange, 403, message or "The client is not authorized")
        raise ValueError(name)

    def exhausted(self, exchange):
        application = self.applications.get(self.key_of(exchange.request))
        if application is None:
            return []
        headers = dict(self.rate_headers(application))
        headers["X-RateLimit-ClientRemaining"] = "0"
        return list(headers.items())

    def rate_headers(self, application):
        left = max(0, int(application.reset - time.time()))
        reset = int(application.reset) if application.reset_as == "epoch" else left
        return [
            ("X-RateLimit-UserLimit", str(application.user_limit)),
            ("X-RateLimit-UserRemaining", str(application.user)),
            ("X-RateLimit-UserReset", str(reset)),
            ("X-RateLimit-ClientLimit", str(application.client_limit)),
            ("X-RateLimit-ClientRemaining", str(application.client)),
            ("X-Post-Rate-Limit-Limit", str(application.post_limit)),
            ("X-Post-Rate-Limit-Remaining", str(application.post)),
            ("X-Post-Rate-Limit-Reset", str(left)),
        ]

    def answer(self, exchange):
        request = exchange.request
        if request.path == "/oauth2/token":
            return self.refresh(exchange) if request.method == "POST" else self.error(exchange, 405, "Method not allowed")
        scheme, value = self.authorization(request)
        token = None
        if scheme == "bearer":
            token = self.tokens.get(value)
            if token is None or token["expired"]:
                return self.error(exchange, 403, "The access token provided is invalid.")
            application = self.applications[token["client"]]
        elif scheme == "client-id":
            application = self.applications.get(value)
            if application is None:
                return self.error(exchange, 403, "Invalid client_id")
        else:
            return self.error(exchange, 401, "Authentication required")

        is_upload = request.method == "POST" and request.path in ("/3/image", "/3/upload")
        cost = UPLOAD_COST if is_upload else CALL_COST
        with self.lock:
            if min(application.user, application.client) < cost or (is_upload and application.post < 1):
                who = "user" if application.user < cost else "client"
                return self.error(exchange, 429, f"Daily {who} requests exceeded", self.rate_headers(application))
            application.user -= cost
            application.client -= cost
            if is_upload:
                application.post -= 1
            exchange.charged = cost
            headers = self.rate_headers(application)
        answer = self.route(exchange, application, token)
        answer.headers += headers
        if request.method == "GET" and answer.status == 200:
            tag = '"' + hashlib.sha256(answer.body).hexdigest()[:16] + '"'
            answer.headers.append(("ETag", tag))
            if request.header("if-none-match") == tag:
                return Answer(304, b"", None, [("ETag", tag), *headers])
        return answer

    def route(self, exchange, application, token):
        request = exchange.request
        segments = request.segments
        if request.method == "POST" and request.path in ("/3/image", "/3/upload"):
            return self.upload(exchange, application, token)
        if request.method == "DELETE" and len(segments) == 3 and segments[1] == "image":
            return self.delete(exchange, segments[2], token)
        if request.method == "GET":
            if request.path == "/3/credits":
                value = {
                    "UserLimit": application.user_limit,
                    "UserRemaining": application.user,
                    "UserReset": int(application.reset),
                    "ClientLimit": application.client_limit,
                    "ClientRemaining": application.client,
                }
                return success(value)
            if segments[1:3] == ["gallery", "search"]:
                return self.search(exchange, segments[3:])
            if len(segments) == 4 and segments[1] == "album" and segments[3] == "images":
                if segments[2] not in self.albums:
                    return self.error(exchange, 404, "Unable to find an album with the id, " + segments[2])
                return success(self.albums[segments[2]])
        return self.error(exchange, 404, "Not found")

    # --- upload ---

    def upload(self, exchange, application, token):
        request = exchange.request
        if request.kind not in ("multipart/form-data", "application/x-www-form-urlencoded"):
            return self.error(exchange, 400, "No image data was sent to the upload api")
        fields = {}
        for part in request.fields:
            if part.name not in FIELDS:
                exchange.remark(f"unknown field {part.name}")
            fields[part.name] = part
        image = fields.get("image")
        if image is None or not image.data:
            return self.error(exchange, 400, "No image data was sent to the upload api")
        if "type" not in fields:
            exchange.remark("type not sent")
        kind = self.form_of(image, fields)
        if kind == "file":
            if image.filename is None:
                return self.exception(exchange, 400, 1003, "File type invalid (1)")
            data = image.data
        elif kind == "base64":
            try:
                data = None if image.filename is not None else strict_base64(image.text)
            except Malformed:
                data = None
            if data is None:
                return self.exception(exchange, 400, 1003, "File type invalid (1)")
        elif kind == "url":
            data = fetched(image.text)
            if data is None:
                return self.error(exchange, 400, "Invalid URL")
        else:
            return self.error(exchange, 400, "Invalid type")
        exchange.picture = hashlib.sha256(data).hexdigest()
        if len(data) > self.settings.get("maxBytes", 10_000_000):
            return self.exception(exchange, 400, 1002, "File is over the size limit")
        found = pictures.sniff(data)
        if found is None or found[0] not in FORMATS:
            return self.exception(exchange, 400, 1003, "File type invalid (1)")
        album = fields["album"].text if "album" in fields else None
        if album:
            allowed = token["albums"] if token else application.albums.values()
            if album not in allowed:
                return self.error(exchange, 403, "Permission denied")

        with self.lock:
            self.uploads += 1
            identifier = hashlib.sha256(b"%d" % self.uploads).hexdigest()[:7]
            deletehash = hashlib.sha256(b"delete%d" % self.uploads).hexdigest()[:15]
            extension = FORMATS[found[0]]
            entry = {
                "id": identifier,
                "deletehash": deletehash,
                "link": self.link(request, identifier, extension),
                "client": self.key_of(request),
                "owner": token["account"] if token else None,
                "album": album,
                "title": optional(fields, "title"),
                "description": optional(fields, "description"),
                "name": optional(fields, "name") or "",
                "type": pictures.MIME[found[0]],
                "sha256": exchange.picture,
                "form": kind,
            }
            entry["data"] = data if self.application.keeps else None
            self.images[identifier] = entry
        value = {name: entry[name] for name in ("id", "deletehash", "link", "title", "description")}
        value |= {
            "datetime": int(time.time()), "type": entry["type"], "animated": pictures.is_animated(data),
            "width": found[1], "height": found[2], "size": len(data), "views": 0, "bandwidth": 0, "vote": None,
            "favorite": False, "nsfw": None, "section": None, "account_url": entry["owner"],
            "account_id": 1 if token else 0, "is_ad": False, "in_most_viral": False, "tags": [], "ad_type": 0,
            "ad_url": "", "in_gallery": False, "name": entry["name"],
        }  # fmt: skip
        if value["animated"]:
            value |= {"mp4": entry["link"] + ".mp4", "gifv": entry["link"] + ".gifv", "looping": True}
        return success(value)

    def form_of(self, image, fields):
        if "type" in fields:
            return fields["type"].text.lower()
        if image.filename is not None:
            return "file"
        return "url" if re.match(rb"https?://", image.data) else "base64"

    def link(self, request, identifier, extension):
        kind = self.settings.get("links", "https")
        if kind == "here":
            return f"{request.base}/i/{identifier}.{extension}"
        return f"{kind}://i.imgur.com/{identifier}.{extension}"

    def delete(self, exchange, name, token):
        with self.lock:
            for identifier, image in self.images.items():
                is_owner = token is not None and image["owner"] == token["account"]
                if name == image["deletehash"] and image["owner"] is None or name == identifier and is_owner:
                    del self.images[identifier]
                    return success(True)
                if name in (identifier, image["deletehash"]):
                    return self.error(exchange, 403, "Unauthorized")
        return self.error(exchange, 404, "Unable to find an image with the id, " + name)

    # --- gallery ---

    def search(self, exchange, parts):
        sort, window, page = (parts + ["time", "all", "0"][len(parts) :])[:3]
        if len(parts) < 3:
            exchange.remark("sort, window and page not all sent")
        windows = ("all", "day", "week", "month", "year")
        if sort not in ("time", "viral", "top") or window not in windows or not page.isdigit():
            return self.error(exchange, 400, "Invalid sort, window or page")
        given = {part.name: part.text for part in exchange.request.query_fields}
        advanced = {name: value for name, value in given.items() if name in ADVANCED}
        if not advanced and not given.get("q"):
            return self.error(exchange, 400, "A search query is required")
        if advanced and "q" in given:
            exchange.remark("q is ignored beside advanced parameters")
        if "q_type" in advanced and advanced["q_type"] not in ("jpg", "png", "gif", "anigif", "album"):
            return self.error(exchange, 400, "Invalid q_type")
        if "q_size_px" in advanced and advanced["q_size_px"] not in SIZES:
            return self.error(exchange, 400, "Invalid q_size_px")
        found = [item for item in self.gallery if matches(item, given.get("q"), advanced)]
        size = self.settings.get("pageSize", 60)
        start = int(page) * size
        return success(found[start : start + size])

    def refresh(self, exchange):
        fields = {part.name: part.text for part in exchange.request.fields}
        application = self.applications.get(fields.get("client_id"))
        with self.lock:
            old = next((token for token, entry in self.tokens.items()
                        if entry["refresh"] and entry["refresh"] == fields.get("refresh_token")), None)  # fmt: skip
            is_ours = old is not None and self.tokens[old]["client"] == fields.get("client_id")
            if fields.get("grant_type") != "refresh_token" or application is None or not is_ours:
                return self.error(exchange, 400, "Invalid refresh token")
            if application.secret != fields.get("client_secret"):
                return self.error(exchange, 400, "Invalid client_secret")
            entry = dict(self.tokens.pop(old), expired=False)
            new = hashlib.sha256(old.encode()).hexdigest()[:40]
            self.tokens[new] = entry
        value = {
            "access_token": new, "refresh_token": entry["refresh"], "expires_in": 2_419_200, "token_type": "bearer",
            "account_username": entry["account"],
        }  # fmt: skip
        return Answer.json(200, value)

    def file(self, request):
        """What a link of its own leads to."""
        image = self.images.get(request.segments[-1].partition(".")[0])
        if image is None or request.method not in ("GET", "HEAD"):
            return Answer.html(404)
        if image["data"] is None:
            return Answer(410)
        return Answer(200, image["data"], image["type"])


def success(value):
    return Answer.json(200, {"data": value, "success": True, "status": 200})


def optional(fields, name):
    return fields[name].text if name in fields else None


def fetched(address):
    """The bytes at an address; None where there are none."""
    if not re.match(r"https?://[^/\s]+", address):
        return None
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(address, timeout=10) as answer:
            return answer.read()
    except (urllib.error.URLError, OSError, ValueError):
        return None


def matches(item, query, advanced):
    """Words by the title alone: all of q, or the advanced ones."""
    title = (item.get("title") or "").lower()

    def words(name):
        return advanced.get(name, "").lower().split()

    if not advanced:
        wanted, is_not = True, False
        for word in query.split():
            if word in ("AND", "OR"):
                continue
            if word == "NOT":
                is_not = True
                continue
            wanted = wanted and (word.lower() in title) != is_not
            is_not = False
        return wanted
    if not all(word in title for word in words("q_all")) or any(word in title for word in words("q_not")):
        return False
    if words("q_any") and not any(word in title for word in words("q_any")):
        return False
    if advanced.get("q_exactly", "").lower() not in title:
        return False
    kind = advanced.get("q_type")
    if kind:
        is_album = item.get("is_album", False)
        types = {"jpg": "image/jpeg", "png": "image/png", "gif": "image/gif", "anigif": "image/gif"}
        if is_album != (kind == "album") or (not is_album and item.get("type") != types[kind]):
            return False
        if kind == "anigif" and not item.get("animated"):
            return False
    if "q_size_px" in advanced:
        low, high = SIZES[advanced["q_size_px"]]
        side = max(item.get("width") or item.get("cover_width") or 0, item.get("height") or item.get("cover_height") or 0)
        return low <= side <= high
    return True
