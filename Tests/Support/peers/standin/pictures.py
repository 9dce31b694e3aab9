"""Pictures of the stand-in: reading what came, and a cut-out that tests can compute for themselves."""

import io
import zipfile

import numpy
from PIL import Image, ImageColor, ImageOps, UnidentifiedImageError

Image.MAX_IMAGE_PIXELS = None

MIME = {
    "JPEG": "image/jpeg",
    "MPO": "image/jpeg",
    "PNG": "image/png",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "TIFF": "image/tiff",
    "BMP": "image/bmp",
    "AVIF": "image/avif",
}


class Unreadable(Exception):
    """Bytes that are no picture, or a broken one."""


def sniff(data):
    """Format, width and height by the header alone; None where no picture is known in the bytes."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            return "JPEG" if image.format == "MPO" else image.format, image.width, image.height
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError):
        return None


def load(data):
    """The picture upright, as RGB or RGBA."""
    try:
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        image.load()
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise Unreadable(str(error)) from None
    has_alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    return image.convert("RGBA" if has_alpha else "RGB")


def is_animated(data):
    with Image.open(io.BytesIO(data)) as image:
        return getattr(image, "n_frames", 1) > 1


def is_uniform(image, box):
    """Whether all pixels of the box are equal: the stand-in finds no subject there."""
    low_high = image.convert("RGB").crop(box).getextrema()
    return all(low == high for low, high in low_high)


def ellipse(width, height, box):
    """The mask: an ellipse in the middle of the box (x1, y1, x2, y2; pixels), of 0.4 of its sides, its edge 4 pixels wide.

    With r the distance from the centre in units of the half axes rx and ry, at pixel centres:
    alpha = round(255 * clamp((1 - r) * min(rx, ry) / 4 + 0.5, 0, 1)).
    """
    x1, y1, x2, y2 = box
    rx, ry = 0.4 * (x2 - x1), 0.4 * (y2 - y1)
    x = (numpy.arange(width, dtype=numpy.float32) + 0.5 - (x1 + x2) / 2) / rx
    y = (numpy.arange(height, dtype=numpy.float32) + 0.5 - (y1 + y2) / 2) / ry
    result = numpy.zeros((height, width), numpy.uint8)
    left, right = max(0, int(x1)), int(numpy.ceil(x2))
    bottom = min(height, int(numpy.ceil(y2)))
    # In bands, which stay in the cache.
    for top in range(max(0, int(y1)), bottom, 64):
        rows = slice(top, min(top + 64, bottom))
        r = numpy.sqrt(x[None, left:right] ** 2 + y[rows, None] ** 2)
        alpha = numpy.clip((1 - r) * (min(rx, ry) / 4) + 0.5, 0, 1)
        result[rows, left:right] = numpy.rint(alpha * 255)
    return Image.fromarray(result, "L")


def shrunk(image, most_pixels):
    """The picture scaled to at most so many pixels."""
    pixels = image.width * image.height
    if pixels <= most_pixels:
        return image
    factor = (most_pixels / pixels) ** 0.5
    size = (max(1, int(image.width * factor)), max(1, int(image.height * factor)))
    return image.resize(size, Image.Resampling.BOX if factor < 0.5 else Image.Resampling.BILINEAR)


def colour(text):
    """RGBA of 3, 4, 6 or 8 hex digits or a colour's name; None for anything else."""
    try:
        digits = text if text.startswith("#") else "#" + text
        return ImageColor.getcolor(digits, "RGBA")
    except ValueError:
        pass
    try:
        return ImageColor.getcolor(text, "RGBA")
    except ValueError:
        return None


def encode(image, kind):
    """The bytes of a picture as png, jpg or webp (lossless, so that tests find the pixels again)."""
    out = io.BytesIO()
    if kind == "png":
        image.save(out, "PNG", compress_level=1)
    elif kind == "webp":
        image.save(out, "WEBP", lossless=True, quality=0, method=0, exact=True)
    else:
        if image.mode == "RGBA":
            white = Image.new("RGBA", image.size, (255, 255, 255, 255))
            image = Image.alpha_composite(white, image)
        image.convert("L" if image.mode == "L" else "RGB").save(out, "JPEG", quality=95, subsampling=0)
    return out.getvalue()


def zipped(colour_image, alpha):
    """color.jpg and alpha.png."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("color.jpg", encode(colour_image.convert("RGB"), "jpg"))
        archive.writestr("alpha.png", encode(alpha, "png"))
    return out.getvalue()


def sample(width, height, seed=0):
    """A picture with a smooth background and a disc, for hosts that hand out pictures."""
    pixels = numpy.empty((height, width, 3), numpy.uint8)
    pixels[:, :, 0] = ((numpy.linspace(0, 255, width) + seed * 37) % 256).astype(numpy.uint8)[None, :]
    pixels[:, :, 1] = numpy.linspace(0, 255, height).astype(numpy.uint8)[:, None]
    pixels[:, :, 2] = (seed * 91) % 256
    image = Image.fromarray(pixels, "RGB")
    disc = ellipse(width, height, (0, 0, width, height)).point(lambda v: 255 if v > 127 else 0)
    image.paste((200, 60, 40), (0, 0), disc)
    return image
