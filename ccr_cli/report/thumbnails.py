"""Small copies of images, for pages and figures."""

import base64
import io
import warnings
from pathlib import Path

from PIL import Image

from ccr_cli.data.pictures import upright, upright_rgb

MAX_PIXELS = 100_000_000
"""Larger images are not opened (a small file can unpack to gigabytes)."""


def thumbnail(path: Path | None, side: int, most: int = MAX_PIXELS, *, transparent: bool = False) -> Image.Image | None:
    """Opens an image with its EXIF orientation applied, and shrinks it to fit a square of `side` pixels.

    Returns RGB on white, or RGBA if `transparent` and the image has transparency. Returns None without a path, or if
    the image cannot be read or has more than `most` pixels.
    """
    if path is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as image:
                if image.width * image.height > most:
                    return None
                image.draft("RGB", (side, side))
                if transparent and image.has_transparency_data:
                    picture = upright(image).convert("RGBA")
                else:
                    picture = upright_rgb(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    if max(picture.size) > side:
        picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    return picture


def small(path: Path, side: int, most: int = MAX_PIXELS) -> tuple[str, bytes] | None:
    """Encodes a thumbnail: PNG if under 6,000 bytes, else PNG or JPEG, whichever is smaller; None as in `thumbnail`."""
    image = thumbnail(path, side, most, transparent=True)
    if image is None:
        return None
    candidates = []
    for kind, options in (("png", {"optimize": True}), ("jpeg", {"quality": 85})):
        out = io.BytesIO()
        if image.mode == "RGBA" and kind == "jpeg":
            continue
        image.save(out, kind, **options)
        candidates.append((len(out.getvalue()), kind, out.getvalue()))
    _, kind, data = candidates[0] if candidates[0][0] < 6000 else min(candidates)
    return kind, data


class Embedded:
    """Thumbnails as `data:` URLs inside a page; each image is read once."""

    def __init__(self, side: int = 96) -> None:
        self.side = side
        self._known: dict[Path, str | None] = {}

    def address(self, path: Path | None) -> str | None:
        """The `data:` URL of an image's thumbnail, or None if it cannot be shown."""
        if path is not None and path not in self._known:
            image = small(path, self.side)
            self._known[path] = image and f"data:image/{image[0]};base64,{base64.b64encode(image[1]).decode()}"
        return None if path is None else self._known[path]
