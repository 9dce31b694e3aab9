"""imgbb API v1: the one call it has."""

import hashlib
import re
import time

import pictures
from forms import Malformed, Part, strict_base64
from imgur import fetched
from web import REASONS, Answer, Service

FIELDS = {"key", "image", "name", "expiration"}
FORMATS = {"JPEG": "jpg", "PNG": "png", "GIF": "gif", "BMP": "bmp", "TIFF": "tif", "WEBP": "webp", "AVIF": "avif"}


class ImgBB(Service):
    name = "imgbb"

    def clear(self):
        self.keys = set()
        self.images = {}
        self.uploads = 0

    def forget(self, key):
        with self.lock:
            self.keys.discard(key)
            self.images = {id: image for id, image in self.images.items() if image["key"] != key}

    def add_key(self, settings):
        self.keys.add(settings["key"])

    def state(self, key):
        with self.lock:
            images = [{name: value for name, value in image.items() if name != "data"}
                      for image in self.images.values() if image["key"] == key]  # fmt: skip
        return {"images": images} if key in self.keys else None

    def key_of(self, request):
        try:
            key = request.query_value("key")
            if key is None and request.body:
                key = next((part.text for part in request.fields if part.name == "key"), None)
            return key
        except Malformed:
            return None

    def error(self, message, code, status=400, context=None):
        value = {"message": message, "code": code}
        if context:
            value["context"] = context
        return Answer.json(status, {"status_code": status, "error": value, "status_txt": REASONS.get(status, "Error")})

    def malformed(self, exchange, message):
        return self.error(message, 310)

    def shape(self, name, exchange, rule):
        message = rule.get("message")
        shapes = {
            "invalidKey": ("Invalid API v1 key.", 100),
            "invalidImage": ("Invalid image source.", 310),
            "typeInvalid": ("Unsupported content type.", 311),
            "tooBig": ("File too big (max 32 MB).", 313),
            "duplicate": ("Duplicated upload", 101),
            "inappropriate": ("Suspected inappropriate content", 403),
        }
        text, code = shapes[name]
        return self.error(message or text, code, context="CHV\\UploadException" if name == "tooBig" else None)

    def answer(self, exchange):
        request = exchange.request
        if request.path != "/1/upload":
            return Answer.html(404)
        if request.method not in ("POST", "GET"):
            return self.error("Method not allowed", 405, 405)
        fields = {}
        parts = [Part(part.name, part.data) for part in request.query_fields]
        if any(part.name not in ("key", "expiration") for part in parts) and request.method == "POST":
            exchange.remark("field in the query that belongs into the form")
        if request.method == "POST":
            parts = [part for part in parts if part.name in ("key", "expiration")]
            if request.kind not in ("multipart/form-data", "application/x-www-form-urlencoded"):
                exchange.remark(f"content type {request.kind}")
            else:
                parts += request.fields
        for part in parts:
            if part.name not in FIELDS:
                exchange.remark(f"unknown field {part.name}")
            if part.name in fields:
                exchange.remark(f"{part.name} given twice")
            fields[part.name] = part
        key = fields["key"].text if "key" in fields else None
        if key not in self.keys:
            return self.error("Invalid API v1 key.", 100)
        expiration = fields["expiration"].text if "expiration" in fields else "0"
        if not expiration.isdigit() or ("expiration" in fields and not 60 <= int(expiration) <= 15_552_000):
            return self.error("Invalid expiration.", 400)

        image = fields.get("image")
        if image is None or not image.data:
            return self.error("Empty upload source.", 310)
        data = self.data_of(image)
        if data is None:
            return self.error("Invalid image source.", 310)
        exchange.picture = hashlib.sha256(data).hexdigest()
        if len(data) > self.settings.get("maxBytes", 32_000_000):
            return self.error("File too big (max 32 MB).", 313)
        found = pictures.sniff(data)
        if found is None:
            return self.error("Invalid image source.", 310)
        if found[0] not in FORMATS:
            return self.error("Unsupported content type.", 311)
        return self.stored(exchange, key, image, fields, data, found, int(expiration))

    def data_of(self, image):
        if image.filename is not None:
            return image.data
        try:
            text = image.text
        except Malformed:
            return None
        return fetched(text) if re.match("https?://", text) else strict_base64(text)

    def stored(self, exchange, key, image, fields, data, found, expiration):
        request = exchange.request
        with self.lock:
            self.uploads += 1
            identifier = hashlib.sha256(b"imgbb%d" % self.uploads).hexdigest()[:7]
        extension, mime = FORMATS[found[0]], pictures.MIME[found[0]]
        name = fields["name"].text if "name" in fields else None
        if not name:
            name = (image.filename or identifier).rpartition("/")[2]
        name = re.sub(r"\.\w+$", "", name)
        here = self.settings.get("links", "https") == "here"
        direct = f"{request.base}/ibb/{identifier}" if here else f"https://i.ibb.co/{identifier}"
        viewer = f"{request.base}/ibb-viewer/{identifier}" if here else f"https://ibb.co/{identifier}"
        filename = f"{name}.{extension}"
        secret = hashlib.sha256(b"delete" + identifier.encode()).hexdigest()[:32]
        entry = {
            "id": identifier, "key": key, "name": name, "expiration": expiration, "sha256": exchange.picture,
            "type": mime, "data": data if self.application.keeps else None,
        }  # fmt: skip
        with self.lock:
            self.images[identifier] = entry

        number = str if self.settings.get("numbers", "string") == "string" else int

        def version(folder):
            return {"filename": filename, "name": name, "mime": mime, "extension": extension,
                    "url": f"{direct}{folder}/{filename}"}  # fmt: skip

        value = {
            "id": identifier, "title": name, "url_viewer": viewer, "url": f"{direct}/{filename}",
            "display_url": f"{direct}-display/{filename}", "width": number(found[1]), "height": number(found[2]),
            "size": number(len(data)), "time": number(int(time.time())), "expiration": number(expiration),
            "image": version(""), "thumb": version("-thumb"),
        }  # fmt: skip
        if max(found[1], found[2]) > 640:
            value["medium"] = version("-medium")
        value["delete_url"] = f"{viewer}/{secret}"
        return Answer.json(200, {"data": value, "success": True, "status": 200})

    def file(self, request):
        """Direct links hand out the picture; viewer and deletion are pages."""
        segments = request.segments
        if segments[0] == "ibb-viewer":
            return Answer.html(200)
        image = self.images.get(segments[1].partition("-")[0])
        if image is None or request.method not in ("GET", "HEAD"):
            return Answer.html(404)
        return Answer(200, image["data"], image["type"]) if image["data"] is not None else Answer(410)
