"""The pictures: which part of which original, how it is stored, what it shows, whose it is."""

from __future__ import annotations

# ruff: noqa: E501 - a picture is a line
import io
from dataclasses import dataclass
from typing import Any

from PIL import Image

from .sources import Originals

LONGER_SIDE = 320
QUALITY = 76

APACHE = "Apache-2.0"
CC0 = "CC0-1.0"
PUBLIC = "public-domain"
CC_BY = "CC-BY-2.0"


@dataclass(frozen=True)
class Picture:
    """One picture of the sample.

    Args:
        key: Its name, without an ending.
        source: A key of ``sources.ARCHIVES``, or ``"coral"``.
        file: The file there.
        caption: What it shows.
        creator: Who made the original.
        licence: Its licence, as SPDX names it.
        box: The part that is taken: left, upper, right, lower, as shares of the width and height.
        side: The longer side, in pixels.
        form: How it is stored: the name of one of :data:`FORMS`.
    """

    key: str
    source: str
    file: str
    caption: str
    creator: str
    licence: str
    box: tuple[float, float, float, float] = (0, 0, 1, 1)
    side: int = LONGER_SIDE
    form: str = "jpg"


_CORAL = "google-coral"

PHOTOS = [
    Picture("cat-on-carpet", "coral", "cat_1080p.jpg", "a tabby cat sits on a red carpet", _CORAL, APACHE),
    Picture("cat-face", "coral", "cat_1080p.jpg", "the face of a tabby cat", _CORAL, APACHE, (0.33, 0.05, 0.75, 0.75)),
    Picture("cat-basket", "coral", "cat_1080p.jpg", "a striped basket", _CORAL, APACHE, (0.0, 0.0, 0.33, 0.5), 240),
    Picture("hot-dog", "coral", "hot_dog.jpg", "a hot dog with its receipt on a green table", _CORAL, APACHE),
    Picture("hot-dog-close", "coral", "hot_dog.jpg", "mustard and onions on a sausage", _CORAL, APACHE, (0.3, 0.2, 0.9, 0.65)),
    Picture("kite-beach", "coral", "kite_and_cold.jpg", "kite surfers and walkers on a windy beach", _CORAL, APACHE),
    Picture("beach-walkers", "coral", "kite_and_cold.jpg", "two people in raincoats walk on the sand", _CORAL, APACHE, (0.0, 0.5, 0.3, 1.0), 240),
    Picture("kites-in-sky", "coral", "kite_and_cold.jpg", "kites below grey clouds", _CORAL, APACHE, (0.15, 0.0, 0.95, 0.45)),
    Picture("waves", "coral", "kite_and_cold.jpg", "waves break near the shore", _CORAL, APACHE, (0.55, 0.6, 1.0, 1.0), 240),
    Picture("owl", "coral", "owl.jpg", "a burrowing owl stands in the grass", _CORAL, APACHE, form="progressive"),
    Picture("owl-head", "coral", "owl.jpg", "an owl looks into the camera", _CORAL, APACHE, (0.33, 0.0, 0.67, 0.45), 224),
    Picture("parrot", "coral", "parrot.jpg", "a scarlet macaw on a branch", _CORAL, APACHE),
    Picture("parrot-head", "coral", "parrot.jpg", "the head of a macaw", _CORAL, APACHE, (0.4, 0.1, 1.0, 0.45), 256),
    Picture("parrot-wings", "coral", "parrot.jpg", "blue and green feathers", _CORAL, APACHE, (0.25, 0.35, 0.85, 0.75), 224),
    Picture("two-dogs", "coral", "pets.jpg", "two dogs run across a lawn", _CORAL, APACHE, form="rotated"),
    Picture("dog-running", "coral", "pets.jpg", "a spotted dog runs on artificial grass", _CORAL, APACHE, (0.2, 0.0, 0.6, 0.75), 240),
    Picture("astronaut", "skimage", "astronaut.png", "an astronaut before a flag and a model of the shuttle", "NASA", PUBLIC),
    Picture("chelsea", "skimage", "chelsea.png", "a ginger cat, close up", "Stefan van der Walt", CC0),
    Picture("coffee", "skimage", "coffee.png", "a cup of espresso on a wooden table", "Rachel Michetti", CC0),
    Picture("rocket", "skimage", "rocket.jpg", "a rocket on its pad at dusk", "SpaceX", PUBLIC),
    Picture("rocket-lights", "skimage", "rocket.jpg", "flood lights below a rocket", "SpaceX", PUBLIC, (0.5, 0.55, 1.0, 1.0), 224),
    Picture("galaxies", "skimage", "hubble_deep_field.jpg", "galaxies in a deep field of the Hubble telescope", "NASA, ESA", PUBLIC, (0, 0, 0.5, 0.5), 256),
    Picture("galaxies-2", "skimage", "hubble_deep_field.jpg", "distant galaxies on black", "NASA, ESA", PUBLIC, (0.5, 0.45, 1, 1), 256),
    Picture("retina", "skimage", "retina.jpg", "the retina of an eye", "Mikael Häggström", CC0, side=256),
    Picture("moon", "skimage", "moon.png", "craters on the moon", "NASA", PUBLIC, side=200, form="png16"),
    Picture("photographer", "skimage", "camera.png", "a man with a camera on a tripod, black and white", "Lav Varshney", CC0),
    Picture("clock", "skimage", "clock_motion.png", "a wall clock, blurred by motion", "Stefan van der Walt", PUBLIC),
    Picture("bricks", "skimage", "brick.png", "a brick wall", "CC0Textures", CC0, (0, 0, 0.6, 0.6), 224),
    Picture("grass", "skimage", "grass.png", "blades of grass", "linolafett", CC0, (0, 0, 0.5, 0.5), 200),
    Picture("gravel", "skimage", "gravel.png", "gravel from above", "CC0Textures", CC0, (0, 0, 0.5, 0.5), 200),
    Picture("cell", "skimage", "cell.png", "a cell under the microscope", "Paul Müller and others", CC0, side=256),
    Picture("formulas", "skimage", "text.png", "formulas in handwriting on paper", "scikit-image", PUBLIC),
    Picture("temple", "sklearn", "china.jpg", "a Chinese temple behind trees", "danielbuechele (flickr.com/photos/danielbuechele)", CC_BY),
    Picture("temple-roof", "sklearn", "china.jpg", "the roof of a temple", "danielbuechele (flickr.com/photos/danielbuechele)", CC_BY, (0.25, 0.2, 0.75, 0.6), 240, "webp"),
    Picture("flower", "sklearn", "flower.jpg", "an orange dahlia", "vultilion (flickr.com/photos/vultilion)", CC_BY, form="cmyk"),
    Picture("petals", "sklearn", "flower.jpg", "petals of a dahlia", "vultilion (flickr.com/photos/vultilion)", CC_BY, (0.35, 0.2, 0.8, 0.75), 224),
]  # fmt: skip

