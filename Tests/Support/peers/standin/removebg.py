"""remove.bg API v1.0."""

import base64
import hashlib
import math
import re
import time
import urllib.error
import urllib.request

from PIL import Image

import pictures
from forms import strict_base64
from web import Answer, Service

MEGA = 1_000_000
SIZES = {
    "preview": 0.25, "small": 0.25, "regular": 0.25, "medium": 1.5, "hd": 4, "full": 25, "4k": 25, "50MP": 50,
    "auto": 25,
}  # fmt: skip
# `graphics` only in answers.
TYPES = ("auto", "person", "product", "car", "animal", "graphic", "transportation")
CLASSES = ("person", "product", "car", "animal", "transportation", "graphic", "other")
SHADOWS = ("none", "auto", "car", "3D", "drop")
CODES = (
    "failed_bg_download failed_image_download failed_to_read_image file_too_large invalid_bg_color "
    "invalid_bg_image_url invalid_channels invalid_crop_margin invalid_dimensions invalid_file_type invalid_format "
    "invalid_image_url invalid_position invalid_roi invalid_scale invalid_semitransparency invalid_size "
    "missing_source multiple_bg_sources multiple_sources resolution_too_high roi_exceeds_bounds roi_region_empty "
    "unknown_foreground"
).split()
FIELDS = set(
    "image_file image_file_b64 image_url size type type_level format roi crop crop_margin scale position channels "
    "semitransparency add_shadow shadow_type shadow_opacity bg_color bg_image_url bg_image_file".split()
)
# By media type: the fields that hold a file can only come in multipart.
FILE_FIELDS = ("image_file", "bg_image_file")


class Refused(Exception):
    def __init__(self, *errors):
        self.errors = errors


class Account:
    def __init__(self, settings):
        self.credits = float(settings.get("credits", 0))
        self.free = int(settings.get("freeCalls", 0))
        self.limit = float(settings.get("rate", 500))
        self.window = float(settings.get("window", 60))
        self.started = None
        self.used = 0.0
        # SHA-256 of a picture: how often it was charged, and credits in total.
        self.charges = {}


