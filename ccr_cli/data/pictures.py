"""A picture as a viewer shows it: what is encoded, and what is shown of it."""

from __future__ import annotations

from contextlib import suppress

from PIL import Image, ImageOps


def upright_rgb(image: Image.Image) -> Image.Image:
    """Returns the picture as a viewer shows it: turned as its EXIF data say, as RGB, laid on white.

    EXIF data that cannot be read say nothing; the picture itself may be whole.
    """
    with suppress(Exception):  # Pillow raises anything there, SyntaxError for one
        image = ImageOps.exif_transpose(image)
    return rgb_on_white(image)


def rgb_on_white(image: Image.Image) -> Image.Image:
    """Returns the picture as RGB; one with transparency is laid on white, as on a page.

    A plain `convert("RGB")` would show whatever colour hides under the transparent pixels, mostly black.
    16-bit grey (modes `I` and `I;16...`) is scaled to 8 bits, where Pillow would clip it.
    """
    if image.mode.startswith("I"):
        image = image.convert("I").point(lambda value: value / 256).convert("L")
    if image.has_transparency_data:
        picture = image.convert("RGBA")
        page = Image.new("RGBA", picture.size, (255, 255, 255, 255))
        return Image.alpha_composite(page, picture).convert("RGB")
    return image.convert("RGB")
