"""Pictures as a viewer shows them, for encoders and report pages."""

from contextlib import suppress

from PIL import Image, ImageOps


def upright_rgb(image: Image.Image) -> Image.Image:
    """Returns the picture as a viewer shows it: rotated by its EXIF orientation, as RGB, on white."""
    return rgb_on_white(upright(image))


def upright(image: Image.Image) -> Image.Image:
    """Returns the picture rotated by its EXIF orientation."""
    with suppress(Exception):  # Pillow can raise anything on damaged EXIF data of intact pictures, even SyntaxError
        image = ImageOps.exif_transpose(image)
    return image


def rgb_on_white(image: Image.Image) -> Image.Image:
    """Returns the picture as RGB, with transparency on white.

    A plain `convert("RGB")` would show the colour under transparent pixels, mostly black. 16-bit grey (modes `I` and
    `I;16...`) is scaled to 8 bits, because Pillow would clip it.
    """
    if image.mode.startswith("I"):
        image = image.convert("I").point(lambda value: value / 256).convert("L")
    if image.has_transparency_data:
        picture = image.convert("RGBA")
        page = Image.new("RGBA", picture.size, (255, 255, 255, 255))
        return Image.alpha_composite(page, picture).convert("RGB")
    return image.convert("RGB")