class RemoveBG(Service):
    name = "removebg"

    def clear(self):
        self.accounts = {}

    def forget(self, key):
        self.accounts.pop(key, None)

    def add_key(self, settings):
        with self.lock:
            account = self.accounts.get(settings["key"])
            if account is None:
                self.accounts[settings["key"]] = Account(settings)
            else:
                account.credits = float(settings.get("credits", account.credits))
                account.free = int(settings.get("freeCalls", account.free))
                account.limit = float(settings.get("rate", account.limit))
                account.window = float(settings.get("window", account.window))

    def state(self, key):
        with self.lock:
            account = self.accounts.get(key)
            if account is None:
                return None
            return {
                "credits": account.credits,
                "freeCalls": account.free,
                "charges": account.charges,
                "charged": sum(charge["credits"] for charge in account.charges.values()),
                "calls": sum(charge["count"] for charge in account.charges.values()),
            }

    @property
    def mega(self):
        """Pixels of a megapixel: fewer where a test wants to reach limits with small pictures."""
        return self.settings.get("megapixel", MEGA)

    def key_of(self, request):
        key = request.header("x-api-key")
        if key is None:
            scheme, _, token = (request.header("authorization") or "").partition(" ")
            key = token.strip() if scheme.lower() == "bearer" else None
        return key

    def answer(self, exchange):
        request = exchange.request
        key = self.key_of(request)
        if not key:
            return self.error(403, "Missing API Key", "auth_failed")
        account = self.accounts.get(key)
        if account is None:
            return self.error(403, "API Key invalid", "auth_failed")
        if request.path == "/v1.0/account" and request.method == "GET":
            return self.account(account)
        if request.path == "/v1.0/removebg" and request.method == "POST":
            try:
                return self.remove(exchange, account)
            except Refused as refusal:
                return Answer.json(400, {"errors": list(refusal.errors)})
        return self.error(404, "Not found")

    def malformed(self, exchange, message):
        return self.error(400, message)

    def error(self, status, title, code=None, headers=()):
        entry = {"title": title}
        if code:
            entry["code"] = code
        return Answer.json(status, {"errors": [entry]}, headers)

    def shape(self, name, exchange, rule):
        message = rule.get("message")
        if name == "insufficient_credits":
            return self.error(402, message or "Insufficient credits")
        if name == "rate_limit_exceeded":
            return self.error(429, message or "Rate limit exceeded", name)
        if name == "auth_failed":
            return self.error(403, message or "API Key invalid", name)
        if name == "missing_key":
            return self.error(403, message or "Missing API Key")
        if name == "download_without_code":
            return self.error(400, message or "Failed to download image")
        if name in CODES:
            return self.error(400, message or name.replace("_", " ").capitalize(), name)
        raise ValueError(name)

    def account(self, account):
        with self.lock:
            value = {
                "total": account.credits,
                "subscription": 0,
                "payg": account.credits,
                "enterprise": 0,
            }
            value = {name: int(amount) if amount == int(amount) else amount for name, amount in value.items()}
            api = {"free_calls": account.free, "sizes": "all"}
        return Answer.json(200, {"data": {"attributes": {"credits": value, "api": api}}})

    # --- removebg ---

    def remove(self, exchange, account):
        request = exchange.request
        settings = self.settings
        fields = self.given(exchange)
        options, errors = self.options(exchange, fields)
        sources = [name for name in ("image_file", "image_file_b64", "image_url") if name in fields]
        if not sources:
            errors.append(failure("missing_source", "No image given", "Please provide the source image"))
        elif len(sources) > 1:
            errors.append(failure("multiple_sources", "Multiple image sources given", ", ".join(sources)))
        backgrounds = [name for name in ("bg_color", "bg_image_url", "bg_image_file") if name in fields]
        if len(backgrounds) > 1:
            errors.append(failure("multiple_bg_sources", "Multiple background sources given", ", ".join(backgrounds)))
        if errors:
            raise Refused(*errors)

        data = self.source(fields[sources[0]], "image")
        exchange.picture = hashlib.sha256(data).hexdigest()
        if len(data) > settings.get("maxBytes", 22 * MEGA):
            raise Refused(failure("file_too_large", "File too large", "Maximum file size: 22 MB"))
        found = pictures.sniff(data)
        if found is None:
            raise Refused(failure("failed_to_read_image", "Failed to read image"))
        if found[0] not in ("JPEG", "PNG", "WEBP"):
            raise Refused(failure("invalid_file_type", "Invalid file type", "Please use JPG, PNG or WebP"))
        pixels = found[1] * found[2]
        if pixels > 50 * self.mega:
            raise Refused(failure("resolution_too_high", "Image resolution too high", "Maximum: 50 megapixels"))
        try:
            image = pictures.load(data)
            background = self.background(fields)
        except pictures.Unreadable:
            raise Refused(failure("failed_to_read_image", "Failed to read image")) from None

        box = self.region(options["roi"], image.width, image.height)
        if pictures.is_uniform(image, tuple(int(value) for value in box)):
            raise Refused(failure("unknown_foreground", "Could not identify foreground in image",
                                  "For details and recommendations see https://www.remove.bg/supported-images"))  # fmt: skip

        limited = self.throttle(account, max(1, pixels / self.mega))
        if limited is not None:
            return limited
        size, cost = options["size"], 0.0
        with self.lock:
            if size == "auto":
                size = "full" if account.credits >= 1 else "preview"
            is_preview = SIZES[size] == 0.25
            cost = 0.25 if is_preview else 1.0
            if is_preview and account.free > 0:
                account.free -= 1
                cost = 0.0
            elif account.credits < cost:
                return self.error(402, "Insufficient credits")
            else:
                account.credits -= cost
            charge = account.charges.setdefault(exchange.picture, {"count": 0, "credits": 0.0})
            charge["count"] += 1
            charge["credits"] += cost
        exchange.charged = cost
        return self.result(request, account, image, box, options, SIZES[size], background, cost)

    def given(self, exchange):
        """The fields that are set; an empty value means not set."""
        kind = exchange.request.kind
        fields = {}
        for part in exchange.request.fields:
            name = part.name
            keyed = re.fullmatch(r"(shadow_type|shadow_opacity)\[(\w+)\]", name)
            if name not in FIELDS and not keyed:
                exchange.remark(f"unknown field {name}")
                continue
            if name in FILE_FIELDS and kind != "multipart/form-data":
                exchange.remark(f"{name} in {kind}")
                continue
            if not part.data:
                continue
            if name in fields:
                exchange.remark(f"{name} given twice")
            fields[name] = part
        return fields

    def options(self, exchange, fields):
        errors = []

        def text(name, default):
            return fields[name].text if name in fields else default

        def check(is_fine, code, title):
            if not is_fine:
                errors.append(failure(code, title))
            return is_fine

        def choice(name, values, code=None):
            value = text(name, values[0])
            check(value in values, code, f"Invalid {name} parameter")
            return value

        result = {
            "size": choice("size", ("preview", *(size for size in SIZES if size != "preview")), "invalid_size"),
            "type": choice("type", TYPES),
            "type_level": choice("type_level", ("1", "none", "2", "latest")),
            "format": choice("format", ("auto", "png", "jpg", "zip", "webp"), "invalid_format"),
            "crop": choice("crop", ("false", "true")),
            "channels": choice("channels", ("rgba", "alpha"), "invalid_channels"),
            "add_shadow": choice("add_shadow", ("false", "true")),
        }
        choice("semitransparency", ("true", "false"), "invalid_semitransparency")
        if "add_shadow" in fields:
            exchange.remark("add_shadow is deprecated")

        for name, part in fields.items():
            base, _, subject = name.partition("[")
            if base not in ("shadow_type", "shadow_opacity"):
                continue
            subject = subject.rstrip("]")
            check(not subject or subject in CLASSES, None, f"Invalid {name} parameter")
            value = part.text
            if base == "shadow_type":
                check(value in SHADOWS, None, f"Invalid {name} parameter")
            else:
                is_number = re.fullmatch(r"\d{1,3}", value) and int(value) <= 100
                check(value == "auto" or is_number, None, f"Invalid {name} parameter")

        result["roi"] = lengths(text("roi", "0% 0% 100% 100%"))
        check(result["roi"] and len(result["roi"]) == 4, "invalid_roi", "Invalid roi parameter")
        result["crop_margin"] = lengths(text("crop_margin", "0"), unit_optional=True)
        is_margin = result["crop_margin"] and len(result["crop_margin"]) in (1, 2, 4)
        if check(is_margin, "invalid_crop_margin", "Invalid crop_margin parameter") and "crop_margin" in fields:
            too_much = any(value > (50 if unit == "%" else 500) for value, unit in result["crop_margin"])
            if too_much:
                exchange.remark("crop_margin above its cap")
            if result["crop"] != "true":
                exchange.remark("crop_margin without crop")

        scale = text("scale", "original")
        match = re.fullmatch(r"(\d{1,3})%", scale)
        is_scale = scale == "original" or (match and 10 <= int(match.group(1)) <= 100)
        check(is_scale, "invalid_scale", "Invalid scale parameter")
        result["scale"] = int(match.group(1)) / 100 if match and is_scale else None

        position = text("position", "center" if result["scale"] else "original")
        values = lengths(position)
        is_place = position in ("original", "center") or (
            values and len(values) in (1, 2) and all(unit == "%" and 0 <= value <= 100 for value, unit in values)
        )
        check(is_place, "invalid_position", "Invalid position parameter")
        if position == "center":
            result["position"] = (0.5, 0.5)
        elif position != "original" and is_place:
            result["position"] = (values[0][0] / 100, values[-1][0] / 100)
        else:
            result["position"] = None

        if "bg_color" in fields:
            value = text("bg_color", "")
            if value.startswith("#"):
                exchange.remark("bg_color with #")
            check(pictures.colour(value), "invalid_bg_color", "Invalid bg_color parameter")
        for name in ("image_url", "bg_image_url"):
            if name in fields:
                check(re.match(r"https?://[^/\s]+", text(name, "")), f"invalid_{name}", f"Invalid {name} parameter")
        return result, errors

    def source(self, part, what):
        if part.name.endswith("_url"):
            try:
                opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
                with opener.open(part.text, timeout=10) as answer:
                    return answer.read()
            except (urllib.error.URLError, OSError, ValueError):
                code = "failed_image_download" if what == "image" else "failed_bg_download"
                raise Refused(failure(code, "Failed to download image")) from None
        if part.name.endswith("_b64"):
            data = strict_base64(part.text)
            if data is None:
                raise Refused(failure("failed_to_read_image", "Failed to read image", "Invalid base64"))
            return data
        return part.data

    def background(self, fields):
        if "bg_color" in fields:
            return pictures.colour(fields["bg_color"].text)
        for name in ("bg_image_url", "bg_image_file"):
            if name in fields:
                return pictures.load(self.source(fields[name], "bg"))
        return None

    def region(self, roi, width, height):
        edges = [value / 100 * side if unit == "%" else value
                 for (value, unit), side in zip(roi, (width, height, width, height))]  # fmt: skip
        x1, y1, x2, y2 = edges
        if min(edges) < 0 or x2 > width or y2 > height:
            raise Refused(failure("roi_exceeds_bounds", "Region of interest exceeds the image bounds"))
        if x2 - x1 < 1 or y2 - y1 < 1:
            raise Refused(failure("roi_region_empty", "Region of interest is empty"))
        return x1, y1, x2, y2

    def throttle(self, account, weight):
        """Books a call; the answer where it is one too many."""
        with self.lock:
            now = time.time()
            if account.started is None or now >= account.started + account.window:
                account.started, account.used = now, 0.0
            if account.used + weight > account.limit:
                wait = max(1, math.ceil(account.started + account.window - now))
                headers = self.rate_headers(account) + [("Retry-After", str(wait))]
                return self.error(429, "Rate limit exceeded", "rate_limit_exceeded", headers)
            account.used += weight
        return None

    def rate_headers(self, account):
        return [
            ("X-RateLimit-Limit", str(int(account.limit))),
            ("X-RateLimit-Remaining", str(max(0, int(account.limit - account.used)))),
            ("X-RateLimit-Reset", str(math.ceil(account.started + account.window))),
        ]

    def result(self, request, account, image, box, options, megapixels, background, cost):
        kind = options["format"]
        is_opaque = options["channels"] == "alpha" or isinstance(background, Image.Image) or (
            background is not None and background[3] == 255
        )
        if kind == "auto":
            kind = "jpg" if is_opaque else "png"
        most = min(megapixels, 10) if kind == "png" else megapixels
        small = pictures.shrunk(image, most * self.mega)
        fx, fy = small.width / image.width, small.height / image.height
        mask = pictures.ellipse(small.width, small.height, (box[0] * fx, box[1] * fy, box[2] * fx, box[3] * fy))
        foreground = mask.getbbox() or (0, 0, small.width, small.height)
        colours = small.convert("RGB")

        if options["crop"] == "true":
            area = margins(foreground, options["crop_margin"], small.width, small.height)
            mask, colours = mask.crop(area), colours.crop(area)
        if options["position"] is not None or options["scale"] is not None:
            mask, colours = placed(mask, colours, options["scale"], options["position"])

        if kind == "zip":
            body = pictures.zipped(colours, mask)
        elif options["channels"] == "alpha":
            body = pictures.encode(mask, kind)
        else:
            cut = colours.copy()
            cut.putalpha(mask)
            if background is not None:
                if isinstance(background, Image.Image):
                    below = filled(background.convert("RGBA"), cut.size)
                else:
                    below = Image.new("RGBA", cut.size, background)
                cut = Image.alpha_composite(below, cut)
                if is_opaque:
                    cut = cut.convert("RGB")
            body = pictures.encode(cut, kind)

        left, top, right, bottom = foreground
        numbers = {
            "foreground_top": top,
            "foreground_left": left,
            "foreground_width": right - left,
            "foreground_height": bottom - top,
        }
        headers = [
            ("X-Width", str(mask.width)),
            ("X-Height", str(mask.height)),
            ("X-Credits-Charged", f"{cost:g}"),
            *(("X-" + name.title().replace("_", "-"), str(value)) for name, value in numbers.items()),
        ]
        with self.lock:
            headers += self.rate_headers(account)
        subject = self.subject(options)
        if subject:
            headers.append(("X-Type", subject))
        if accepts_json(request.header("accept")):
            value = {"data": {"result_b64": base64.b64encode(body).decode(), **numbers}}
            return Answer.json(200, value, headers)
        types = {"png": "image/png", "jpg": "image/jpeg", "webp": "image/webp", "zip": "application/zip"}
        return Answer(200, body, types[kind], headers)

    def subject(self, options):
        level = options["type_level"]
        if level == "none":
            return None
        kind = {"auto": "other", "graphic": "graphics"}.get(options["type"], options["type"])
        return "other" if level == "1" and kind in ("graphics", "transportation") else kind