GRAPHICS = [
    Picture("penguin", "openclipart", "animals/emperor_penguin_ralf_ste_01.png", "a drawn emperor penguin", "openclipart.org", PUBLIC, (0, 0, 0.7, 0.75), 256, "png"),
    Picture("apple", "openclipart", "food/apple_with_worm_dan_gerh_01.png", "a drawn apple with a worm", "openclipart.org", PUBLIC, side=220, form="png"),
    Picture("bus", "openclipart", "transportation/bus1_jarno_vasamaa_01.png", "a drawn red bus", "openclipart.org", PUBLIC, (0, 0, 1, 0.75), 280, "png"),
    Picture("lighthouse", "openclipart", "buildings/lighthouse_matthew_gates_.png", "a drawn lighthouse", "openclipart.org", PUBLIC, (0.2, 0.05, 0.6, 0.9), 240, "palette"),
    Picture("electricity", "openclipart", "signs_and_symbols/DangerElectrique.png", "a warning sign for electricity", "openclipart.org", PUBLIC, side=156, form="png"),
    Picture("house", "openclipart", "computer/bb_home_.png", "an icon of a house", "openclipart.org", PUBLIC, side=64, form="png"),
    Picture("cherries", "openclipart", "food/fruit/cherries.png", "two drawn cherries", "openclipart.org", PUBLIC, side=240, form="palette"),
    Picture("grapes", "openclipart", "food/fruit/grapes_01.png", "drawn grapes", "openclipart.org", PUBLIC, side=240, form="jpg"),
    Picture("squirrel", "openclipart", "animals/mammals/cartoon_squirrel_mike_sm1.png", "a drawn squirrel reads a book", "openclipart.org", PUBLIC, side=256, form="png"),
    Picture("rabbit", "openclipart", "animals/mammals/bunny_01.png", "a pink rabbit on green", "openclipart.org", PUBLIC, side=240, form="gif"),
    Picture("factory", "openclipart", "buildings/factory_gabrielle_nowick_.png", "a drawn factory with smoking chimneys", "openclipart.org", PUBLIC, side=280, form="webp"),
    Picture("anchor", "openclipart", "transportation/anchor.png", "a drawn anchor", "openclipart.org", PUBLIC, side=220, form="jpg"),
]  # fmt: skip

ENDINGS = {"png16": "png", "palette": "png", "progressive": "jpg", "rotated": "jpg", "cmyk": "jpg"}


def cropped(picture: Picture, originals: Originals) -> Image.Image:
    """The part of the original that is taken, at its size: RGB, or grey where the original is."""
    image: Image.Image = Image.open(originals.path(picture.source, picture.file))
    if image.mode not in ("RGB", "L", "RGBA"):
        image = image.convert("RGBA" if image.mode in ("LA", "P", "PA") else "RGB")
    left, upper, right, lower = picture.box
    width, height = image.size
    image = image.crop((round(left * width), round(upper * height), round(right * width), round(lower * height)))
    scale = min(picture.side / max(image.size), 1.0)
    size = (max(round(image.width * scale), 1), max(round(image.height * scale), 1))
    return image.resize(size, Image.Resampling.LANCZOS) if scale < 1 else image


def encoded(image: Image.Image, form: str, quality: int = QUALITY) -> bytes:
    """An image as the bytes of a file."""
    options: dict[str, Any] = {"quality": quality}
    kind = "JPEG"
    if form in ("png", "palette", "png16"):
        kind, options = "PNG", {"optimize": True}
        if form == "palette":
            image = _on_white(image).quantize(32, dither=Image.Dither.NONE)
        elif form == "png16":
            image = image.convert("I").point(lambda value: value * 257).convert("I;16")
    elif form == "webp":
        kind, options = "WEBP", {"quality": quality, "method": 6}
    elif form == "gif":
        image = _on_white(image).quantize(16, dither=Image.Dither.NONE)
        turned = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        kind, options = "GIF", {"save_all": True, "append_images": [turned], "duration": 500, "loop": 0}
    elif form == "cmyk":
        image = image.convert("CMYK")
    elif form == "rotated":
        exif = Image.Exif()
        exif[0x0112] = 6  # shown turned by 90 degrees clockwise, so it is stored turned back
        image, options["exif"] = image.transpose(Image.Transpose.ROTATE_90), exif
    else:
        image = _on_white(image)
        options["progressive"] = form == "progressive"
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def ending(form: str) -> str:
    """The ending of the names of files of a form."""
    return ENDINGS.get(form, form)


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode != "RGBA":
        return image
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image).convert("RGB")
