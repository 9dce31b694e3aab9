"""Plain hosts: one that takes uploads, one that hands out pictures, one that cuts out, and an echo.

The key of the first two is the first segment after their name, so that tests have places of their own.
"""

import base64
import hashlib
import json

import pictures
from web import Answer, Service


class Sink(Service):
    """/sink/PLACE/NAME: PUT, POST (multipart, form, JSON or raw), GET, HEAD, DELETE."""

    name = "sink"

    def clear(self):
        self.stored = {}
        # Place: headers that a request needs, by name in lower case.
        self.required = {}
        self.posted = 0

    def forget(self, key):
        with self.lock:
            self.stored = {path: entry for path, entry in self.stored.items() if path.split("/")[2] != key}
            self.required.pop(key, None)

    def add_key(self, settings):
        required = {name.lower(): value for name, value in settings.get("headers", {}).items()}
        self.required[settings["key"]] = required

    def state(self, key):
        with self.lock:
            return {
                path: {name: value for name, value in entry.items() if name != "data"}
                for path, entry in self.stored.items()
                if path.split("/")[2] == key
            }

    def key_of(self, request):
        return request.segments[1] if len(request.segments) > 1 else None

    def answer(self, exchange):
        request = exchange.request
        for name, value in self.required.get(self.key_of(request), {}).items():
            if request.header(name) != value:
                return Answer.json(401, {"error": {"message": f"header {name} is missing or wrong"}})
        path = request.path
        with self.lock:
            old = self.stored.get(path)
            if request.method == "PUT":
                if request.header("if-none-match") == "*" and old is not None:
                    return Answer.json(412, {"error": {"message": "exists"}})
                entry = self.kept(exchange, request.body, request.header("content-type"))
                self.stored[path] = entry
                return Answer(204 if old else 201, b"", None, [("ETag", entry["etag"]), ("Location", request.base + path)])
            if request.method == "POST":
                return self.post(exchange)
            if request.method in ("GET", "HEAD"):
                if old is None:
                    return Answer.json(404, {"error": {"message": "not found"}})
                if old["data"] is None:
                    return Answer(410)
                return Answer(200, old["data"], old["type"] or "application/octet-stream", [("ETag", old["etag"])])
            if request.method == "DELETE":
                return Answer(204) if self.stored.pop(path, None) else Answer.json(404, {"error": {"message": "not found"}})
        return Answer.json(405, {"error": {"message": f"{request.method} not allowed"}})

    def kept(self, exchange, data, kind):
        digest = hashlib.sha256(data).hexdigest()
        exchange.picture = digest
        return {"sha256": digest, "size": len(data), "type": kind, "etag": f'"{digest[:16]}"',
                "data": data if self.application.keeps else None}  # fmt: skip

    def post(self, exchange):
        request = exchange.request
        files = [part for part in request.fields if part.filename is not None]
        if request.kind in ("multipart/form-data", "application/x-www-form-urlencoded", "application/json"):
            sources = [(part.filename, part.data, part.type) for part in files]
        else:
            sources = [(None, request.body, request.header("content-type"))]
        links = []
        for filename, data, kind in sources:
            self.posted += 1
            path = f"{request.path.rstrip('/')}/{self.posted:06d}"
            self.stored[path] = self.kept(exchange, data, kind)
            links.append({"filename": filename, "link": request.base + path, "size": len(data), "type": kind,
                          "sha256": self.stored[path]["sha256"]})  # fmt: skip
        link = links[0]["link"] if links else None
        value = {
            "link": link,
            "data": {"url": link, "files": links},
            "fields": [[part.name, part.text] for part in request.fields if part.filename is None],
        }
        return Answer.json(201, value, [("Location", link)] if link else [])


class Pictures(Service):
    """/pictures/PLACE/NAME as put there by a test, and /pictures/sample/WIDTHxHEIGHT-SEED.png (jpg, webp) made here."""

    name = "pictures"

    def clear(self):
        self.files = {}

    def forget(self, key):
        with self.lock:
            self.files = {path: file for path, file in self.files.items() if path.split("/")[2] != key}

    def put(self, path, data, kind):
        with self.lock:
            self.files[path] = (data, kind)

    def key_of(self, request):
        return request.segments[1] if len(request.segments) > 1 else None

    def answer(self, exchange):
        request = exchange.request
        if request.method not in ("GET", "HEAD"):
            return Answer(405, b"", None, [("Allow", "GET, HEAD")])
        file = self.files.get(request.path)
        if file is None and self.key_of(request) == "sample" and len(request.segments) == 3:
            file = self.sample(request.segments[2])
            self.put(request.path, *file)
        if file is None:
            return Answer.html(404)
        data, kind = file
        exchange.picture = hashlib.sha256(data).hexdigest()
        tag = '"' + exchange.picture[:16] + '"'
        if request.header("if-none-match") == tag:
            return Answer(304, b"", None, [("ETag", tag)])
        return Answer(200, data, kind, [("ETag", tag)])

    def sample(self, name):
        stem, _, kind = name.rpartition(".")
        size, _, seed = stem.partition("-")
        width, height = (int(side) for side in size.split("x"))
        types = {"png": "image/png", "jpg": "image/jpeg", "webp": "image/webp"}
        return pictures.encode(pictures.sample(width, height, int(seed or 0)), kind), types[kind]


class Segment(Service):
    """/segment/PLACE/ANSWER: POST of a picture, raw or as the first file of a form; ANSWER is image, mask, base64, url."""

    name = "segment"

    def key_of(self, request):
        return request.segments[1] if len(request.segments) > 1 else None

    def answer(self, exchange):
        request = exchange.request
        if request.method != "POST" or len(request.segments) < 3:
            return Answer.json(404, {"error": "not found"})
        data = next((part.data for part in request.fields if part.filename is not None), None)
        if request.kind != "multipart/form-data":
            data = request.body
        try:
            if data is None:
                raise pictures.Unreadable("no file")
            image = pictures.load(data).convert("RGB")
        except pictures.Unreadable as error:
            return Answer.json(400, {"error": f"no picture: {error}"})
        exchange.picture = hashlib.sha256(data).hexdigest()
        mask = pictures.ellipse(image.width, image.height, (0, 0, image.width, image.height))
        kind = request.segments[2]
        if kind == "mask":
            return Answer(200, pictures.encode(mask, "png"), "image/png")
        image.putalpha(mask)
        body = pictures.encode(image, "png")
        if kind == "image":
            return Answer(200, body, "image/png")
        if kind == "base64":
            text = base64.b64encode(body).decode()
            return Answer.json(200, {"result": {"images": [{"b64": text, "width": image.width}]}})
        if kind == "url":
            path = f"/pictures/{self.key_of(request)}/{exchange.picture[:16]}.png"
            self.application.pictures.put(path, body, "image/png")
            return Answer.json(200, {"result": {"url": request.base + path}})
        return Answer.json(404, {"error": "not found"})


class Echo(Service):
    """Everything else under /echo: says what came."""

    name = "echo"

    def answer(self, exchange):
        request = exchange.request
        value = {
            "method": request.method,
            "target": request.target,
            "headers": [list(pair) for pair in request.headers],
            "length": len(request.body),
            "sha256": hashlib.sha256(request.body).hexdigest(),
            "connection": request.connection,
        }
        return Answer(200, json.dumps(value).encode(), "application/json")