def failure(code, title, detail=None):
    entry = {"title": title}
    if detail:
        entry["detail"] = detail
    if code:
        entry["code"] = code
    return entry


def lengths(text, unit_optional=False):
    """[(value, unit)] of `10px 5%`; None where it is something else."""
    result = []
    for word in text.split():
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(px|%)" + ("?" if unit_optional else ""), word)
        if not match:
            return None
        result.append((float(match.group(1)), match.group(2) or "px"))
    return result


def margins(box, values, width, height):
    """The box with its margins (top, right, bottom, left), within the picture."""
    left, top, right, bottom = box
    if len(values) == 1:
        values = values * 4
    elif len(values) == 2:
        values = [values[0], values[1], values[0], values[1]]
    sides = (bottom - top, right - left, bottom - top, right - left)
    pixels = [min(value / 100 * side if unit == "%" else value, side / 2, 500)
              for (value, unit), side in zip(values, sides)]  # fmt: skip
    return (
        max(0, int(left - pixels[3])),
        max(0, int(top - pixels[0])),
        min(width, int(right + pixels[1])),
        min(height, int(bottom + pixels[2])),
    )


def placed(mask, colours, scale, position):
    """Subject and mask on a canvas of the same size, scaled and moved."""
    width, height = mask.size
    box = mask.getbbox() or (0, 0, width, height)
    subject, alpha = colours.crop(box), mask.crop(box)
    if scale is not None:
        factor = min(width * scale / alpha.width, height * scale / alpha.height)
        size = (max(1, round(alpha.width * factor)), max(1, round(alpha.height * factor)))
        subject, alpha = subject.resize(size), alpha.resize(size)
    x, y = position or (0.5, 0.5)
    at = (round((width - alpha.width) * x), round((height - alpha.height) * y))
    new_mask = Image.new("L", (width, height), 0)
    new_mask.paste(alpha, at)
    new_colours = Image.new("RGB", (width, height))
    new_colours.paste(subject, at)
    return new_mask, new_colours


def filled(image, size):
    """The picture scaled to fill, its middle kept."""
    factor = max(size[0] / image.width, size[1] / image.height)
    image = image.resize((max(size[0], round(image.width * factor)), max(size[1], round(image.height * factor))))
    left, top = (image.width - size[0]) // 2, (image.height - size[1]) // 2
    return image.crop((left, top, left + size[0], top + size[1]))


def accepts_json(accept):
    """Whether JSON is what the Accept header names first of the two."""
    for item in (accept or "*/*").split(","):
        kind = item.split(";")[0].strip().lower()
        if kind == "application/json":
            return True
        if kind in ("*/*", "application/zip") or kind.startswith("image/"):
            return False
    return False
