"""QR codes and barcodes in images: real codes, turned and small ones."""

from __future__ import annotations

import io

import numpy as np
import pytest
import segno
import zxingcpp
from PIL import Image

from tamis.stages.image.filters import QrCodeFilter
from tamis.stages.text.filters import ScoreFilter
from tamis.tasks import ImageBatch

TEXT = "https://example.org/a"


def qr_code(scale: int) -> Image.Image:
    file = io.BytesIO()
    segno.make(TEXT, error="m").save(file, kind="png", scale=scale)
    return Image.open(file).convert("RGBA")


def on_photograph(code: Image.Image | None, angle: float = 0) -> np.ndarray:
    rng = np.random.default_rng(4)
    background = Image.fromarray(rng.integers(0, 256, (12, 16, 3)).astype(np.uint8)).resize((800, 600))
    if code is not None:
        turned = code.rotate(angle, expand=True, resample=Image.Resampling.BICUBIC)
        background.paste(turned, (260, 140), turned)
    return np.asarray(background)


@pytest.mark.parametrize("angle", [0, 17, 45, 90, 200])
@pytest.mark.parametrize("scale", [3, 4, 8])
def test_codes_are_found_at_any_angle(scale: int, angle: int) -> None:
    assert QrCodeFilter().score_image(on_photograph(qr_code(scale), angle)) == 1


def test_codes_of_two_pixels_a_module_are_found_upright() -> None:
    assert QrCodeFilter().score_image(on_photograph(qr_code(2))) == 1


def test_images_with_codes_are_dropped_and_their_contents_kept() -> None:
    pictures = [on_photograph(None), on_photograph(qr_code(4))]
    files = [io.BytesIO() for _ in pictures]
    for picture, file in zip(pictures, files, strict=True):
        Image.fromarray(picture).save(file, "JPEG")
    batch = ImageBatch({"image_bytes": [file.getvalue() for file in files]})
    kept = ScoreFilter(QrCodeFilter(content_field="says"), score_field="codes").process(batch)
    assert kept.columns(["codes", "says"]).to_pylist() == [{"codes": 0, "says": []}]
    assert (kept.dropped[0].reason, kept.dropped[0].scores.to_pylist()) == ("codes > 0", [1])
    with_code = ScoreFilter(QrCodeFilter(content_field="says"), invert=True).process(batch)
    assert with_code["says"].to_pylist() == [[TEXT]]


def test_other_codes_are_found_where_they_are_asked_for() -> None:
    code = zxingcpp.create_barcode("4006381333931", zxingcpp.BarcodeFormat.EAN13)
    bars = np.asarray(zxingcpp.write_barcode_to_image(code, scale=3, add_quiet_zones=True))
    picture = on_photograph(Image.fromarray(bars).convert("RGBA"))
    assert QrCodeFilter().score_image(picture) == 0
    assert QrCodeFilter(formats=["EAN13"]).score_image(picture) == 1
    assert QrCodeFilter(formats=[]).score_image(picture) == 1


def test_an_unknown_kind_of_code_is_refused() -> None:
    with pytest.raises(ValueError, match=r"there is no 'QrCode'. Did you mean 'QRCode'\?"):
        ScoreFilter(QrCodeFilter(formats=["QrCode"]))
