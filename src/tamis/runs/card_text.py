"""Text of data cards: front matter that the Hugging Face hub accepts, and Markdown in which no value does harm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from tamis.printable import printable

__all__ = [
    "block",
    "code",
    "features_of",
    "front_matter",
    "language_codes",
    "licence_ids",
    "plain",
    "size_category",
    "table",
]

_SHOWN_CHARACTERS: Final = 300

_ISO_639_1: Final = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo
es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg
ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn
no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta
te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""

_TWO_LETTERS: Final = frozenset(_ISO_639_1.split())
"""Codes of three letters are known by their form only: there are about 8,000 of them."""

_HUB_LICENCES: Final = """
apache-2.0 mit openrail bsd bsd-2-clause bsd-3-clause cc cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0
cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0
cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0 wtfpl
ecl-2.0 epl-1.0 epl-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 isc mpl-2.0
odc-by odbl pddl unlicense zlib artistic-2.0 bsl-1.0 ncsa ofl-1.1 osl-3.0 postgresql
"""

_LICENCES: Final = frozenset(_HUB_LICENCES.split())

_SIZES: Final = (
    (10**3, "n<1K"),
    (10**4, "1K<n<10K"),
    (10**5, "10K<n<100K"),
    (10**6, "100K<n<1M"),
    (10**7, "1M<n<10M"),
    (10**8, "10M<n<100M"),
    (10**9, "100M<n<1B"),
    (10**10, "1B<n<10B"),
    (10**11, "10B<n<100B"),
    (10**12, "100B<n<1T"),
)


def size_category(rows: int) -> str:
    """The hub's name for a number of rows.

    >>> size_category(999), size_category(1000), size_category(10**13)
    ('n<1K', '1K<n<10K', 'n>1T')
    """
    return next((name for below, name in _SIZES if rows < below), "n>1T")


def language_codes(values: Iterable[str]) -> list[str]:
    """The ISO 639 codes among values of a language column, in their order.

    >>> language_codes(["en", "DE", "pt-BR", "zho_Hans", "Norwegian", "no", "", "en\\n- evil", "x" * 9])
    ['en', 'de', 'pt', 'zho', 'no']
    """
    codes = [re.split(r"[-_]", value.strip(), maxsplit=1)[0].lower() for value in values if len(value) < 20]
    known = [c for c in codes if c in _TWO_LETTERS or re.fullmatch(r"[a-z]{3}", c)]
    return list(dict.fromkeys(c for c in known if c not in ("und", "nan")))


def licence_ids(values: Iterable[str]) -> list[str]:
    """The hub's identifiers of licences; ``other`` stands for all that it does not know.

    >>> licence_ids(["MIT", "CC BY-SA 4.0", "my own", "Apache License 2.0"])
    ['mit', 'cc-by-sa-4.0', 'apache-2.0', 'other']
    """
    found = [re.sub(r"[\s_-]+", "-", re.sub(r"licen[sc]e", "", v.lower()).strip()) for v in values if len(v) < 60]
    known = list(dict.fromkeys(v for v in found if v in _LICENCES))
    return [*known, *(["other"] if any(v not in _LICENCES for v in found) else [])]


def features_of(schema: pa.Schema | None) -> list[dict[str, Any]] | None:
    """The columns as ``dataset_info`` lists them; ``None`` if one has a type that needs more than a name.

    >>> features_of(pa.schema({"text": pa.large_string(), "ids": pa.list_(pa.int32())}))
    [{'name': 'text', 'dtype': 'large_string'}, {'name': 'ids', 'sequence': 'int32'}]
    """
    features = []
    for column in schema or ():
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        name = _dtype(kind.value_type if is_list else kind)
        if name is None:
            return None
        features.append({"name": printable(column.name), "sequence" if is_list else "dtype": name})
    return features or None


def _dtype(kind: pa.DataType) -> str | None:
    names = {"float": "float32", "double": "float64", "halffloat": "float16", "date32[day]": "date32"}
    name = names.get(str(kind), str(kind))
    known = r"u?int(8|16|32|64)|float(16|32|64)|bool|(large_)?(string|binary)|date32|timestamp\[(s|ms|us|ns)\]|null"
    return name if re.fullmatch(known, name) else None


def front_matter(values: dict[str, Any], mark: str) -> str:
    """The YAML at the top of a card, with a comment as its first line."""
    import yaml

    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=False, width=110)
    return f"---\n{mark}\n{text}---\n"


def code(text: str) -> str:
    """A value as code, in a line or a cell of a table: nothing in it is Markdown or HTML.

    >>> code("words < 50"), code("a|b`c")
    ('`words < 50`', '<code>a&#124;b&#96;c</code>')
    """
    line = _line(text)
    if line.strip() and not re.search(r"[`|\\]", line):
        return f"`{line.strip()}`"
    return f"<code>{_entities(line)}</code>"


def plain(text: str) -> str:
    """A value as ordinary text, with the characters that Markdown or HTML give a meaning spelled as entities.

    >>> plain("# my *run* <b>")
    '&#35; my &#42;run&#42; &#60;b&#62;'
    """
    return _entities(_line(text))


def _line(text: str) -> str:
    cut = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    return " ".join(printable(cut).split())


def _entities(line: str) -> str:
    return "".join(c if c.isalnum() or c in " .,;'-/()%?=" else f"&#{ord(c)};" for c in line)


def block(text: str, language: str = "") -> str:
    """A text as a block of code, whatever it contains."""
    shown = "\n".join(printable(line) for line in text.rstrip().split("\n"))
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A table in Markdown; the cells are Markdown already.

    Args:
        head: The titles.
        rows: The cells.
        numbers: How many columns at the end are numbers.
    """
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))
