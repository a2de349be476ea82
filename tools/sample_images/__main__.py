"""The command line: ``python -m tools.sample_images``, run in the root of the repository."""

from __future__ import annotations

import argparse
import io
import json
import sys
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from .pictures import GRAPHICS, PHOTOS, Picture, cropped, encoded, ending
from .planted import Entry, planted
from .sources import BuildError, Originals, title_of
from .sources_md import sources_md

OUT = Path(__file__).resolve().parents[2] / "src" / "tamis" / "quickstart" / "sample_images"

SHARDS = 3
POOR_CAPTIONS = {"grass": "IMG_2041.JPG", "gravel": "image", "cell": ""}
"""Captions that say nothing, in place of those of the list."""


def build(coral: Path, cache: Path, unpacked: Path) -> dict[str, bytes]:
    """Make all files of the sample, by name."""
    originals = Originals(coral, cache, unpacked)
    images = {picture.key: cropped(picture, originals) for picture in (*PHOTOS, *GRAPHICS)}
    pictures = {picture.key: _entry(picture, images[picture.key]) for picture in (*PHOTOS, *GRAPHICS)}
    entries = [*pictures.values(), *planted(pictures, images)]
    shards: list[list[Entry]] = [[] for _ in range(SHARDS)]
    numbers = {entry.key: number for number, entry in enumerate(entries)}
    for entry in entries:
        # What was made of a picture is in another shard, so that finding it needs more than one task.
        number = numbers[entry.of] + 1 if entry.of else numbers[entry.key]
        shards[number % SHARDS].append(entry)
    files = {f"images-{number:03d}.tar": _tar(shard) for number, shard in enumerate(shards)}
    defects: dict[str, dict[str, str]] = {}
    for entry in entries:
        if entry.defect:
            defects.setdefault(entry.defect, {})[entry.key] = entry.of
    files["defects.json"] = (json.dumps(defects, indent=1) + "\n").encode()
    files["SOURCES.md"] = sources_md(entries).encode()
    return files


def _entry(picture: Picture, image: Any) -> Entry:
    caption = POOR_CAPTIONS.get(picture.key, picture.caption)
    entry = Entry(
        picture.key,
        ending(picture.form),
        encoded(image, picture.form),
        caption,
        picture.source,
        picture.file,
        picture.creator,
        picture.licence,
    )
    return replace(entry, defect="caption") if caption != picture.caption else entry


def _tar(entries: list[Entry]) -> bytes:
    """A WebDataset shard: each image with its caption and its facts beside it, under the same name."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for entry in entries:
            facts = {"source": title_of(entry.source), "creator": entry.creator, "license": entry.licence}
            members = {entry.ending: entry.data, "json": json.dumps(facts, ensure_ascii=False).encode()}
            if entry.caption is not None:
                members["txt"] = entry.caption.encode()
            for suffix, data in members.items():
                member = tarfile.TarInfo(f"{entry.key}.{suffix}")
                member.size, member.mode = len(data), 0o644
                tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def arguments() -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.sample_images", description="Rebuild the sample images.")
    parser.add_argument("--coral", type=Path, required=True, help="folder with photographs of google-coral/test_data")
    parser.add_argument("--out", type=Path, default=OUT, help="folder to write to (default: %(default)s)")
    parser.add_argument("--cache", type=Path, help="folder that keeps the downloaded packages")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the folder holds another sample")
    return parser.parse_args()


def main() -> int:
    """Build the sample, and write it or compare it."""
    args = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        cache = args.cache or Path(scratch, "packages")
        cache.mkdir(parents=True, exist_ok=True)
        try:
            made = build(args.coral, cache.resolve(), Path(scratch, "unpacked"))
        except BuildError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    if args.check:
        wrong = [name for name, data in made.items() if _held(args.out / name) != data]
        print(f"differ: {', '.join(wrong)}" if wrong else "the sample is up to date")
        return 1 if wrong else 0
    args.out.mkdir(parents=True, exist_ok=True)
    for name, data in made.items():
        (args.out / name).write_bytes(data)
        print(f"{len(data):9} {name}")
    return 0


def _held(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


if __name__ == "__main__":
    sys.exit(main())
