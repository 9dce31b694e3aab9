#!/usr/bin/env python3
"""The stand-in against the contract pages: one test for each row of a page that says what a service takes or answers.

Prints `rows: N` with the number of rows that ran.
"""

import base64
import contextlib
import gzip
import hashlib
import hmac
import http.client
import io
import json
import socket
import sys
import time
import unittest
import urllib.parse
import zipfile

from PIL import Image

import forms
import pictures
import server

APPLICATION, SERVERS = server.start()
PORT = SERVERS["http"].server_address[1]
BASE = f"http://127.0.0.1:{PORT}"
ROWS = []

JPEG = pictures.encode(pictures.sample(120, 80), "jpg")
PNG = pictures.encode(pictures.sample(120, 80), "png")
WEBP = pictures.encode(pictures.sample(120, 80), "webp")


def saved(kind, image=None):
    out = io.BytesIO()
    (image or pictures.sample(60, 40)).save(out, kind)
    return out.getvalue()


def two_coloured(width, height):
    """A large picture that is quickly made and read."""
    image = Image.new("L", (width, height), 30)
    image.paste(200, (width // 4, height // 4, width // 2, height // 2))
    return image


def row(page, name):
    """Declares one row of a page."""

    def add(function):
        ROWS.append((page, name, function))
        return function

    return add


class Reply:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    def __getitem__(self, name):
        return self.headers.get(name)


def send(method, target, body=None, headers=None, chunked=False):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
    with contextlib.closing(connection):
        if chunked:
            connection.request(method, target, iter([body]), headers or {}, encode_chunked=True)
        else:
            connection.request(method, target, body, headers or {})
        answer = connection.getresponse()
        return Reply(answer.status, answer.headers, answer.read())


def control(word, value=None, **query):
    target = f"/control/{word}" + ("?" + urllib.parse.urlencode(query) if query else "")
    if value is None:
        return send("GET", target).json
    reply = send("POST", target, json.dumps(value))
    assert reply.status == 200, reply.body
    return reply.json


def multipart(*parts):
    """(name, text) or (name, bytes, filename, type)."""
    body = b""
    for part in parts:
        name, data, *rest = part
        more = f'; filename="{rest[0]}"\r\nContent-Type: {rest[1]}' if rest else ""
        body += f'--BOUND\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode()
        body += (data.encode() if isinstance(data, str) else data) + b"\r\n"
    return body + b"--BOUND--\r\n", "multipart/form-data; boundary=BOUND"


def form(**fields):
    return urllib.parse.urlencode(fields).encode(), "application/x-www-form-urlencoded"


def b64(data):
    return base64.b64encode(data).decode()


# --- remove.bg ---------------------------------------------------------------------------------------------------


def removebg(*parts, key="K", accept=None, json_body=None, form_body=None, headers=None):
    if json_body is not None:
        body, kind = json.dumps(json_body).encode(), "application/json"
    elif form_body is not None:
        body, kind = form(**form_body)
    else:
        body, kind = multipart(*parts)
    all_headers = {"Content-Type": kind, **(headers or {})}
    if key:
        all_headers["X-Api-Key"] = key
    if accept:
        all_headers["Accept"] = accept
    return send("POST", "/v1.0/removebg", body, all_headers)


FILE = ("image_file", JPEG, "a.jpg", "image/jpeg")


def removebg_key(credits=10, **more):
    control("keys", {"service": "removebg", "key": "K", "credits": credits, **more})


def code_of(reply):
    assert reply.status == 400, (reply.status, reply.body)
    return [error.get("code") for error in reply.json["errors"]]


def shown(reply):
    assert reply.status == 200, (reply.status, reply.body[:300])
    return Image.open(io.BytesIO(reply.body))


@row("removebg", "auth: X-Api-Key in any case, or Bearer")
def _(t):
    removebg_key()
    body, kind = multipart(FILE)
    for headers in ({"x-api-key": "K"}, {"X-API-KEY": "K"}, {"Authorization": "Bearer K"}):
        t.assertEqual(send("POST", "/v1.0/removebg", body, {"Content-Type": kind, **headers}).status, 200)


@row("removebg", "403: wrong key auth_failed, key missing")
def _(t):
    reply = removebg(FILE, key="wrong")
    t.assertEqual((reply.status, reply.json), (403, {"errors": [{"title": "API Key invalid", "code": "auth_failed"}]}))
    reply = removebg(FILE, key=None)
    t.assertEqual((reply.status, reply.json["errors"][0]["title"]), (403, "Missing API Key"))
    t.assertIsNone(reply["X-RateLimit-Limit"])


def takes(kind, **fields):
    @row("removebg", f"request form: {kind} with {', '.join(fields)}")
    def _(t):
        removebg_key()
        body = fields
        if kind == "json":
            reply = removebg(json_body=body)
        elif kind == "urlencoded":
            reply = removebg(form_body=body)
        else:
            reply = removebg(*body.items())
        t.assertEqual(reply.status, 200, reply.body)
        t.assertEqual(reply["Content-Type"], "image/png")


SAMPLE = f"{BASE}/pictures/sample/120x80.png"
for shape in ("multipart", "json", "urlencoded"):
    takes(shape, image_file_b64=b64(JPEG))
    takes(shape, image_url=SAMPLE)
    takes(shape, image_url=SAMPLE, bg_image_url=SAMPLE, format="png")


@row("removebg", "request form: multipart image_file and bg_image_file")
def _(t):
    removebg_key()
    reply = removebg(FILE, ("bg_image_file", PNG, "b.png", "image/png"))
    t.assertEqual((reply.status, reply["Content-Type"]), (200, "image/jpeg"))


@row("removebg", "request form: no file field in JSON or urlencoded")
def _(t):
    removebg_key()
    t.assertEqual(code_of(removebg(json_body={"image_file": b64(JPEG)})), ["missing_source"])
    t.assertEqual(code_of(removebg(form_body={"image_file": b64(JPEG)})), ["missing_source"])


@row("removebg", "missing_source, multiple_sources, multiple_bg_sources")
def _(t):
    removebg_key()
    t.assertEqual(code_of(removebg(("size", "full"))), ["missing_source"])
    t.assertEqual(code_of(removebg(FILE, ("image_url", SAMPLE))), ["multiple_sources"])
    t.assertEqual(code_of(removebg(FILE, ("bg_color", "fff"), ("bg_image_url", SAMPLE))), ["multiple_bg_sources"])


@row("removebg", "an empty field is not set")
def _(t):
    removebg_key()
    reply = removebg(FILE, ("image_url", ""), ("image_file_b64", ""), ("bg_color", ""), ("roi", ""), ("size", ""))
    t.assertEqual(reply.status, 200)


def option(field, good, bad, code):
    @row("removebg", f"field {field}")
    def _(t):
        removebg_key(100)
        for value in good:
            reply = removebg(FILE, (field, value))
            t.assertEqual(reply.status, 200, (value, reply.body[:200]))
        for value in bad:
            t.assertEqual(code_of(removebg(FILE, (field, value))), [code], value)


option("size", ["preview", "full", "50MP", "auto", "medium", "hd", "small", "regular", "4k"], ["big", "FULL"], "invalid_size")
option("type", ["auto", "person", "product", "car", "animal", "graphic", "transportation"], ["graphics", "cat"], None)
option("type_level", ["1", "none", "2", "latest"], ["3"], None)
option("format", ["auto", "png", "jpg", "zip", "webp"], ["jpeg", "gif"], "invalid_format")
option("roi", ["0% 0% 100% 100%", "10px 10px 110px 70px", "10% 5px 90% 75px"], ["0 0 1 1", "0% 0% 100%", "a b c d"], "invalid_roi")
option("crop", ["true", "false"], ["yes"], None)
option("crop_margin", ["0", "10px", "10% 5px", "1px 2px 3px 4px"], ["1 2 3", "-1", "x"], "invalid_crop_margin")
option("scale", ["original", "10%", "100%", "55%"], ["9%", "101%", "0.5", "50"], "invalid_scale")
option("position", ["original", "center", "50%", "0% 100%"], ["left", "10px", "101%", "1% 2% 3%"], "invalid_position")
option("channels", ["rgba", "alpha"], ["rgb"], "invalid_channels")
option("semitransparency", ["true", "false"], ["1"], "invalid_semitransparency")
option("add_shadow", ["true", "false"], ["maybe"], None)
option("shadow_type", ["none", "auto", "car", "3D", "drop"], ["3d", "long"], None)
option("shadow_type[car]", ["car", "drop"], ["sun"], None)
option("shadow_type[boat]", [], ["car"], None)
option("shadow_opacity", ["auto", "0", "100"], ["101", "-1", "half"], None)
option("shadow_opacity[person]", ["40"], ["400"], None)
option("bg_color", ["fff", "81d4fa", "81d4fa77", "fffa", "red"], ["81d4f", "nocolour"], "invalid_bg_color")
option("bg_image_url", [SAMPLE], ["ftp://h/x"], "invalid_bg_image_url")


@row("removebg", "shadow_method is gone, unknown fields are ignored and noted")
def _(t):
    removebg_key()
    t.assertEqual(removebg(FILE, ("shadow_method", "fast")).status, 200)
    t.assertEqual(control("log", key="K")["entries"][-1]["remarks"], ["unknown field shadow_method"])


@row("removebg", "sizes: preview 0.25 MP, full 25 MP, 50MP, PNG at most 10 MP")
def _(t):
    removebg_key(100)
    control("settings", {"removebg": {"megapixel": 10_000}})
    large = saved("JPEG", two_coloured(540, 500))
    file = ("image_file", large, "a.jpg", "image/jpeg")
    sizes = {}
    for size, kind in (("preview", "png"), ("full", "jpg"), ("full", "png"), ("50MP", "jpg"), ("medium", "jpg")):
        reply = removebg(file, ("size", size), ("format", kind))
        sizes[size, kind] = int(reply["X-Width"]) * int(reply["X-Height"])
        t.assertEqual(shown(reply).size, (int(reply["X-Width"]), int(reply["X-Height"])))
    for (size, kind), most in zip(sizes, (0.25e4, 25e4, 10e4, 27e4, 1.5e4)):
        t.assertLessEqual(sizes[size, kind], most)
        t.assertGreater(sizes[size, kind], most * 0.95)


@row("removebg", "credits: preview 0.25 with free calls first, full 1, auto by what is left")
def _(t):
    removebg_key(1.5, freeCalls=1)
    charged = [removebg(FILE, ("size", size))["X-Credits-Charged"] for size in ("preview", "preview", "auto", "auto")]
    t.assertEqual(charged, ["0", "0.25", "1", "0.25"])
    reply = removebg(FILE, ("size", "auto"))
    t.assertEqual((reply.status, reply.json), (402, {"errors": [{"title": "Insufficient credits"}]}))
    t.assertEqual(control("keys", service="removebg", key="K")["credits"], 0)


@row("removebg", "400, 402, 403 and 429 are not charged; charges are counted by picture")
def _(t):
    removebg_key(2)
    removebg(FILE, ("size", "nope"))
    removebg(("image_file", b"text", "a.txt", "text/plain"))
    removebg(FILE, ("size", "full"))
    removebg(FILE, ("size", "full"))
    t.assertEqual(removebg(FILE, ("size", "full")).status, 402)
    state = control("keys", service="removebg", key="K")
    t.assertEqual(state["charges"], {hashlib.sha256(JPEG).hexdigest(): {"count": 2, "credits": 2.0}})
    t.assertEqual(state["credits"], 0)


@row("removebg", "input formats: JPG, PNG, WebP")
def _(t):
    removebg_key()
    for data in (JPEG, PNG, WEBP):
        t.assertEqual(removebg(("image_file", data, "a", "image/x")).status, 200)
    for kind in ("GIF", "TIFF", "BMP"):
        t.assertEqual(code_of(removebg(("image_file", saved(kind), "a", "image/x"))), ["invalid_file_type"])


@row("removebg", "input limit: 22 MB")
def _(t):
    removebg_key()
    padded = JPEG + bytes(22_000_001 - len(JPEG))
    t.assertEqual(code_of(removebg(("image_file", padded, "a.jpg", "image/jpeg"))), ["file_too_large"])
    t.assertEqual(removebg(("image_file", padded[:-1], "a.jpg", "image/jpeg")).status, 200)


@row("removebg", "input limit: 50 MP")
def _(t):
    removebg_key()
    data = saved("PNG", Image.new("1", (10_000, 5_001)))
    t.assertEqual(code_of(removebg(("image_file", data, "a.png", "image/png"))), ["resolution_too_high"])
    control("settings", {"removebg": {"megapixel": 10_000}})
    data = saved("PNG", two_coloured(1_000, 500))
    t.assertEqual(removebg(("image_file", data, "a.png", "image/png")).status, 200)


@row("removebg", "failed_to_read_image, unknown_foreground, failed_image_download, failed_bg_download, invalid_image_url")
def _(t):
    removebg_key()
    t.assertEqual(code_of(removebg(("image_file", b"no picture", "a", "x/y"))), ["failed_to_read_image"])
    t.assertEqual(code_of(removebg(("image_file", PNG[: len(PNG) // 2], "a", "x/y"))), ["failed_to_read_image"])
    t.assertEqual(code_of(removebg(("image_file_b64", "data:image/png;base64," + b64(PNG)))), ["failed_to_read_image"])
    plain = saved("PNG", Image.new("RGB", (50, 50), "red"))
    t.assertEqual(code_of(removebg(("image_file", plain, "a", "x/y"))), ["unknown_foreground"])
    t.assertEqual(code_of(removebg(("image_url", BASE + "/pictures/none"))), ["failed_image_download"])
    t.assertEqual(code_of(removebg(FILE, ("bg_image_url", BASE + "/pictures/none"))), ["failed_bg_download"])
    t.assertEqual(code_of(removebg(("image_url", "/etc/passwd"))), ["invalid_image_url"])


@row("removebg", "roi_exceeds_bounds, roi_region_empty")
def _(t):
    removebg_key()
    t.assertEqual(code_of(removebg(FILE, ("roi", "0px 0px 121px 80px"))), ["roi_exceeds_bounds"])
    t.assertEqual(code_of(removebg(FILE, ("roi", "10px 10px 10px 20px"))), ["roi_region_empty"])


@row("removebg", "roi: everything outside becomes background")
def _(t):
    removebg_key()
    alpha = shown(removebg(FILE, ("roi", "60px 0px 120px 80px"), ("format", "png"))).getchannel("A")
    box = alpha.getbbox()
    t.assertTrue(60 <= box[0] and box[2] <= 120)


@row("removebg", "several errors at once")
def _(t):
    removebg_key()
    t.assertEqual(code_of(removebg(FILE, ("size", "x"), ("format", "x"))), ["invalid_size", "invalid_format"])


@row("removebg", "answer: binary for no Accept, */*, image/*; straight alpha, colours kept")
def _(t):
    removebg_key()
    for accept in (None, "*/*", "image/*", "image/png"):
        reply = removebg(("image_file", PNG, "a.png", "image/png"), accept=accept)
        t.assertEqual(reply["Content-Type"], "image/png")
    image = shown(reply)
    t.assertEqual(image.mode, "RGBA")
    t.assertEqual(image.convert("RGB").tobytes(), pictures.load(PNG).tobytes())
    t.assertEqual(image.getchannel("A").tobytes(), pictures.ellipse(120, 80, (0, 0, 120, 80)).tobytes())


@row("removebg", "answer: application/json with result_b64 and the foreground's box")
def _(t):
    removebg_key()
    reply = removebg(FILE, accept="application/json")
    t.assertEqual(reply["Content-Type"], "application/json")
    data = reply.json["data"]
    names = ["foreground_height", "foreground_left", "foreground_top", "foreground_width", "result_b64"]
    t.assertEqual(sorted(data), names)
    image = Image.open(io.BytesIO(base64.b64decode(data["result_b64"], validate=True)))
    t.assertEqual((image.format, image.size), ("PNG", (120, 80)))
    t.assertEqual(data["foreground_width"], int(reply["X-Foreground-Width"]))


@row("removebg", "answer: zip of color.jpg and alpha.png")
def _(t):
    removebg_key()
    reply = removebg(FILE, ("format", "zip"))
    t.assertEqual(reply["Content-Type"], "application/zip")
    archive = zipfile.ZipFile(io.BytesIO(reply.body))
    t.assertEqual(archive.namelist(), ["color.jpg", "alpha.png"])
    colour, alpha = (Image.open(io.BytesIO(archive.read(name))) for name in archive.namelist())
    t.assertEqual((colour.format, colour.mode, alpha.format, alpha.mode), ("JPEG", "RGB", "PNG", "L"))
    t.assertEqual(alpha.getpixel((60, 40)), 255)


@row("removebg", "answer: auto is png with transparency, else jpg; webp; alpha as the image")
def _(t):
    removebg_key()
    t.assertEqual(removebg(FILE)["Content-Type"], "image/png")
    t.assertEqual(removebg(FILE, ("bg_color", "00ff00"))["Content-Type"], "image/jpeg")
    t.assertEqual(removebg(FILE, ("bg_color", "00ff0080"))["Content-Type"], "image/png")
    t.assertEqual(removebg(FILE, ("format", "webp"))["Content-Type"], "image/webp")
    t.assertEqual(shown(removebg(FILE, ("channels", "alpha"), ("format", "png"))).mode, "L")
    colour = shown(removebg(FILE, ("bg_color", "00ff00"), ("format", "png"))).convert("RGB").getpixel((0, 0))
    t.assertEqual(colour, (0, 255, 0))


@row("removebg", "answer: crop with margin, scale, position")
def _(t):
    removebg_key()
    whole = removebg(FILE)
    width, height = int(whole["X-Foreground-Width"]), int(whole["X-Foreground-Height"])
    cropped = removebg(FILE, ("crop", "true"))
    t.assertEqual((int(cropped["X-Width"]), int(cropped["X-Height"])), (width, height))
    wider = removebg(FILE, ("crop", "true"), ("crop_margin", "2px 5px"))
    t.assertEqual((int(wider["X-Width"]), int(wider["X-Height"])), (width + 10, height + 4))
    scaled = shown(removebg(FILE, ("scale", "50%"), ("format", "png")))
    box = scaled.getchannel("A").getbbox()
    t.assertEqual(scaled.size, (120, 80))
    t.assertLessEqual(max(abs((box[2] - box[0]) - 60), abs((box[3] - box[1]) - 40)), 20)
    moved = shown(removebg(FILE, ("position", "0% 0%"), ("format", "png"))).getchannel("A").getbbox()
    t.assertEqual(moved[:2], (0, 0))


@row("removebg", "X-Type: by type and type_level, absent with none")
def _(t):
    removebg_key()

    def subject(kind, level):
        return removebg(FILE, ("type", kind), ("type_level", level))["X-Type"]

    t.assertEqual(subject("person", "1"), "person")
    t.assertEqual(subject("graphic", "1"), "other")
    t.assertEqual(subject("graphic", "2"), "graphics")
    t.assertEqual(subject("transportation", "latest"), "transportation")
    t.assertIsNone(subject("person", "none"))


@row("removebg", "X-Width, X-Height, X-Credits-Charged, X-Foreground-*")
def _(t):
    removebg_key()
    reply = removebg(FILE, ("size", "full"))
    box = shown(reply).getchannel("A").getbbox()
    names = ("Left", "Top", "Width", "Height")
    left, top, width, height = (int(reply["X-Foreground-" + name]) for name in names)
    t.assertEqual((left, top, left + width, top + height), box)
    t.assertEqual((reply["X-Width"], reply["X-Height"], reply["X-Credits-Charged"]), ("120", "80", "1"))


@row("removebg", "rate: 500 a minute, weighted by megapixels, at least 1")
def _(t):
    removebg_key()
    reply = removebg(FILE)
    t.assertEqual((reply["X-RateLimit-Limit"], reply["X-RateLimit-Remaining"]), ("500", "499"))
    t.assertTrue(0 <= int(reply["X-RateLimit-Reset"]) - time.time() <= 61)
    control("settings", {"removebg": {"megapixel": 10_000}})
    large = saved("JPEG", two_coloured(400, 250))
    reply = removebg(("image_file", large, "a.jpg", "image/jpeg"))
    t.assertEqual(reply["X-RateLimit-Remaining"], "489")


@row("removebg", "429 with Retry-After and the rate headers, then on")
def _(t):
    removebg_key(rate=2, window=1)
    t.assertEqual([removebg(FILE).status for _ in range(3)], [200, 200, 429])
    reply = removebg(FILE)
    t.assertEqual((reply["Retry-After"], reply["X-RateLimit-Remaining"]), ("1", "0"))
    t.assertEqual(reply.json["errors"][0]["title"], "Rate limit exceeded")
    APPLICATION.services["removebg"].accounts["K"].started -= 1
    t.assertEqual(removebg(FILE).status, 200)


@row("removebg", "GET /account")
def _(t):
    removebg_key(3.75, freeCalls=7)
    reply = send("GET", "/v1.0/account", headers={"X-Api-Key": "K"})
    credits = {"total": 3.75, "subscription": 0, "payg": 3.75, "enterprise": 0}
    t.assertEqual(
        reply.json, {"data": {"attributes": {"credits": credits, "api": {"free_calls": 7, "sizes": "all"}}}}
    )
    t.assertEqual(send("GET", "/v1.0/account", headers={"X-Api-Key": "no"}).status, 403)


@row("removebg", "every documented code can be scripted; a title alone too")
def _(t):
    import removebg as module

    removebg_key()
    for code in module.CODES:
        control("script", {"service": "removebg", "shape": code})
        t.assertEqual(code_of(removebg(FILE)), [code])
    for shape, status in (("insufficient_credits", 402), ("rate_limit_exceeded", 429), ("auth_failed", 403)):
        control("script", {"service": "removebg", "shape": shape})
        t.assertEqual(removebg(FILE).status, status)
    control("script", {"service": "removebg", "shape": "download_without_code"})
    t.assertEqual(removebg(FILE).json, {"errors": [{"title": "Failed to download image"}]})
    t.assertEqual(control("keys", service="removebg", key="K")["calls"], 0)


# --- Imgur -------------------------------------------------------------------------------------------------------


def imgur_key(**more):
    control("keys", {"service": "imgur", "key": "CID", "secret": "S", **more})


def imgur(*parts, path="/3/image", authorization="Client-ID CID", form_body=None, json_body=None):
    body, kind = form(**form_body) if form_body is not None else multipart(*parts)
    if json_body is not None:
        body, kind = json.dumps(json_body).encode(), "application/json"
    headers = {"Content-Type": kind}
    if authorization:
        headers["Authorization"] = authorization
    return send("POST", path, body, headers)


IMAGE = ("image", PNG, "a.png", "image/png")
TYPE_FILE = ("type", "file")


def get_imgur(path, authorization="Client-ID CID", method="GET", **headers):
    return send(method, path, headers={"Authorization": authorization, **headers})


@row("imgur", "auth: Client-ID, Bearer; 401 without, 403 for unknown ones")
def _(t):
    imgur_key(token="T")
    imgur_key()
    t.assertEqual(imgur(IMAGE, TYPE_FILE).status, 200)
    t.assertEqual(imgur(IMAGE, TYPE_FILE, authorization="Bearer T").status, 200)
    reply = imgur(IMAGE, TYPE_FILE, authorization=None)
    t.assertEqual((reply.status, reply.json["success"], reply.json["status"]), (401, False, 401))
    t.assertEqual(imgur(IMAGE, TYPE_FILE, authorization="Client-ID no").status, 403)


@row("imgur", "refresh: a 403 with an old token, a new one by oauth2/token")
def _(t):
    imgur_key()
    imgur_key(token="T", refresh="R")
    control("expire", {"token": "T"})
    t.assertEqual(imgur(IMAGE, TYPE_FILE, authorization="Bearer T").status, 403)

    def refreshed(**change):
        fields = {"refresh_token": "R", "client_id": "CID", "client_secret": "S", "grant_type": "refresh_token"}
        body, kind = form(**{**fields, **change})
        return send("POST", "/oauth2/token", body, {"Content-Type": kind})

    t.assertEqual(refreshed(client_secret="no").status, 400)
    t.assertEqual(refreshed(grant_type="code").status, 400)
    value = refreshed().json
    t.assertEqual(sorted(value), ["access_token", "account_username", "expires_in", "refresh_token", "token_type"])
    t.assertEqual(imgur(IMAGE, TYPE_FILE, authorization="Bearer " + value["access_token"]).status, 200)


@row("imgur", "upload: file, base64, URL in multipart; base64 and URL urlencoded; /3/upload too")
def _(t):
    imgur_key()
    wanted = hashlib.sha256(PNG).hexdigest()
    replies = [
        imgur(IMAGE, TYPE_FILE),
        imgur(IMAGE, TYPE_FILE, path="/3/upload"),
        imgur(("image", b64(PNG)), ("type", "base64")),
        imgur(("image", SAMPLE), ("type", "URL")),
        imgur(("image", SAMPLE), ("type", "url")),
        imgur(form_body={"image": b64(PNG), "type": "base64"}),
        imgur(form_body={"image": SAMPLE, "type": "url"}),
    ]
    t.assertEqual([reply.status for reply in replies], [200] * 7)
    images = control("keys", service="imgur", key="CID")["images"]
    t.assertEqual([image["sha256"] for image in images], [wanted] * 7)


@row("imgur", "upload: base64 whose + is not encoded, or with a data URI, is refused")
def _(t):
    imgur_key()
    data = next(png for png in (pictures.encode(pictures.sample(50, 40, seed), "png") for seed in range(99)) if "+" in b64(png))
    headers = {"Authorization": "Client-ID CID", "Content-Type": "application/x-www-form-urlencoded"}
    reply = send("POST", "/3/image", "type=base64&image=" + b64(data), headers)
    t.assertEqual((reply.status, reply.json["data"]["error"]["code"]), (400, 1003))
    t.assertEqual(imgur(("image", "data:image/png;base64," + b64(PNG)), ("type", "base64")).status, 400)


@row("imgur", "upload: image is required, type advised, JSON refused")
def _(t):
    imgur_key()
    t.assertEqual(imgur(TYPE_FILE).status, 400)
    t.assertEqual(imgur(json_body={"image": b64(PNG)}).status, 400)
    t.assertEqual(imgur(("image", PNG.hex()), TYPE_FILE).status, 400)
    t.assertEqual(imgur(("image", "ftp://h/x"), ("type", "url")).json["data"]["error"], "Invalid URL")
    t.assertEqual(imgur(IMAGE).status, 200)
    t.assertIn("type not sent", control("log", key="CID")["entries"][-1]["remarks"])


@row("imgur", "upload: album by deletehash when anonymous, by id with a token")
def _(t):
    imgur_key(albums={"ALB": "ALBHASH"})
    imgur_key(token="T", albums=["MINE"])
    t.assertEqual(imgur(IMAGE, TYPE_FILE, ("album", "ALBHASH")).status, 200)
    t.assertEqual(imgur(IMAGE, TYPE_FILE, ("album", "ALB")).status, 403)
    t.assertEqual(imgur(IMAGE, TYPE_FILE, ("album", "MINE"), authorization="Bearer T").status, 200)
    t.assertEqual(imgur(IMAGE, TYPE_FILE, ("album", "ALBHASH"), authorization="Bearer T").status, 403)


@row("imgur", "upload: title, description, name are kept")
def _(t):
    imgur_key()
    data = imgur(IMAGE, TYPE_FILE, ("title", "Ä"), ("description", "d\n2"), ("name", "n")).json["data"]
    t.assertEqual((data["title"], data["description"], data["name"]), ("Ä", "d\n2", "n"))


@row("imgur", "success: the documented shape")
def _(t):
    imgur_key()
    value = imgur(IMAGE, TYPE_FILE).json
    t.assertEqual((value["success"], value["status"]), (True, 200))
    names = """id deletehash link title description datetime type animated width height size views bandwidth vote
      favorite nsfw section account_url account_id is_ad in_most_viral tags ad_type ad_url in_gallery name""".split()
    t.assertEqual(sorted(value["data"]), sorted(names))
    for name in ("title", "description", "vote", "nsfw", "section", "account_url"):
        t.assertIsNone(value["data"][name])
    t.assertEqual((value["data"]["width"], value["data"]["height"], value["data"]["size"]), (120, 80, len(PNG)))
    t.assertTrue(value["data"]["link"].startswith("https://i.imgur.com/"))
    control("settings", {"imgur": {"links": "http"}})
    t.assertTrue(imgur(IMAGE, TYPE_FILE).json["data"]["link"].startswith("http://i.imgur.com/"))


@row("imgur", "success: animated ones add mp4, gifv, looping")
def _(t):
    imgur_key()
    out = io.BytesIO()
    pictures.sample(20, 20).save(out, "GIF", save_all=True, append_images=[pictures.sample(20, 20, 3)])
    data = imgur(("image", out.getvalue(), "a.gif", "image/gif"), TYPE_FILE).json["data"]
    t.assertTrue(data["animated"] and data["looping"] and data["mp4"] and data["gifv"])


@row("imgur", "DELETE by deletehash when anonymous, by id for the owner")
def _(t):
    imgur_key()
    imgur_key(token="T")
    data = imgur(IMAGE, TYPE_FILE).json["data"]
    t.assertEqual(get_imgur("/3/image/" + data["id"], method="DELETE").status, 403)
    reply = get_imgur("/3/image/" + data["deletehash"], method="DELETE")
    t.assertEqual((reply.status, reply.json), (200, {"data": True, "success": True, "status": 200}))
    t.assertEqual(get_imgur("/3/image/" + data["deletehash"], method="DELETE").status, 404)
    data = imgur(IMAGE, TYPE_FILE, authorization="Bearer T").json["data"]
    t.assertEqual(get_imgur("/3/image/" + data["id"], "Bearer T", method="DELETE").status, 200)


@row("imgur", "limit: 10 MB, code 1002")
def _(t):
    imgur_key()
    padded = PNG + bytes(10_000_001 - len(PNG))
    reply = imgur(("image", padded, "a.png", "image/png"), TYPE_FILE)
    t.assertEqual((reply.status, reply.json["data"]["error"]["code"]), (400, 1002))
    t.assertEqual(imgur(("image", padded[:-1], "a.png", "image/png"), TYPE_FILE).status, 200)


@row("imgur", "types: JPEG, PNG, GIF, TIFF; not WebP, AVIF; code 1003")
def _(t):
    imgur_key()
    for data in (JPEG, PNG, saved("GIF"), saved("TIFF")):
        t.assertEqual(imgur(("image", data, "a", "image/x"), TYPE_FILE).status, 200)
    for data in (WEBP, saved("AVIF"), b"text"):
        error = imgur(("image", data, "a", "image/x"), TYPE_FILE).json["data"]["error"]
        t.assertEqual((error["code"], error["type"]), (1003, "ImgurException"))


@row("imgur", "credits: an upload 10, a call 1, OAuth 0")
def _(t):
    imgur_key(userLimit=100, clientLimit=200)
    reply = imgur(IMAGE, TYPE_FILE)
    t.assertEqual((reply["X-RateLimit-UserRemaining"], reply["X-RateLimit-ClientRemaining"]), ("90", "190"))
    data = get_imgur("/3/credits").json["data"]
    t.assertEqual(sorted(data), ["ClientLimit", "ClientRemaining", "UserLimit", "UserRemaining", "UserReset"])
    t.assertEqual((data["UserRemaining"], data["ClientRemaining"]), (89, 189))


@row("imgur", "rate headers: reset as epoch, or as seconds from now; POST quota in seconds")
def _(t):
    imgur_key()
    reply = imgur(IMAGE, TYPE_FILE)
    t.assertTrue(3500 < int(reply["X-RateLimit-UserReset"]) - time.time() <= 3600)
    t.assertTrue(3500 < int(reply["X-Post-Rate-Limit-Reset"]) <= 3600)
    imgur_key(resetAs="seconds")
    t.assertTrue(3500 < int(imgur(IMAGE, TYPE_FILE)["X-RateLimit-UserReset"]) <= 3600)


@row("imgur", "429 shape a at the limit, without Retry-After")
def _(t):
    imgur_key(userLimit=15)
    t.assertEqual(imgur(IMAGE, TYPE_FILE).status, 200)
    reply = imgur(IMAGE, TYPE_FILE)
    t.assertEqual((reply.status, reply.json["status"], reply.json["success"]), (429, 429, False))
    t.assertEqual(reply.json["data"]["request"], "/3/image")
    t.assertIsNone(reply["Retry-After"])
    t.assertEqual(reply["X-RateLimit-UserRemaining"], "5")


def imgur_shape(name, page_row, status, check):
    @row("imgur", page_row)
    def _(t):
        imgur_key()
        control("script", {"service": "imgur", "shape": name})
        reply = imgur(IMAGE, TYPE_FILE)
        t.assertEqual(reply.status, status)
        t.assertTrue(check(reply.json), reply.body)
        t.assertEqual(imgur(IMAGE, TYPE_FILE).status, 200)


imgur_shape("dailyLimit", "error a", 429, lambda v: v["data"]["error"] == "Daily client requests exceeded")
imgur_shape("typeInvalid", "error b, 1003", 400, lambda v: v["data"]["error"]["code"] == 1003)
imgur_shape("overSize", "error b, 1002", 400, lambda v: v["data"]["error"]["code"] == 1002)
imgur_shape("errorsArray", "error c", 429, lambda v: v["errors"][0]["code"] == "429" and "data" not in v)
imgur_shape("overCapacity", "error d", 403, lambda v: "over capacity" in v["data"]["error"])
imgur_shape("tooFast", "error e", 400, lambda v: "Please wait 13 more minutes" in json.dumps(v))
imgur_shape("successFalse", "200 with success false", 200, lambda v: v["success"] is False)
imgur_shape("blockedClient", "403 for a blocked client", 403, lambda v: v["success"] is False)


@row("imgur", "error f: HTML with any status")
def _(t):
    imgur_key()
    for status in (200, 403, 503):
        control("script", {"service": "imgur", "html": True, "status": status})
        reply = imgur(IMAGE, TYPE_FILE)
        t.assertEqual(reply.status, status)
        t.assertTrue(reply["Content-Type"].startswith("text/html") and b"<html" in reply.body)


GALLERY = [
    {"id": "a1", "title": "Red fox", "is_album": False, "link": BASE + "/pictures/sample/30x20.png",
     "type": "image/png", "width": 30, "height": 20, "animated": False},
    {"id": "a2", "title": "Fox album", "is_album": True, "link": "https://imgur.com/a/a2", "cover": "c",
     "cover_width": 900, "cover_height": 700, "images_count": 2},
    {"id": "a3", "title": "Blue whale", "is_album": False, "link": BASE + "/pictures/sample/900x20.jpg",
     "type": "image/jpeg", "width": 900, "height": 20, "animated": False},
]  # fmt: skip


def found(query, place="time/all/0"):
    reply = get_imgur(f"/3/gallery/search/{place}?{query}")
    return [item["id"] for item in reply.json["data"]] if reply.status == 200 else reply.status


@row("imgur", "gallery: sort, window, page; past the end an empty array")
def _(t):
    imgur_key()
    control("gallery", {"items": GALLERY})
    control("settings", {"imgur": {"pageSize": 2}})
    pages = [found("q_not=xyz", f"top/week/{page}") for page in range(3)]
    t.assertEqual(pages, [["a1", "a2"], ["a3"], []])
    t.assertEqual([found("q=fox", place) for place in ("new/all/0", "time/hour/0", "time/all/x")], [400] * 3)
    t.assertEqual(found("q=fox", "time"), ["a1", "a2"])
    t.assertIn("not all sent", control("log", key="CID")["entries"][-1]["remarks"][0])


@row("imgur", "gallery: q, and advanced words that make q ignored")
def _(t):
    imgur_key()
    control("gallery", {"items": GALLERY})
    t.assertEqual(found("q=fox%20NOT%20album"), ["a1"])
    t.assertEqual(found("q=fox&q_all=whale"), ["a3"])
    t.assertEqual(found("q_any=whale+red"), ["a1", "a3"])
    t.assertEqual(found("q_exactly=fox+album"), ["a2"])
    t.assertEqual(found("x=1"), 400)


@row("imgur", "gallery: q_type and q_size_px")
def _(t):
    imgur_key()
    control("gallery", {"items": GALLERY})
    t.assertEqual(found("q_type=album"), ["a2"])
    t.assertEqual(found("q_type=jpg&q_size_px=med"), ["a3"])
    t.assertEqual(found("q_size_px=small"), ["a1"])
    t.assertEqual([found("q_type=webp"), found("q_size_px=tiny")], [400, 400])


@row("imgur", "album: all images, not paged")
def _(t):
    imgur_key()
    control("gallery", {"items": GALLERY, "albums": {"a2": [GALLERY[0], GALLERY[2]]}})
    t.assertEqual(len(get_imgur("/3/album/a2/images").json["data"]), 2)
    t.assertEqual(get_imgur("/3/album/zz/images").status, 404)


@row("imgur", "ETag and If-None-Match on GET; a 304 counts")
def _(t):
    imgur_key()
    control("gallery", {"items": GALLERY})
    tag = get_imgur("/3/gallery/search/time/all/0?q=fox")["ETag"]
    reply = get_imgur("/3/gallery/search/time/all/0?q=fox", **{"If-None-Match": tag})
    t.assertEqual((reply.status, reply["X-RateLimit-UserRemaining"]), (304, "498"))


@row("imgur", "links lead to the picture when asked for")
def _(t):
    imgur_key()
    control("settings", {"imgur": {"links": "here"}})
    link = imgur(IMAGE, TYPE_FILE).json["data"]["link"]
    reply = send("GET", link.removeprefix(BASE))
    t.assertEqual((reply.body, reply["Content-Type"]), (PNG, "image/png"))


# --- imgbb -------------------------------------------------------------------------------------------------------


def imgbb(*parts, query="", form_body=None):
    body, kind = form(**form_body) if form_body is not None else multipart(*parts)
    return send("POST", "/1/upload" + query, body, {"Content-Type": kind})


def imgbb_key():
    control("keys", {"service": "imgbb", "key": "BB"})


@row("imgbb", "key in the query or in the form")
def _(t):
    imgbb_key()
    t.assertEqual(imgbb(IMAGE, query="?key=BB").status, 200)
    t.assertEqual(imgbb(("key", "BB"), IMAGE).status, 200)
    t.assertEqual(imgbb(form_body={"key": "BB", "image": b64(PNG)}).status, 200)


@row("imgbb", "code 100 and HTTP 400 for a bad key, in a shape of its own")
def _(t):
    imgbb_key()
    for reply in (imgbb(IMAGE, query="?key=no"), imgbb(IMAGE)):
        error = {"message": "Invalid API v1 key.", "code": 100}
        t.assertEqual(reply.json, {"status_code": 400, "error": error, "status_txt": "Bad Request"})


@row("imgbb", "image: file part, base64, URL; multipart and urlencoded")
def _(t):
    imgbb_key()
    for parts in ([IMAGE], [("image", b64(PNG))], [("image", SAMPLE)]):
        t.assertEqual(imgbb(*parts, query="?key=BB").status, 200)
    for value in (b64(PNG), SAMPLE):
        t.assertEqual(imgbb(form_body={"image": value}, query="?key=BB").status, 200)
    digests = {image["sha256"] for image in control("keys", service="imgbb", key="BB")["images"]}
    t.assertEqual(digests, {hashlib.sha256(PNG).hexdigest()})


@row("imgbb", "code 310: no image, data: prefix, no picture")
def _(t):
    imgbb_key()
    for parts in ([("name", "n")], [("image", "data:image/png;base64," + b64(PNG))], [("image", b"x", "a", "b/c")]):
        t.assertEqual(imgbb(*parts, query="?key=BB").json["error"]["code"], 310)


@row("imgbb", "code 311: a type it does not take")
def _(t):
    imgbb_key()
    reply = imgbb(("image", saved("PPM"), "a.ppm", "image/x"), query="?key=BB")
    t.assertEqual(reply.json["error"]["code"], 311)


@row("imgbb", "code 313: more than 32 MB")
def _(t):
    imgbb_key()
    padded = PNG + bytes(32_000_001 - len(PNG))
    t.assertEqual(imgbb(("image", padded, "a.png", "i/p"), query="?key=BB").json["error"]["code"], 313)
    t.assertEqual(imgbb(("image", padded[:-1], "a.png", "i/p"), query="?key=BB").status, 200)


@row("imgbb", "name, else the part's file name")
def _(t):
    imgbb_key()
    t.assertEqual(imgbb(IMAGE, ("name", "chosen"), query="?key=BB").json["data"]["title"], "chosen")
    t.assertEqual(imgbb(IMAGE, query="?key=BB").json["data"]["title"], "a")


@row("imgbb", "expiration 60 to 15552000, query or form")
def _(t):
    imgbb_key()
    for value, status in (("59", 400), ("60", 200), ("15552000", 200), ("15552001", 400), ("x", 400)):
        t.assertEqual(imgbb(IMAGE, query=f"?key=BB&expiration={value}").status, status)
    data = imgbb(IMAGE, ("expiration", "600"), query="?key=BB").json["data"]
    t.assertEqual(data["expiration"], "600")


@row("imgbb", "success: the documented shape; 0 for never; medium may be absent")
def _(t):
    imgbb_key()
    value = imgbb(IMAGE, query="?key=BB").json
    t.assertEqual((value["success"], value["status"], value["data"]["expiration"]), (True, 200, "0"))
    names = """id title url_viewer url display_url width height size time expiration image thumb delete_url""".split()
    t.assertEqual(sorted(value["data"]), sorted(names))
    t.assertEqual(sorted(value["data"]["image"]), ["extension", "filename", "mime", "name", "url"])
    large = pictures.encode(pictures.sample(800, 600), "png")
    t.assertIn("medium", imgbb(("image", large, "a.png", "i/p"), query="?key=BB").json["data"])


@row("imgbb", "numbers as text, or as numbers")
def _(t):
    imgbb_key()
    t.assertEqual(imgbb(IMAGE, query="?key=BB").json["data"]["width"], "120")
    control("settings", {"imgbb": {"numbers": "int"}})
    data = imgbb(IMAGE, query="?key=BB").json["data"]
    t.assertEqual([data[name] for name in ("width", "height", "size", "expiration")], [120, 80, len(PNG), 0])


@row("imgbb", "url hands out the picture; viewer and deletion are HTML pages")
def _(t):
    imgbb_key()
    control("settings", {"imgbb": {"links": "here"}})
    data = imgbb(IMAGE, query="?key=BB").json["data"]
    t.assertEqual(send("GET", data["url"].removeprefix(BASE)).body, PNG)
    for name in ("url_viewer", "delete_url"):
        t.assertIn("text/html", send("GET", data[name].removeprefix(BASE))["Content-Type"])


@row("imgbb", "GET with everything in the query")
def _(t):
    imgbb_key()
    query = urllib.parse.urlencode({"key": "BB", "image": b64(PNG)})
    t.assertEqual(send("GET", "/1/upload?" + query).status, 200)


@row("imgbb", "each error code can be scripted, HTML on 2xx too")
def _(t):
    imgbb_key()
    shapes = {"invalidKey": 100, "invalidImage": 310, "typeInvalid": 311, "tooBig": 313, "duplicate": 101,
              "inappropriate": 403}  # fmt: skip
    for shape, code in shapes.items():
        control("script", {"service": "imgbb", "shape": shape})
        reply = imgbb(IMAGE, query="?key=BB")
        t.assertEqual((reply.status, reply.json["error"]["code"]), (400, code))
    control("script", {"service": "imgbb", "html": True})
    reply = imgbb(IMAGE, query="?key=BB")
    t.assertEqual((reply.status, reply["Content-Type"]), (200, "text/html; charset=utf-8"))


# --- Azure -------------------------------------------------------------------------------------------------------


def azure_key():
    control("keys", {"service": "azure", "key": "acct", "containers": ["c"]})


def sas(**more):
    return control("sas", {"account": "acct", "container": "c", **more})["sas"]


BLOCK = {"x-ms-blob-type": "BlockBlob"}


def put(query, name="b.png", body=PNG, headers=None, **more):
    all_headers = {**BLOCK, **(headers or {})}
    return send("PUT", f"/acct/c/{name}?{query}", body, {k: v for k, v in all_headers.items() if v is not None}, **more)


def code(reply):
    assert reply["x-ms-error-code"] in reply.body.decode("utf-8-sig"), reply.body
    return reply.status, reply["x-ms-error-code"]


@row("azure", "PUT: 201 with ETag, Last-Modified, Content-MD5, x-ms-request-id, x-ms-version")
def _(t):
    azure_key()
    reply = put(sas())
    t.assertEqual(reply.status, 201)
    t.assertRegex(reply["ETag"], r'^"0x8D[0-9A-F]+"$')
    t.assertEqual(reply["Content-MD5"], b64(hashlib.md5(PNG).digest()))
    for name in ("Last-Modified", "x-ms-request-id", "x-ms-version"):
        t.assertTrue(reply[name])


@row("azure", "x-ms-blob-type is required")
def _(t):
    azure_key()
    t.assertEqual(code(put(sas(), headers={"x-ms-blob-type": None})), (400, "MissingRequiredHeader"))
    t.assertEqual(code(put(sas(), headers={"x-ms-blob-type": "Block"})), (400, "InvalidHeaderValue"))


@row("azure", "no chunked body")
def _(t):
    azure_key()
    t.assertEqual(put(sas(), chunked=True).status, 411)


@row("azure", "no Authorization header")
def _(t):
    azure_key()
    t.assertEqual(code(put(sas(), headers={"Authorization": "Basic eDp5"})), (403, "AuthenticationFailed"))


@row("azure", "Content-Type, x-ms-blob-content-type wins, default octet-stream")
def _(t):
    azure_key()
    query = sas(permissions="rw")

    def stored(headers):
        t.assertEqual(put(query, headers=headers).status, 201)
        return send("GET", f"/acct/c/b.png?{query}")["Content-Type"]

    t.assertEqual(stored({}), "application/octet-stream")
    t.assertEqual(stored({"Content-Type": "image/png"}), "image/png")
    t.assertEqual(stored({"Content-Type": "text/x", "x-ms-blob-content-type": "image/png"}), "image/png")


@row("azure", "cache control, disposition, encoding and metadata are stored; overwriting drops them")
def _(t):
    azure_key()
    query = sas(permissions="rw")
    headers = {"x-ms-blob-cache-control": "max-age=5", "x-ms-blob-content-disposition": "inline", "x-ms-meta-sha": "1"}
    put(query, headers=headers)
    reply = send("HEAD", f"/acct/c/b.png?{query}")
    t.assertEqual((reply["Cache-Control"], reply["Content-Disposition"], reply["x-ms-meta-sha"]), ("max-age=5", "inline", "1"))
    put(query)
    t.assertIsNone(send("HEAD", f"/acct/c/b.png?{query}")["x-ms-meta-sha"])


@row("azure", "metadata names are identifiers")
def _(t):
    azure_key()
    t.assertEqual(put(sas(), headers={"x-ms-meta-my-name": "1"}).status, 400)
    t.assertEqual(put(sas(), headers={"x-ms-meta-my_name": "1"}).status, 201)


@row("azure", "tags need the t permission, tier is taken")
def _(t):
    azure_key()
    headers = {"x-ms-tags": "a=b", "x-ms-access-tier": "Cool"}
    t.assertEqual(code(put(sas(), headers=headers)), (403, "AuthorizationPermissionMismatch"))
    t.assertEqual(put(sas(permissions="cwt"), headers=headers).status, 201)


@row("azure", "Content-MD5 is checked")
def _(t):
    azure_key()
    good = b64(hashlib.md5(PNG).digest())
    t.assertEqual(put(sas(), headers={"Content-MD5": good}).status, 201)
    other = b64(hashlib.md5(b"").digest())
    t.assertEqual(code(put(sas(), headers={"Content-MD5": other})), (400, "Md5Mismatch"))
    t.assertEqual(code(put(sas(), headers={"Content-MD5": "abc"})), (400, "InvalidMd5"))


@row("azure", "If-None-Match: * on an existing blob is 409")
def _(t):
    azure_key()
    t.assertEqual(put(sas(), headers={"If-None-Match": "*"}).status, 201)
    t.assertEqual(code(put(sas(), headers={"If-None-Match": "*"})), (409, "BlobAlreadyExists"))


@row("azure", "412: other conditions, leases")
def _(t):
    azure_key()
    etag = put(sas())["ETag"]
    t.assertEqual(code(put(sas(), headers={"If-Match": '"0x1"'})), (412, "ConditionNotMet"))
    t.assertEqual(code(put(sas(), headers={"If-None-Match": etag})), (412, "ConditionNotMet"))
    control("lease", {"account": "acct", "container": "c", "blob": "b.png", "lease": "L"})
    t.assertEqual(code(put(sas())), (412, "LeaseIdMissing"))


@row("azure", "sp: c creates, w overwrites")
def _(t):
    azure_key()
    t.assertEqual(put(sas(permissions="c")).status, 201)
    t.assertEqual(code(put(sas(permissions="c"))), (403, "AuthorizationPermissionMismatch"))
    t.assertEqual(put(sas(permissions="w")).status, 201)
    t.assertEqual(code(put(sas(permissions="r"), name="n")), (403, "AuthorizationPermissionMismatch"))


@row("azure", "sig: byte for byte; decoded or encoded twice it fails")
def _(t):
    azure_key()
    query = sas(awkward=True)
    t.assertEqual(put(query).status, 201)
    for broken in (query.replace("%2B", "+"), query.replace("%2B", "%252B"), query[:-4] + "AA%3D", query.split("&sig")[0]):
        reply = put(broken)
        t.assertEqual(code(reply), (403, "AuthenticationFailed"))
        t.assertIn(b"AuthenticationErrorDetail", reply.body)


@row("azure", "sig: the string to sign of a container's SAS")
def _(t):
    azure_key()
    values = dict(urllib.parse.parse_qsl(sas()))
    lines = [values["sp"], "", values["se"], "/blob/acct/c", "", "", "", values["sv"], "c", "", "", "", "", "", "", ""]
    secret = hashlib.sha256(b"azureacct").digest()
    wanted = b64(hmac.new(secret, "\n".join(lines).encode(), hashlib.sha256).digest())
    t.assertEqual(values["sig"], wanted)


@row("azure", "se and st: expired, not yet valid")
def _(t):
    azure_key()
    t.assertEqual(code(put(sas(expires="2020-01-01T00:00:00Z"))), (403, "AuthenticationFailed"))
    t.assertEqual(code(put(sas(start="2098-01-01T00:00:00Z"))), (403, "AuthenticationFailed"))


@row("azure", "spr and sip")
def _(t):
    azure_key()
    t.assertEqual(code(put(sas(protocol="https"))), (403, "AuthorizationProtocolMismatch"))
    t.assertEqual(put(sas(protocol="https,http")).status, 201)
    t.assertEqual(code(put(sas(ip="10.1.2.3"))), (403, "AuthorizationSourceIPMismatch"))
    t.assertEqual(put(sas(ip="127.0.0.1")).status, 201)


@row("azure", "a blob's SAS holds for that blob, an account's for its services and types")
def _(t):
    azure_key()
    query = sas(blob="b.png")
    t.assertEqual([put(query).status, put(query, name="other").status], [201, 403])
    t.assertEqual(put(sas(services="bf")).status, 201)
    t.assertEqual(code(put(sas(services="f"))), (403, "AuthorizationServiceMismatch"))
    t.assertEqual(code(put(sas(services="b", types="sc"))), (403, "AuthorizationResourceTypeMismatch"))


@row("azure", "names percent-encoded, folders in them")
def _(t):
    azure_key()
    query = sas(permissions="rcw")
    name = "ä b/c+d%/e&f.png"
    path = urllib.parse.quote(name)
    t.assertEqual(put(query, name=path).status, 201)
    t.assertEqual(list(control("keys", service="azure", key="acct")["c"]), [name])
    t.assertEqual(send("GET", f"/acct/c/{path}?{query}").body, PNG)


@row("azure", "404: container, blob")
def _(t):
    azure_key()
    query = control("sas", {"account": "acct", "container": "none"})["sas"]
    t.assertEqual(code(send("PUT", f"/acct/none/b?{query}", PNG, BLOCK)), (404, "ContainerNotFound"))
    t.assertEqual(code(send("GET", f"/acct/c/none?{sas(permissions='r')}")), (404, "BlobNotFound"))


@row("azure", "413 by the version's limit: 64, 256, 5000 MiB")
def _(t):
    azure_key()
    mib = 1 << 20
    for version, most in (("2015-12-11", 64 * mib), ("2018-03-28", 256 * mib), ("2021-08-06", 5000 * mib)):
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
        with contextlib.closing(connection):
            connection.putrequest("PUT", f"/acct/c/b?{sas(version=version)}")
            connection.putheader("Content-Length", str(most + 1))
            connection.endheaders()
            answer = connection.getresponse()
            t.assertEqual((answer.status, answer.headers["x-ms-error-code"]), (413, "RequestBodyTooLarge"))
    t.assertEqual(put(sas(version="2015-12-11")).status, 201)


@row("azure", "DELETE needs d")
def _(t):
    azure_key()
    put(sas())
    t.assertEqual(code(send("DELETE", f"/acct/c/b.png?{sas()}")), (403, "AuthorizationPermissionMismatch"))
    t.assertEqual(send("DELETE", f"/acct/c/b.png?{sas(permissions='d')}").status, 202)


@row("azure", "every documented code can be scripted, in XML after a byte order mark")
def _(t):
    import azure as module

    azure_key()
    for name, status in module.CODES.items():
        control("script", {"service": "azure", "shape": name})
        reply = put(sas())
        t.assertEqual(code(reply), (status, name))
        t.assertTrue(reply.body.startswith(b"\xef\xbb\xbf<?xml"))


# --- http --------------------------------------------------------------------------------------------------------


def sink(method="POST", path="/sink/t/x", body=b"data", headers=None, **more):
    return send(method, path, body, headers or {}, **more)


@row("http", "PUT 201, then 204; If-None-Match: * 412; GET, DELETE")
def _(t):
    t.assertEqual(sink("PUT").status, 201)
    t.assertEqual(sink("PUT", body=b"new").status, 204)
    t.assertEqual(sink("PUT", headers={"If-None-Match": "*"}).status, 412)
    t.assertEqual(sink("GET", body=None).body, b"new")
    t.assertEqual([sink("DELETE", body=None).status for _ in range(2)], [204, 404])


@row("http", "POST raw and multipart: a link to each file, fields in order")
def _(t):
    value = sink(headers={"Content-Type": "image/png"}).json
    t.assertEqual(send("GET", value["link"].removeprefix(BASE)).body, b"data")
    body, kind = multipart(("a", "1"), ("f", PNG, 'we%22ird.png', "image/png"), ("a", "2"), ("g", JPEG, "b.jpg", "image/jpeg"))
    value = sink(body=body, headers={"Content-Type": kind}).json
    t.assertEqual(value["fields"], [["a", "1"], ["a", "2"]])
    t.assertEqual([file["filename"] for file in value["data"]["files"]], ['we"ird.png', "b.jpg"])
    fields = control("log", service="sink")["entries"][-1]["fields"]
    t.assertEqual([field["name"] for field in fields], ["a", "f", "a", "g"])
    t.assertEqual((fields[1]["type"], fields[1]["sha256"]), ("image/png", hashlib.sha256(PNG).hexdigest()))


@row("http", "a header that is needed: 401 without")
def _(t):
    control("keys", {"service": "sink", "key": "t", "headers": {"X-Token": "abc"}})
    t.assertEqual([sink().status, sink(headers={"X-Token": "abc"}).status], [401, 201])


@row("http", "Expect: 100-continue is answered, and noted")
def _(t):
    with socket.create_connection(("127.0.0.1", PORT), 5) as connection:
        connection.sendall(b"PUT /sink/t/e HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        t.assertTrue(connection.recv(100).startswith(b"HTTP/1.1 100 "))
        connection.sendall(b"abc")
        t.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 201 "))
    t.assertEqual(control("log", service="sink")["entries"][-1]["remarks"], ["Expect header sent"])


@row("http", "redirects: 301, 302, 303, 307, 308 with Location")
def _(t):
    for status in (301, 302, 303, 307, 308):
        control("script", {"service": "sink", "status": status, "to": "http://localhost:1/x"})
        reply = sink()
        t.assertEqual((reply.status, reply["Location"]), (status, "http://localhost:1/x"))


@row("http", "success: 200, 201, 202, 204 can be scripted")
def _(t):
    for status in (200, 201, 202, 204):
        control("script", {"service": "sink", "status": status})
        t.assertEqual(sink().status, status)


@row("http", "retry: 408 425 429 500 502 503 504, with Retry-After in seconds or as a date, or none")
def _(t):
    for status in (408, 425, 429, 500, 502, 503, 504):
        control("script", [{"service": "sink", "status": status, "retryAfter": 3}, {"service": "sink", "status": status}])
        t.assertEqual([(r.status, r["Retry-After"]) for r in (sink(), sink())], [(status, "3"), (status, None)])
    control("script", {"service": "sink", "status": 503, "retryAfterDate": 30})
    t.assertRegex(sink()["Retry-After"], r"^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$")


@row("http", "permanent: 400 404 410 501 505 507")
def _(t):
    for status in (400, 404, 410, 501, 505, 507):
        control("script", {"service": "sink", "status": status, "body": {"message": "no"}})
        reply = sink()
        t.assertEqual((reply.status, reply.json), (status, {"message": "no"}))


@row("http", "limits: reset as epoch or as seconds")
def _(t):
    control("script", [{"service": "imgur", "shape": "dailyLimit", "reset": 90},
                       {"service": "imgur", "shape": "dailyLimit", "reset": 90, "resetAs": "seconds"},
                       {"service": "removebg", "shape": "rate_limit_exceeded", "reset": 90}])  # fmt: skip
    t.assertTrue(85 < int(imgur(IMAGE)["X-RateLimit-UserReset"]) - time.time() <= 90)
    t.assertEqual(imgur(IMAGE)["X-RateLimit-UserReset"], "90")
    t.assertTrue(85 < int(removebg(FILE)["X-RateLimit-Reset"]) - time.time() <= 90)


@row("http", "late answers: a delay, a host's latency, a stall")
def _(t):
    control("script", {"service": "sink", "delay": 0.2})
    control("settings", {"sink": {"latency": 0.1}})
    start = time.monotonic()
    sink()
    t.assertGreaterEqual(time.monotonic() - start, 0.3)
    start = time.monotonic()
    sink()
    t.assertTrue(0.1 <= time.monotonic() - start < 0.25)
    control("script", {"service": "sink", "stall": {"after": 5, "seconds": 0.2}})
    t.assertEqual(sink().status, 201)


@row("http", "cut off: after n bytes of the answer, of its body")
def _(t):
    for rule in ({"cut": 10}, {"cutBody": 10}):
        control("script", {"service": "sink", **rule})
        with t.assertRaises((http.client.HTTPException, OSError)):
            sink()
        t.assertEqual(sink().status, 201)


@row("http", "cut off: no answer once the body was received; processed unless told otherwise")
def _(t):
    removebg_key(5)
    for process, credits in ((True, 4.75), (False, 4.75)):
        rule = {"service": "removebg", "drop": True} | ({} if process else {"status": 500})
        control("script", rule)
        with t.assertRaises((http.client.HTTPException, OSError)):
            removebg(FILE)
        t.assertEqual(control("keys", service="removebg", key="K")["credits"], credits)
    t.assertEqual(control("log", key="K")["entries"][-1]["fate"], "dropped")


@row("http", "cut off: while the body comes")
def _(t):
    control("script", {"service": "sink", "dropAt": 1000})
    with t.assertRaises((http.client.HTTPException, OSError)):
        sink("PUT", body=bytes(1 << 22))
    t.assertEqual(sink("GET", body=None).status, 404)
    t.assertEqual(control("log", service="sink")["entries"][0]["fate"], "dropped while the body came")


@row("http", "cut off: closed or reset")
def _(t):
    for kind, error in ((True, http.client.RemoteDisconnected), ("reset", ConnectionResetError)):
        control("script", {"service": "sink", "drop": kind})
        with t.assertRaises(error) as raised:
            sink()
        t.assertIs(type(raised.exception), error)


@row("http", "compressed answers")
def _(t):
    control("script", {"service": "sink", "status": 200, "body": "a" * 5000, "gzip": True})
    reply = sink()
    t.assertEqual((reply["Content-Encoding"], gzip.decompress(reply.body)), ("gzip", b"a" * 5000))
    t.assertLess(len(reply.body), 200)


@row("http", "a proxy: absolute form, CONNECT")
def _(t):
    reply = send("GET", "http://api.example/echo/x?y", headers={"Host": "api.example"})
    t.assertEqual(reply.json["target"], "http://api.example/echo/x?y")
    t.assertEqual(control("log")["entries"][-1]["proxied"], "api.example")
    with socket.create_connection(("127.0.0.1", PORT), 5) as connection:
        connection.sendall(f"CONNECT other.example:{PORT} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        t.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 200 "))
        connection.sendall(b"GET /echo/through HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        connection.settimeout(5)
        t.assertIn(b"/echo/through", b"".join(iter(lambda: connection.recv(4096), b"")))
    t.assertEqual([entry["service"] for entry in control("log")["entries"]], ["echo", "proxy", "echo"])
    with socket.create_connection(("127.0.0.1", PORT), 5) as connection:
        connection.sendall(b"CONNECT other.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        t.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 502 "))


@row("http", "chunked answers without a length")
def _(t):
    sink("PUT", body=PNG)
    control("script", {"service": "sink", "chunked": True})
    reply = sink("GET", body=None)
    t.assertEqual((reply.body, reply["Content-Length"], reply["Transfer-Encoding"]), (PNG, None, "chunked"))


@row("http", "scripts: by key, method, path, after so many, so many times; unknown entries refused")
def _(t):
    control("script", {"service": "sink", "key": "t", "status": 500, "after": 1, "times": 2})
    t.assertEqual([sink(path="/sink/u/x").status] + [sink().status for _ in range(4)], [201, 201, 500, 500, 201])
    control("script", {"service": "sink", "method": "PUT", "path": "/sink/t/only", "status": 500})
    t.assertEqual([sink().status, sink("PUT").status, sink("PUT", "/sink/t/only").status], [201, 201, 500])
    t.assertEqual(send("POST", "/control/script", json.dumps({"service": "sink", "stat": 1})).status, 400)
    t.assertEqual(control("script")["left"], [])


@row("http", "the picture host: GET, HEAD, ETag, 404")
def _(t):
    send("PUT", "/control/pictures/t/a.png", PNG, {"Content-Type": "image/png"})
    reply = send("GET", "/pictures/t/a.png")
    t.assertEqual((reply.body, reply["Content-Type"]), (PNG, "image/png"))
    t.assertEqual(send("HEAD", "/pictures/t/a.png")["Content-Length"], str(len(PNG)))
    t.assertEqual(send("GET", "/pictures/t/a.png", headers={"If-None-Match": reply["ETag"]}).status, 304)
    t.assertEqual([send("GET", "/pictures/t/b").status, send("POST", "/pictures/t/a.png").status], [404, 405])


@row("http", "the cutting host: image, mask, base64, url")
def _(t):
    def cut(kind):
        return send("POST", "/segment/t/" + kind, PNG, {"Content-Type": "image/png"})

    t.assertEqual([shown(cut(kind)).mode for kind in ("image", "mask")], ["RGBA", "L"])
    image = base64.b64decode(cut("base64").json["result"]["images"][0]["b64"])
    t.assertEqual(image, send("GET", cut("url").json["result"]["url"].removeprefix(BASE)).body)
    body, kind = multipart(("file", JPEG, "a.jpg", "image/jpeg"))
    t.assertEqual(shown(send("POST", "/segment/t/mask", body, {"Content-Type": kind})).mode, "L")
    t.assertEqual(send("POST", "/segment/t/mask", b"x", {"Content-Type": "image/png"}).status, 400)


@row("http", "the log: headers, connection, remarks; off on request; what was kept comes back")
def _(t):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=5)
    with contextlib.closing(connection):
        for _ in range(2):
            connection.request("PUT", "/sink/t/log?a=1", PNG, {"X-Mine": "1"})
            connection.getresponse().read()
    sink()
    entries = control("log", service="sink", key="t")["entries"]
    t.assertEqual([entry["connection"] - entries[0]["connection"] for entry in entries], [0, 0, 1])
    t.assertIn(["X-Mine", "1"], entries[0]["headers"])
    t.assertEqual((entries[0]["query"], entries[0]["length"]), ("a=1", len(PNG)))
    t.assertEqual(send("GET", "/control/uploads/" + entries[0]["sha256"]).body, PNG)
    control("log", off=1)
    sink()
    t.assertEqual(control("log")["entries"], [])
    t.assertEqual(control("counts")["answers"]["sink"], {"201": 1})


@row("http", "reset of one key leaves the others")
def _(t):
    sink(path="/sink/t/1")
    sink(path="/sink/u/1")
    control("script", {"service": "sink", "key": "t", "status": 500})
    control("reset", {"key": "t"})
    t.assertEqual([entry["key"] for entry in control("log")["entries"]], ["u"])
    t.assertEqual(sink(path="/sink/t/2").status, 201)


@row("http", "malformed multipart is refused")
def _(t):
    removebg_key()
    imgur_key()
    good, kind = multipart(FILE)
    for body in (good[:-4], b"x" + good, good.replace(b"form-data", b"attachment"), good + b"more"):
        t.assertEqual(send("POST", "/v1.0/removebg", body, {"X-Api-Key": "K", "Content-Type": kind}).status, 400)
    headers = {"X-Api-Key": "K", "Content-Type": "multipart/form-data"}
    t.assertEqual(send("POST", "/v1.0/removebg", good, headers).status, 400)
    with t.assertRaises(forms.Malformed):
        forms.urlencoded("a=%zz")


class Contract(unittest.TestCase):
    def setUp(self):
        control("reset", {})

    def tearDown(self):
        broken = [entry for entry in APPLICATION.log.entries if any("broke" in remark for remark in entry["remarks"])]
        self.assertEqual(broken, [])


def declare():
    for number, (page, name, function) in enumerate(ROWS):

        def test(self, function=function):
            function(self)

        test.__doc__ = f"{page}: {name}"
        setattr(Contract, f"test_{number:03d}_{page}", test)


declare()

if __name__ == "__main__":
    program = unittest.main(exit=False, verbosity=1, argv=sys.argv[:1] + sys.argv[1:])
    print(f"rows: {program.result.testsRun}")
    sys.exit(0 if program.result.wasSuccessful() else 1)
