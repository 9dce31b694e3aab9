#!/usr/bin/env python3
"""Scores cut-outs against true mattes: ours and rembg's, with the same model, on the same files.

    mattes.py prepare DATA FOLDER            lays out photos and truths, and makes the synthetic pictures
    mattes.py rembg FOLDER MODELS            makes rembg's cut-outs, which are kept (`-a` takes minutes)
    mattes.py tables FOLDER OURS             prints a table for each set
    mattes.py score FOLDER SET CUTOUTS       prints the scores of any folder of cut-outs or masks on one set

DATA is the test data's `matte` folder. OURS holds cut-outs named like the photos: `SET/NAME.png`.
FOLDER/photos/SET holds the photos, FOLDER/truth/SET what is known of them, FOLDER/rembg/KIND/SET rembg's cut-outs.

The sets:
- ecssd: photos with masks drawn by hand, black or white. The half at even places of the sorted names is for tuning
  (`ecssd-tuning`: rembg's contrast curve is fitted to it), the other is reported.
- pets: photos with trimaps. What the trimap leaves open is not scored.
- synthetic: 20 pictures of known foreground, alpha and background: soft discs, hair, fur, glass and shapes in motion.

What is measured is stated by `score` and `score_colours`, which take arrays and can be imported:

    from mattes import score, score_colours
    score(matte, true_matte)                                   # dict of mae, iou, boundary, sad, gradient
    score_colours(cutout, photo_matte, photo_foreground)       # dict of shown, colour
"""

import hashlib
import json
import os
import pathlib
import shutil
import sys
import time

import numpy as np
from PIL import Image, ImageDraw
from scipy import ndimage

# Part of the name of what is kept: raise it where the pictures or rembg's part change.
EDITION = 1
SETS = ["ecssd", "pets", "synthetic"]
KINDS = {"plain": {}, "ppm": {"post_process_mask": True}, "dc": {"decontaminate": True}, "a": {"alpha_matting": True}}

# ---------------------------------------------------------------------------------------------------------- Measures

BOUNDARY_TOLERANCE = 0.0075
GRADIENT_SIGMA = 1.4
BAND = (0.02, 0.98)
BACKDROPS = {"white": (255, 255, 255), "black": (0, 0, 0), "magenta": (255, 0, 255), "green": (0, 255, 0)}


def shares(matte):
    """A matte as shares of 1: bytes are divided by 255, booleans and floats are taken as they are."""
    matte = np.asarray(matte)
    return matte.astype(np.float64) / 255 if matte.dtype == np.uint8 else matte.astype(np.float64)


def rim(subject):
    """The pixels of a subject that have a pixel beside them (left, right, above, below) which is not of it."""
    return subject & ~ndimage.binary_erosion(subject, border_value=1)


def boundary_f(predicted, true):
    """The boundary F-measure of two masks at 50 %.

    Precision is the share of the predicted rim no further than 0.0075 of the diagonal (Euclidean) from the true rim,
    recall the share of the true rim as near to the predicted one; F is their harmonic mean. 1 where neither mask has a
    rim, 0 where one alone has.
    """
    ours, theirs = rim(predicted), rim(true)
    if not ours.any() or not theirs.any():
        return float(ours.any() == theirs.any())
    reach = BOUNDARY_TOLERANCE * np.hypot(*true.shape)
    precision = (ndimage.distance_transform_edt(~theirs)[ours] <= reach).mean()
    recall = (ndimage.distance_transform_edt(~ours)[theirs] <= reach).mean()
    return float(2 * precision * recall / (precision + recall)) if precision + recall else 0.0


def gradient_magnitude(matte):
    """The length of a matte's gradient by first-order Gaussian derivatives of sigma 1.4, filters of unit L2 norm."""
    reach = int(np.ceil(3 * GRADIENT_SIGMA))
    x = np.arange(-reach, reach + 1)
    smooth = np.exp(-x * x / (2 * GRADIENT_SIGMA ** 2))
    slope = -x * smooth
    smooth, slope = smooth / np.linalg.norm(smooth), slope / np.linalg.norm(slope)

    def along(axis):
        first = ndimage.correlate1d(matte, slope, axis=axis, mode="nearest")
        return ndimage.correlate1d(first, smooth, axis=1 - axis, mode="nearest")

    return np.hypot(along(0), along(1))


