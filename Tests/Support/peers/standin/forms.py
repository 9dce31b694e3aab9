"""Bodies of requests, read strictly: multipart/form-data (RFC 7578), urlencoded and JSON."""

import base64
import binascii
import hashlib
import json
import re
import urllib.parse


class Malformed(Exception):
    """A body that is not what its content type says."""


class Part:
    """One field: text, or a file where it has a file name."""

    __slots__ = ("name", "filename", "type", "data")

    def __init__(self, name, data, filename=None, type=None):
        self.name = name
        self.data = data
        self.filename = filename
        self.type = type

    @property
    def text(self):
        try:
            return self.data.decode("utf-8")
        except UnicodeDecodeError:
            raise Malformed(f"field {self.name} is not UTF-8") from None

    def described(self):
        """What the log says of it. Long values by their hash alone."""
        entry = {
            "name": self.name,
            "filename": self.filename,
            "type": self.type,
            "length": len(self.data),
            "sha256": hashlib.sha256(self.data).hexdigest(),
        }
        if self.filename is None and len(self.data) <= 4096:
            entry["value"] = self.data.decode("utf-8", "replace")
        return entry


def media_type(value):
    """The type in lower case and its parameters of a Content-Type header."""
    kind, _, rest = (value or "").partition(";")
    parameters = {}
    for match in re.finditer(r';?\s*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)=("(?:[^"\\]|\\.)*"|[^;\s]*)', rest):
        text = match.group(2)
        if text.startswith('"'):
            text = re.sub(r"\\(.)", r"\1", text[1:-1])
        parameters[match.group(1).lower()] = text
    return kind.strip().lower(), parameters


def multipart(body, boundary):
    """The parts of a body in order."""
    if not boundary or len(boundary) > 70:
        raise Malformed("multipart without a usable boundary")
    delimiter = b"--" + boundary.encode("latin-1")
    if not body.startswith(delimiter):
        raise Malformed("multipart body does not start with its boundary")
    parts = []
    position = len(delimiter)
    while True:
        if body[position : position + 2] == b"--":
            if body[position + 2 :] not in (b"", b"\r\n"):
                raise Malformed("bytes after the closing boundary")
            return parts
        if body[position : position + 2] != b"\r\n":
            raise Malformed("boundary without a line end")
        end = body.find(b"\r\n" + delimiter, position)
        if end < 0:
            raise Malformed("multipart body is not closed")
        parts.append(_part(body[position + 2 : end]))
        position = end + 2 + len(delimiter)


def _part(piece):
    head, separator, data = piece.partition(b"\r\n\r\n")
    if not separator:
        raise Malformed("part without an end of its headers")
    headers = {}
    for line in head.split(b"\r\n"):
        name, colon, value = line.decode("utf-8", "replace").partition(":")
        if not colon or name != name.strip() or name.lower() in headers:
            raise Malformed(f"part header {line!r}")
        headers[name.lower()] = value.strip()
    disposition = headers.get("content-disposition", "")
    match = re.fullmatch(r'form-data;\s*name="([^"]*)"(?:;\s*filename="([^"]*)")?', disposition)
    if not match:
        raise Malformed(f"content disposition {disposition!r}")
    return Part(_unescaped(match.group(1)), data, _unescaped(match.group(2)), headers.get("content-type"))


def _unescaped(text):
    if text is None:
        return None
    for code, character in (("%22", '"'), ("%0D", "\r"), ("%0A", "\n")):
        text = text.replace(code, character)
    return text


def urlencoded(text):
    """Names and values in order. Decoded once, `+` as a space."""
    if isinstance(text, bytes):
        try:
            text = text.decode("ascii")
        except UnicodeDecodeError:
            raise Malformed("urlencoded text that is not ASCII") from None
    parts = []
    for pair in text.split("&") if text else []:
        name, _, value = pair.partition("=")
        for escape in re.findall(r"%..?", pair):
            if not re.fullmatch(r"%[0-9A-Fa-f]{2}", escape):
                raise Malformed(f"percent sign in {pair[:40]!r}")
        parts.append(Part(urllib.parse.unquote_plus(name), urllib.parse.unquote_to_bytes(value.replace("+", " "))))
    return parts


def json_fields(body):
    """The members of a JSON object as fields; numbers and booleans as JSON writes them."""
    try:
        value = json.loads(body.decode("utf-8"))
    except ValueError:
        raise Malformed("body is not JSON") from None
    if not isinstance(value, dict):
        raise Malformed("body is not a JSON object")
    parts = []
    for name, member in value.items():
        if member is None:
            continue
        text = member if isinstance(member, str) else json.dumps(member)
        parts.append(Part(name, text.encode("utf-8")))
    return parts


def strict_base64(text):
    """The bytes of standard base64 with its padding; None for anything else, so also for a data URI."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
