"""Writes SOURCES.md: whose pictures these are, under which licences, and what was planted."""

from __future__ import annotations

import textwrap
from collections import Counter

import PIL

from .planted import DEFECTS, Entry
from .sources import title_of

DOCUMENT = """\
# Sources of the sample images

{count} images in {shards} WebDataset shards, written by `tools/sample_images`, which rebuilds them byte for byte with
Pillow {pillow}. Beside each image, under the same name, `.json` has its source, its creator and its licence, and `.txt`
its caption.

The images are data that ship with tamis; they are **not** under the licence of tamis. Each keeps the licence in the
table. They were changed: cropped, made smaller, compressed, and some damaged on purpose, as told below. No author of
these pictures endorses tamis or this use of them.

| Source | Licence | By | Images |
|---|---|---|---|
{sources}

Texts of the licences: Apache-2.0 <https://www.apache.org/licenses/LICENSE-2.0>, CC0-1.0
<https://creativecommons.org/publicdomain/zero/1.0/>, CC-BY-2.0 <https://creativecommons.org/licenses/by/2.0/>.

Proof: the docstrings of `skimage/data/_fetchers.py` say which photographs are CC0 or in the public domain;
`sklearn/datasets/images/README.txt` names the licence and the photographers of its two; the copyright file of
`openclipart-png` dedicates all its pictures to the public domain (their file names hint at the artists);
google-coral's test_data is under Apache-2.0.
What has the source `tools/sample_images` was drawn by the script, with the font of Pillow (Aileron, CC0).

## What was planted

So that every filter has something to find. `defects.json` names the images of each class and, of copies, the picture
they were made of.

| Class | Images | What |
|---|---:|---|
{defects}

Beside these, formats and layouts that readers meet are here as they are: progressive, CMYK and turned (Exif) JPEG,
palette, grey, transparent and 16-bit PNG, animated GIF, WebP.
"""


def sources_md(entries: list[Entry]) -> str:
    """The whole of SOURCES.md."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for entry in entries:
        groups.setdefault((title_of(entry.source), entry.licence, entry.creator), []).append(entry.key)
    rows = [
        f"| {source} | {licence} | {creator} | {', '.join(keys)} |"
        for (source, licence, creator), keys in groups.items()
    ]
    found = Counter(entry.defect for entry in entries)
    defects = [f"| {name} | {found[name]} | {what} |" for name, what in DEFECTS.items()]
    text = DOCUMENT.format(
        count=len(entries),
        shards=3,
        pillow=PIL.__version__,
        sources="\n".join(rows),
        defects="\n".join(defects),
    )
    return textwrap.dedent(text)