def score(predicted, true, known=None):
    """How a matte differs from the true one; both of one shape, bytes or shares of 1.

    - mae: the mean absolute difference, 0…1.
    - iou: intersection over union of the two at 50 % (a pixel is of the subject from 128 of 255 on).
    - boundary: the F-measure of the boundary, see `boundary_f`; None where `known` leaves pixels out.
    - sad: the sum of absolute differences in thousands of pixels (Rhemann et al., "A Perceptually Motivated Online
      Benchmark for Image Matting", 2009).
    - gradient: the sum of squared differences of the gradients' lengths, in thousands (the same source), see
      `gradient_magnitude`.

    `known` is True for the pixels that count. The gradient then counts where all pixels under the filter are known.
    """
    predicted, true = shares(predicted), shares(true)
    if predicted.shape != true.shape:
        raise ValueError(f"a matte of {predicted.shape} does not go with one of {true.shape}")
    known = np.ones(true.shape, bool) if known is None else known
    difference = np.abs(predicted - true)[known]
    inside, truly = (predicted > 127.5 / 255)[known], (true > 127.5 / 255)[known]
    union = (inside | truly).sum()
    reach = 2 * int(np.ceil(3 * GRADIENT_SIGMA)) + 1
    deep = ndimage.binary_erosion(known, np.ones((reach, reach)), border_value=1)
    gradients = (gradient_magnitude(predicted) - gradient_magnitude(true))[deep]
    return {
        "mae": float(difference.mean()),
        "iou": float((inside & truly).sum() / union) if union else 1.0,
        "boundary": boundary_f(predicted > 127.5 / 255, true > 127.5 / 255) if known.all() else None,
        "sad": float(difference.sum() / 1000),
        "gradient": float((gradients ** 2).sum() / 1000),
    }


def score_colours(cutout, true, foreground):
    """How wrong the colours of a cut-out are in the soft band, the pixels whose true alpha is in 0.02…0.98 (both left
    out), in levels of 255. None for both where there is no such pixel.

    - shown: cut-out (straight alpha) and truth are laid on white, black, magenta and green; the mean absolute
      difference of the results. The error of the alpha is part of it.
    - colour: the mean absolute difference of the colours themselves, each pixel weighing as much as it shows in both,
      min(alpha, true alpha), so that a wrong alpha does not hide or add to it.

    - cutout: height × width × 4 bytes; true: height × width, bytes or shares; foreground: height × width × 3 bytes.
    """
    true = shares(true)
    band = (true > BAND[0]) & (true < BAND[1])
    if not band.any():
        return {"shown": None, "colour": None}
    colour, alpha = cutout[band][:, :3].astype(np.float64), cutout[band][:, 3:].astype(np.float64) / 255
    truly, share = foreground[band].astype(np.float64), true[band][:, None]
    errors = []
    for backdrop in BACKDROPS.values():
        under = np.array(backdrop, np.float64)
        errors.append(np.abs(alpha * colour + (1 - alpha) * under - share * truly - (1 - share) * under).mean())
    weights = np.minimum(alpha, share)
    total = weights.sum() * 3
    wrong = float((weights * np.abs(colour - truly)).sum() / total) if total else None
    return {"shown": float(np.mean(errors)), "colour": wrong}


# ------------------------------------------------------------------------------------------------ Synthetic pictures


def noise(rng, height, width, cell):
    """Smooth noise of about −1…1 whose features are `cell` pixels wide."""
    small = rng.standard_normal((max(2, round(height / cell)) + 1, max(2, round(width / cell)) + 1))
    big = Image.fromarray(small.astype(np.float32)).resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(big, np.float64) / 2.5


def textured(rng, height, width, base, contrast):
    """A surface: a colour with soft shading, blotches of a neighbouring hue, and grain."""
    surface = np.empty((height, width, 3))
    shading = noise(rng, height, width, width / 3) * contrast + noise(rng, height, width, 24) * contrast / 2
    for band in range(3):
        hue = noise(rng, height, width, width / 5) * contrast / 2
        surface[..., band] = base[band] + shading + hue + rng.standard_normal((height, width)) * 2.5
    return surface


