"""Writes SOURCES.md: whose texts these are, under which licences, and how they were made dirty."""

from __future__ import annotations

import textwrap
from collections import Counter

from .dirt import DIRT_CLASSES
from .packages import Packages
from .plaintext import mallard_credits, one_line
from .rows import Sample
from .sources import SOURCES
from .write import BROKEN_FILE, FILES, BrokenLine

DOCUMENT = """\
# Sources of the quickstart sample

{rows} real documents in {files} files, taken from Debian 12 packages and written by `tools/sample`, which
rebuilds them byte for byte. Each row says where it comes from: `source` is the Debian package, `license` its licence
and `url` the path inside the package; `lang` is the language the package gives the page.

The documents are data that ship with tamis; they are **not** under the licence of tamis. Each keeps the licence in the
table. They were changed: turned from HTML, Mallard or dictionary files into plain text, cut into rows, and some of them
damaged on purpose, as told below. No author of these texts endorses tamis or this use of them.

{sources}

Documents by language: {languages}.

## The dirt

{dirt}

| Class (key in dirt.json) | Rows | Put in | What |
|---|---:|---|---|
{classes}

## Proof of the licences

Quoted from `/usr/share/doc/PACKAGE/copyright` of each package; the build stops if a quote is missing there.

{evidence}

Texts of the licences that are not printed below: MPL-2.0 <https://www.mozilla.org/MPL/2.0/>, CC-BY-SA-3.0
<https://creativecommons.org/licenses/by-sa/3.0/>, GPL-2.0 <https://www.gnu.org/licenses/old-licenses/gpl-2.0.html>.
The source form of the MPL-2.0 documents is what stands in the rows; the original pages are in the Debian packages
named above. Where a licence gives a choice (`OR`), the choice is passed on. "Unicode-DFS" is the licence of the
Unicode data files as the Debian package quotes it; later wordings of it are known as Unicode-DFS-2015 and
Unicode-DFS-2016. Of the GNOME and Debian Handbook pages, the rows that were damaged or copied stay under CC-BY-SA-3.0.

## Notices

{notices}
## Credits

Authors, editors and translators named in the GNOME Help pages of this sample: {credited}.
"""

DIRT_PARAGRAPH = """\
Much of the dirt was in the packages: {duplicates_natural} rows are equal by nature (pages of GNOME Help that nobody
has translated yet, and the JavaScript notice of LibreOffice Help, which is English in several of them), {untranslated}
rows are English under another language, and there are {legal_notices} notices (licences, help on privacy, "enable
JavaScript"), {index_pages} indexes and tables of contents, {repeated_lines} pages that repeat themselves and
{numbers_and_symbols} stretches of tables of numbers and symbols. Some came about when pages were turned into text:
{navigation_bars} rows kept their navigation bars, {url_lists} rows are domain names or the links of a page listed as a
text browser lists them, and {huge} rows are huge (four single pages, and two manuals put into one piece). The rest
was put in by the script, always by making a mistake that programs really make:
{duplicates_copied} rows were copied to another file (so that about 5 % of all rows are redundant), {near_duplicates}
pages were extracted a second time in another way, UTF-8 was read as ISO 8859-1 ({mojibake_latin1} rows), as
Windows-1252 ({mojibake_cp1252}), twice as Windows-1252 ({mojibake_double}) or as Windows-1251 ({mojibake_cp1251}),
bytes were lost and became U+FFFD ({replacement_characters}), control characters crept in ({control_characters}), line
ends became CR LF ({carriage_returns}), and of some pages nothing was left ({empty} empty, {whitespace_only} white
space only, {one_word} one word). `{file}` also has three lines that are no rows at all ({broken}). Which row has which
dirt is in `dirt.json`.
"""


def sources_md(sample: Sample, packages: Packages, broken: list[BrokenLine]) -> bytes:
    """The whole of SOURCES.md."""
    text = DOCUMENT.format(
        rows=len(sample.rows),
        files=len(FILES),
        sources=source_table(sample, packages),
        languages=spread(Counter(row.lang for row in sample.rows.values())),
        dirt=dirt_paragraph(sample, broken),
        classes=class_table(sample),
        evidence=evidence(),
        notices=notices(packages),
        credited=", ".join(credited(sample, packages)),
    )
    return text.encode()


def spread(langs: Counter[str]) -> str:
    """Languages and their numbers, the most frequent first."""
    return ", ".join(f"{lang} {count}" for lang, count in langs.most_common())


def source_table(sample: Sample, packages: Packages) -> str:
    """The packages, one line for each."""
    lines = [
        "| Debian package | Upstream | Version | Licence | Copyright holders | Documents | Languages |",
        "|---|---|---|---|---|---:|---|",
    ]
    for source in SOURCES:
        for package in source.packages:
            langs = Counter(row.lang for row in sample.rows.values() if row.source == package)
            cells = (
                package, source.upstream, packages.version[package], source.license, source.holders,
                str(langs.total()), spread(langs) if len(langs) > 1 else "".join(langs),
            )  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def dirt_paragraph(sample: Sample, broken: list[BrokenLine]) -> str:
    """The paragraph that says how the dirt came about, with its numbers filled in and its lines wrapped again."""
    counts = {label: len(sample.dirt[label]) for label in DIRT_CLASSES}
    lines = "; ".join(f"line {each.line}: {each.kind}" for each in broken)
    return textwrap.fill(one_line(DIRT_PARAGRAPH.format(**counts, broken=lines, file=BROKEN_FILE)), 120)


def class_table(sample: Sample) -> str:
    """The classes of dirt, one line for each."""
    return "\n".join(
        f"| {label} | {len(sample.dirt[label])} | {'yes' if dirt.injected else 'no'} | {dirt.what} |"
        for label, dirt in DIRT_CLASSES.items()
    )


def evidence() -> str:
    """What each copyright file says, one line for each source."""
    return "\n".join(
        f"- `{source.name}` ({source.license}): " + "; ".join(f'"{one_line(quote)}"' for quote in source.evidence)
        for source in SOURCES
    )


def notices(packages: Packages) -> str:
    """The notices that some licences want to see beside the text."""
    return "\n".join(
        f"### {source.name} ({source.license})\n\n{source.holders}.\n\n```text\n{packages.notice(source)}\n```\n"
        for source in SOURCES
        if source.notice
    )


def credited(sample: Sample, packages: Packages) -> list[str]:
    """Everyone the chosen GNOME pages name, as the licence asks."""
    pages = {row.url for row in sample.rows.values() if row.source == "gnome-user-docs"}
    return sorted(set().union(*(mallard_credits(packages.root / "gnome-user-docs" / page) for page in pages)))