def crop_of(rng, photos, height, width, share, blur):
    """A part of one of the photos, enlarged to the size; blurred like what is out of focus."""
    photo = photos[rng.integers(len(photos))]
    ratio = width / height
    side = min(photo.width, photo.height * ratio) * share
    left = rng.uniform(0, photo.width - side)
    top = rng.uniform(0, photo.height - side / ratio)
    part = photo.resize((width, height), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side / ratio))
    pixels = np.asarray(part, np.float64)
    pixels = ndimage.gaussian_filter(pixels, (blur, blur, 0))
    return pixels + rng.standard_normal(pixels.shape) * 2


def blob(rng, height, width, radius, wobble):
    """Signed distance (roughly; pixels, positive inside) from the rim of a round shape in the middle."""
    y, x = np.mgrid[:height, :width]
    x, y = x - width * rng.uniform(0.46, 0.54), y - height * rng.uniform(0.48, 0.55)
    angle = np.arctan2(y, x)
    rim_at = radius * (1 + sum(
        wobble / k * np.cos(k * angle + rng.uniform(0, 2 * np.pi)) for k in (2, 3, 5)))
    return rim_at - np.hypot(x * rng.uniform(0.85, 1.1), y), (x, y, angle)


def ramp(distance, width):
    """0…1 over `width` pixels about the rim, smooth at both ends."""
    t = np.clip(distance / width + 0.5, 0, 1)
    return t * t * (3 - 2 * t)


def strands(rng, height, width, roots, count, length, thickness):
    """Coverage 0…1 of tapering curved lines that leave `roots` ((x, y, direction) each), drawn four times as large."""
    over = 4
    sheet = Image.new("L", (width * over, height * over))
    draw = ImageDraw.Draw(sheet)
    for _ in range(count):
        x, y, direction = roots[rng.integers(len(roots))]
        direction += rng.normal(0, 0.35)
        bend = rng.normal(0, 0.02)
        steps = 24
        reach = length * rng.uniform(0.4, 1.2) / steps
        wide = thickness * rng.uniform(0.6, 1.4)
        for step in range(steps):
            to = x + np.cos(direction) * reach, y + np.sin(direction) * reach
            taper = max(1, round(wide * over * (1 - step / steps)))
            draw.line([x * over, y * over, to[0] * over, to[1] * over], fill=255, width=taper)
            x, y = to
            direction += bend
    return np.asarray(sheet.reduce(over), np.float64) / 255


def subject_hair(rng, height, width, fine):
    """A head of hair: a body whose strands reach far out; colours run along the strands."""
    radius = min(height, width) * 0.25
    distance, (x, y, angle) = blob(rng, height, width, radius, 0.05)
    rows, columns = np.nonzero(np.abs(distance - 3) < 1)
    roots = [(c, r, angle[r, c]) for r, c in zip(rows, columns)]
    drawn = strands(rng, height, width, roots, 900 if fine else 260, radius * (0.55 if fine else 0.8),
                    1.2 if fine else 2.6)
    alpha = np.maximum(ramp(distance, 3), drawn)
    base = rng.uniform(20, 120) * np.array([1.0, 0.72, 0.5]) + rng.uniform(0, 70)
    streaks = np.interp(angle, np.linspace(-np.pi, np.pi, 240), rng.standard_normal(240))
    return alpha, textured(rng, height, width, base, 14) + streaks[..., None] * np.array([16, 13, 10])


def subject_fur(rng, height, width):
    """A ball of dense short fur."""
    radius = min(height, width) * 0.3
    distance, (x, y, angle) = blob(rng, height, width, radius, 0.08)
    rows, columns = np.nonzero(np.abs(distance - 2) < 1.5)
    roots = [(c, r, angle[r, c] + 0.5) for r, c in zip(rows, columns)]
    alpha = np.maximum(ramp(distance, 2), strands(rng, height, width, roots, 2600, radius * 0.14, 1.8))
    return alpha, textured(rng, height, width, rng.uniform(60, 220, 3), 22)


def subject_disc(rng, height, width, soft, photos):
    """A round thing with a soft rim of `soft` pixels, with a photo's detail on it."""
    distance, _ = blob(rng, height, width, min(height, width) * 0.3, 0.03)
    detail = crop_of(rng, photos, height, width, 0.7, 1)
    detail = detail - detail.mean((0, 1)) + rng.uniform(60, 200, 3)
    return ramp(distance, soft), detail * 0.6 + textured(rng, height, width, rng.uniform(40, 210, 3), 20) * 0.4


def subject_glass(rng, height, width):
    """A vessel: an opaque rim, base and content, walls that let 40 to 70 % of the background through, highlights."""
    y, x = np.mgrid[:height, :width]
    across = (x - width / 2) / (width * 0.19)
    down = (y - height * 0.14) / (height * 0.72)
    inside = ramp((1 - np.abs(across)) * width * 0.19, 2) * ramp(down * height, 2) * ramp((1 - down) * height, 2)
    wall = rng.uniform(0.3, 0.6) + 0.3 * np.abs(across) ** 4
    level = ramp((down - rng.uniform(0.35, 0.5)) * height, 3)
    base = ramp((down - 0.95) * height, 2)
    rim_part = np.exp(-((np.abs(across) - 0.97) / 0.025) ** 2)
    shine = 0.6 * np.exp(-((across + 0.5) / 0.08) ** 2) * (0.5 + 0.5 * np.sin(down * 4) ** 2)
    alpha = inside * np.clip(np.maximum.reduce([wall, level, base, rim_part, wall + shine]), 0, 1)
    tint, drink = rng.uniform(150, 235, 3), rng.uniform(20, 200, 3)
    colour = textured(rng, height, width, tint, 8)
    colour = colour * (1 - level[..., None]) + textured(rng, height, width, drink, 10) * level[..., None]
    colour += (shine * 120 + rim_part * 30)[..., None]
    return alpha, colour


def subject_motion(rng, height, width):
    """A thing that moved while it was taken: sharp above and below, smeared to the sides."""
    distance, _ = blob(rng, height, width, min(height, width) * 0.27, 0.12)
    alpha = ndimage.uniform_filter1d(ramp(distance, 2), int(width * rng.uniform(0.03, 0.07)), axis=1)
    return alpha, textured(rng, height, width, rng.uniform(20, 240, 3), 28)


def synthetic_picture(index, photos):
    """Composite, alpha, foreground and background of one picture, bytes; nothing but the index decides."""
    rng = np.random.default_rng([2020, index])
    sizes = [(600, 800), (760, 760), (640, 960), (900, 600), (1066, 1600), (640, 640), (800, 600)]
    height, width = sizes[index % len(sizes)]
    makers = [
        lambda: subject_disc(rng, height, width, [4, 12, 24, 40][index // 5], photos),
        lambda: subject_hair(rng, height, width, fine=index // 5 % 2 == 0),
        lambda: subject_glass(rng, height, width),
        lambda: subject_fur(rng, height, width) if index // 5 < 2 else subject_hair(rng, height, width, fine=True),
        lambda: subject_motion(rng, height, width),
    ]
    alpha, foreground = makers[index % 5]()
    background = crop_of(rng, photos, height, width, rng.uniform(0.5, 0.9), rng.uniform(4, 14))
    # A subject that is hardly other than what is behind it is nobody's cut-out: push them apart.
    inside, behind = foreground[alpha > 0.5].mean(0), background[alpha > 0.5].mean(0)
    if np.abs(inside - behind).mean() < 60:
        background = background * 0.6 + (150 if inside.mean() < 128 else 0) * 0.7
    alpha = np.rint(np.clip(alpha, 0, 1) * 255).astype(np.uint8)
    foreground, background = (np.clip(np.rint(p), 0, 255).astype(np.uint8) for p in (foreground, background))
    share = alpha[..., None] / 255
    composite = np.rint(share * foreground + (1 - share) * background).astype(np.uint8)
    return composite, alpha, foreground, background


# ------------------------------------------------------------------------------------------------------------- Files


def names_in(folder, name):
    """The photos of a set, as sorted stems."""
    return sorted(path.stem for path in pathlib.Path(folder, "photos", name).iterdir())


def photo_of(folder, name, stem):
    suffix = "png" if name == "synthetic" else "jpg"
    with Image.open(pathlib.Path(folder, "photos", name, f"{stem}.{suffix}")) as picture:
        return picture.convert("RGB")


def read(path, mode):
    with Image.open(path) as picture:
        if picture.mode != mode:
            sys.exit(f"{path} is {picture.mode}, not {mode}")
        return np.asarray(picture)


def cutout_at(path, photo):
    """A cut-out as bytes of four bands; a mask (one band) goes with the photo's colours."""
    with Image.open(path) as picture:
        if picture.mode == "L":
            picture = Image.merge("RGBA", (*photo.split(), picture))
        pixels = np.asarray(picture.convert("RGBA"))
    if pixels.shape[:2] != (photo.height, photo.width):
        sys.exit(f"{path} is not as large as its photo")
    return pixels


class Truth:
    """What is known of a photo: its matte, which pixels of it count, and the foreground's colours where known."""

    def __init__(self, folder, name, stem):
        base = pathlib.Path(folder, "truth", name)
        self.known = self.foreground = None
        self.alpha = read(base / f"{stem}.png", "L")
        if name == "ecssd":
            self.alpha = np.where(self.alpha >= 128, np.uint8(255), np.uint8(0))
        elif name == "pets":
            # 1 is subject, 2 background, 3 open.
            self.known = self.alpha != 3
            self.alpha = np.choose(self.alpha, np.array([0, 255, 0, 128], np.uint8))
        else:
            self.foreground = read(base / f"{stem}.foreground.png", "RGB")


def prepare(data, folder):
    data, folder = pathlib.Path(data), pathlib.Path(folder)
    mark = folder / ".complete"
    if mark.exists() and mark.read_text() == str(EDITION):
        return
    shutil.rmtree(folder, ignore_errors=True)
    for name in SETS:
        (folder / "photos" / name).mkdir(parents=True)
        (folder / "truth" / name).mkdir(parents=True)
    for photo in sorted(data.glob("ecssd/images/*.jpg")):
        shutil.copy(photo, folder / "photos/ecssd")
        shutil.copy(data / "ecssd/masks" / f"{photo.stem}.png", folder / "truth/ecssd")
    for photo in sorted(data.glob("pets/*.jpg")):
        shutil.copy(photo, folder / "photos/pets")
        shutil.copy(data / "pets" / f"{photo.stem}.trimap.png", folder / "truth/pets" / f"{photo.stem}.png")
    import skimage

    shelf = pathlib.Path(skimage.__file__).parent / "data"
    photos = [Image.open(shelf / file).convert("RGB")
              for file in ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png")]
    for index in range(20):
        composite, alpha, foreground, background = synthetic_picture(index, photos)
        stem = f"{index:02d}"
        Image.fromarray(composite).save(folder / "photos/synthetic" / f"{stem}.png")
        for pixels, suffix in ((alpha, ""), (foreground, ".foreground"), (background, ".background")):
            Image.fromarray(pixels).save(folder / "truth/synthetic" / f"{stem}{suffix}.png")
    mark.write_text(str(EDITION))


def rembg(folder, models):
    os.environ["U2NET_HOME"] = models
    if not os.path.exists(os.path.join(models, "u2netp.onnx")):
        sys.exit(f"u2netp.onnx is not in {models}")
    from rembg import new_session, remove

    session = None
    for kind, options in KINDS.items():
        for name in SETS:
            place = pathlib.Path(folder, "rembg", kind, name)
            place.mkdir(parents=True, exist_ok=True)
            for stem in names_in(folder, name):
                path = place / f"{stem}.png"
                if path.exists():
                    continue
                session = session or new_session("u2netp")
                photo = photo_of(folder, name, stem)
                start = time.perf_counter()
                cutout = remove(photo, session=session, **options)
                seconds = time.perf_counter() - start
                cutout.save(path.with_suffix(".part"), "PNG")
                path.with_suffix(".json").write_text(json.dumps({"seconds": seconds}))
                os.replace(path.with_suffix(".part"), path)


# ------------------------------------------------------------------------------------------------------------ Tables


def curved(matte, level, width):
    """A contrast curve: a straight ramp of `width` (shares of 1) about `level`; a threshold where width is 0."""
    matte = shares(matte)
    if width == 0:
        return (matte >= level).astype(np.float64)
    return np.clip((matte - level) / width + 0.5, 0, 1)


def fit_curve(mattes, truths, measure):
    """The level and width with the best mean of a measure: mae, or the boundary's F (for which any width is as good, so
    that it is 0)."""
    if measure == "mae":
        grid = [(level, width) for level in np.arange(0.1, 0.91, 0.05) for width in (0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)]

        def cost(level, width):
            return np.mean([np.abs(curved(m, level, width) - t).mean() for m, t in zip(mattes, truths)])
    else:
        grid = [(level, 0) for level in np.arange(0.1, 0.91, 0.05)]

        def cost(level, _):
            return -np.mean([boundary_f(shares(m) >= level, t > 0.5) for m, t in zip(mattes, truths)])

    return [float(value) for value in min(grid, key=lambda entry: cost(*entry))]


def under_curve(cutout, photo, curve):
    """rembg's default cut-out with its mask after a curve: colours multiplied by alpha, as it leaves them."""
    alpha = np.rint(curved(cutout[..., 3], *curve) * 255)
    colour = np.rint(np.asarray(photo, np.float64) * alpha[..., None] / 255)
    return np.dstack([colour, alpha]).astype(np.uint8)


class Kept:
    """Figures that do not change while this file does not: those of rembg's cut-outs, and its curves."""

    def __init__(self, folder):
        self.path = pathlib.Path(folder, "figures.json")
        self.recipe = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()
        found = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.figures = found["figures"] if found.get("recipe") == self.recipe else {}

    def get(self, name, make):
        """The figures of a name; made, and written down, where they are not known."""
        if name not in self.figures:
            self.figures[name] = make()
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps({"recipe": self.recipe, "figures": self.figures}))
            os.replace(part, self.path)
        return self.figures[name]


def scores_of(cutout, truth):
    figures = score(cutout[..., 3], truth.alpha, truth.known)
    if truth.foreground is not None:
        figures |= score_colours(cutout, truth.alpha, truth.foreground)
    return figures


def means(rows):
    """The mean of each figure over pictures; None where a figure is missing everywhere."""
    result = {}
    for key in {key: None for row in rows for key in row}:
        values = [row[key] for row in rows if row.get(key) is not None]
        result[key] = float(np.mean(values)) if values else None
    return result


LABELS = {
    "mae": ("mean absolute error", "{:.4f}"),
    "iou": ("IoU at 50 %", "{:.4f}"),
    "boundary": ("boundary F", "{:.4f}"),
    "sad": ("alpha SAD (thousands)", "{:.3f}"),
    "gradient": ("gradient error (thousands)", "{:.3f}"),
    "shown": ("colour error in the soft band, on four colours", "{:.2f}"),
    "colour": ("colour error in the soft band, colours alone", "{:.2f}"),
    "seconds": ("seconds a picture, when they were made", "{:.2f}"),
}


def print_table(title, columns):
    print(f"\n{title}\n")
    print("| measure | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for key, (label, form) in LABELS.items():
        cells = [figures.get(key) for figures in columns.values()]
        if any(cell is not None for cell in cells):
            print(f"| {label} | " + " | ".join("" if c is None else form.format(c) for c in cells) + " |")


def halves(folder):
    stems = names_in(folder, "ecssd")
    return {"tuning": stems[::2], "report": stems[1::2]}


def tables(folder, ours):
    photos_and_truths = {}

    def known(name, stem):
        if (name, stem) not in photos_and_truths:
            photos_and_truths[name, stem] = photo_of(folder, name, stem), Truth(folder, name, stem)
        return photos_and_truths[name, stem]

    def theirs(kind, name, stem):
        return cutout_at(pathlib.Path(folder, "rembg", kind, name, f"{stem}.png"), known(name, stem)[0])

    tuning = halves(folder)["tuning"]
    kept = Kept(folder)

    def fitted(measure):
        mattes = [theirs("plain", "ecssd", stem)[..., 3] for stem in tuning]
        return fit_curve(mattes, [shares(known("ecssd", stem)[1].alpha) for stem in tuning], measure)

    curve, edge = (kept.get(f"curve for {measure}", lambda: fitted(measure)) for measure in ("mae", "boundary"))
    groups = [
        ("ecssd, the half not tuned on", "ecssd", halves(folder)["report"]),
        ("ecssd, the tuning half", "ecssd", tuning),
        ("pets, where the trimaps are definite", "pets", names_in(folder, "pets")),
        ("synthetic", "synthetic", names_in(folder, "synthetic")),
    ]
    for title, name, stems in groups:
        columns = {}

        def figures(cutout_of):
            return means([scores_of(cutout_of(stem), known(name, stem)[1]) for stem in stems])

        def add(label, cutout_of):
            columns[label] = dict(kept.get(f"{title}: {label}", lambda: figures(cutout_of)))

        if ours:
            missing = [stem for stem in stems if not pathlib.Path(ours, name, f"{stem}.png").exists()]
            if missing:
                sys.exit(f"ours lacks cut-outs of {name}: {', '.join(missing)}")
            columns["ours"] = figures(
                lambda stem: cutout_at(pathlib.Path(ours, name, f"{stem}.png"), known(name, stem)[0]))
        add("rembg", lambda stem: theirs("plain", name, stem))
        add("rembg, curve for error",
            lambda stem: under_curve(theirs("plain", name, stem), known(name, stem)[0], curve))
        add("rembg, curve for boundary",
            lambda stem: under_curve(theirs("plain", name, stem), known(name, stem)[0], edge))
        for kind, label in (("ppm", "rembg -ppm"), ("dc", "rembg -dc"), ("a", "rembg -a")):
            missing = [stem for stem in stems if not pathlib.Path(folder, "rembg", kind, name, f"{stem}.png").exists()]
            if missing:
                print(f"{label} is left out: {len(missing)} of {name} are not made yet", file=sys.stderr)
            else:
                add(label, lambda stem: theirs(kind, name, stem))
        for kind, label in (("plain", "rembg"), ("ppm", "rembg -ppm"), ("dc", "rembg -dc"), ("a", "rembg -a")):
            if label in columns:
                files = [pathlib.Path(folder, "rembg", kind, name, f"{stem}.json") for stem in stems]
                columns[label]["seconds"] = float(np.mean([json.loads(f.read_text())["seconds"] for f in files]))
        print_table(f"{title} ({len(stems)} pictures)", columns)
    print(f"\nrembg's curves, fitted on ecssd's tuning half: for the error level {curve[0]:.2f}, width {curve[1]:.2f}; "
          f"for the boundary level {edge[0]:.2f}.")


def score_folder(folder, name, cutouts):
    """Scores each cut-out that is there; those of photos without one are left out, and counted."""
    rows = []
    stems = halves(folder)[name.removeprefix("ecssd-")] if name.startswith("ecssd-") else names_in(folder, name)
    name = name.split("-")[0]
    for stem in stems:
        path = pathlib.Path(cutouts, f"{stem}.png")
        if path.exists():
            rows.append(scores_of(cutout_at(path, photo_of(folder, name, stem)), Truth(folder, name, stem)))
    if not rows:
        sys.exit(f"{cutouts} has no cut-out of {name}")
    print_table(f"{name} ({len(rows)} of {len(stems)} pictures)", {cutouts: means(rows)})


def main():
    match sys.argv[1:]:
        case ["prepare", data, folder]:
            prepare(data, folder)
        case ["rembg", folder, models]:
            rembg(folder, models)
        case ["tables", folder]:
            tables(folder, None)
        case ["tables", folder, ours]:
            tables(folder, ours)
        case ["score", folder, ("ecssd" | "ecssd-tuning" | "ecssd-report" | "pets" | "synthetic") as name, cutouts]:
            score_folder(folder, name, cutouts)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
