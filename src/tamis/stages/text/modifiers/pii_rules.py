"""Rules that find personal data and secrets in a text.

A rule has needles, short strings one of which every find contains, so that texts without any cost next to nothing, and
a function that finds the places. Rules are strict where they can be: check digits, ranges and shapes are verified, as a
wrong find damages good text.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tamis.kernels.needles import Letter, Needles, any_case, digits, exactly
from tamis.kernels.operations import IN_LONG_WORDS, NEAR_DIGITS

__all__ = ["RULES", "Rule", "Span", "is_iban", "is_luhn_number"]

Span: TypeAlias = tuple[int, int]
"""Where a find begins and ends, in characters."""


@dataclass(frozen=True)
class Rule:
    """How one kind of data is found: every place in a text, from left to right. A text with none of the needles is
    skipped.
    """

    needles: tuple[Needles, ...]
    find: Callable[[str], Iterator[Span]]


_UPPER: Letter = (0, ord("A"), ord("Z"))
_DIGIT: Letter = (0, ord("0"), ord("9"))
_UPPER_OR_DIGIT: Letter = (0, ord("0"), ord("Z"))  # and some punctuation between them
_HEX: Letter = (32, ord("0"), ord("f"))  # and what lies between
_SEPARATOR: Letter = (0, ord(" "), ord("-"))
_DOT, _COLON, _SPACE, _PLUS = exactly("."), exactly(":"), exactly(" "), exactly("+")
_NO_BREAK = exactly("\u00a0")  # the space that keeps the parts of a number on one line

# What belongs to another word where it stands right beside a find. Scripts that put no spaces between words (Chinese,
# Japanese, Thai and the like), or none before endings (Korean), do not count.
_WORD = (
    r"[^\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    r"\U00020000-\U0003ffff]"
)


# -- e-mail ------------------------------------------------------------------------------------------------------------

_LETTERS = r"A-Za-z0-9\u00c0-\u024f\u0370-\u052f"  # Latin, Greek and Cyrillic: RFC 6531
_LOCAL_PART = re.compile(rf"(?<!{_WORD})(?<![.+%-])[{_LETTERS}_+%-](?:[{_LETTERS}._+%'-]{{0,62}}[{_LETTERS}_+%-])?\Z")
_DOMAIN = re.compile(
    rf"(?:[{_LETTERS}](?:[{_LETTERS}-]{{0,61}}[{_LETTERS}])?\.){{1,8}}([A-Za-z]{{2,24}}|xn--[a-z0-9-]{{2,59}})(?!{_WORD}|-)"
)
# What stands after the last dot of names of files and of systemd's units that have an "@" in them.
_FILES = ("png", "jpg", "jpeg", "gif", "svg", "webp", "css", "js", "json", "html", "xml", "conf")
_UNITS = ("service", "socket", "target", "timer", "mount", "path", "device", "slice")
_NO_DOMAINS = frozenset((*_FILES, *_UNITS))


def _find_email(text: str) -> Iterator[Span]:
    at, done = text.find("@"), 0
    while at >= 0:
        local = _LOCAL_PART.search(text, max(done, at - 64), at)
        domain = _DOMAIN.match(text, at + 1) if local else None
        if local and domain and domain[1].lower() not in _NO_DOMAINS and not _is_repository(text, local, domain):
            yield local.start(), domain.end()
            done = domain.end()
        at = text.find("@", at + 1)


def _is_repository(text: str, local: re.Match[str], domain: re.Match[str]) -> bool:
    """Whether this is the address of a repository: ``git@host.org:name``."""
    return local[0] == "git" and text.startswith((":", "/"), domain.end())


# -- telephone ---------------------------------------------------------------------------------------------------------

# The first character of these patterns is looked at first, and what must not stand before it only then: Python finds a
# pattern that begins with few characters much faster.
_SPACES = " \u00a0\u202f"  # also those that do not break
_BETWEEN = rf"[{_SPACES}./\u2010\u2011\u2013-]"  # hyphens and dashes, too
_INTERNATIONAL = re.compile(
    rf"\+(?<!{_WORD}\+)(?<![+.]\+)[1-9](?:{_BETWEEN}?\(?[0-9]++\)?){{1,9}}(?!{_WORD}|\+|[.-][0-9])"
)
# Seven digits after an area code, neither of which begins with 0 or 1: the numbering plan of North America.
_NOT_AFTER = rf"(?!{_WORD}|[/=-]|\.[0-9])"
_AMERICAN = (
    re.compile(rf"[2-9](?<!{_WORD}[2-9])(?<![.+/=-][2-9])[0-9]{{2}}([-.])[2-9][0-9]{{2}}\1[0-9]{{4}}{_NOT_AFTER}"),
    re.compile(rf"1(?<!{_WORD}1)(?<![.+/=-]1)[-. ][2-9][0-9]{{2}}([-.])[2-9][0-9]{{2}}\1[0-9]{{4}}{_NOT_AFTER}"),
    re.compile(rf"\((?<!{_WORD}\()(?<![.+/=-]\()[2-9][0-9]{{2}}\)[ \u00a0]?[2-9][0-9]{{2}}[-. ][0-9]{{4}}{_NOT_AFTER}"),
)
_AFTER_A_MARK = re.compile(
    rf"[.:\uff1a][{_SPACES}]?(\(?[0-9](?:\)?{_BETWEEN}{{0,3}}\(?[0-9]){{5,14}})(?!{_WORD}|[.-][0-9])"
)
_WORDS_FOR_PHONE = (
    *("tel", "phone", "telephone", "telefon", "telefono", "telefone", "telefoon", "fax", "telefax", "mobile", "mobil"),
    *("cell", "handy", "gsm", "whatsapp"),
)
# In lower case, with a capital letter and in capitals: to ignore the case would find more than the needles do.
_MORE_WORDS_FOR_PHONE = ("tél", "téléphone", "teléfono", "móvil", "тел", "телефон", "факс")
_ASIAN_WORDS_FOR_PHONE = ("电话", "電話", "手机", "手機", "전화", "โทร")
_IN_ANY_CASE = [form for word in _MORE_WORDS_FOR_PHONE for form in (word, word.capitalize(), word.upper())]
_WORD_FOR_PHONE = re.compile(
    rf"(?<!{_WORD})(?:(?ai:{'|'.join(_WORDS_FOR_PHONE)})|{'|'.join([*_IN_ANY_CASE, *_ASIAN_WORDS_FOR_PHONE])})"
    r"[.:]?\Z"
)
_LONGEST_WORD = max(map(len, (*_WORDS_FOR_PHONE, *_MORE_WORDS_FOR_PHONE))) + 1
_MARK: Letter = (0, ord("."), ord(":"))
_NUMBER: Letter = (0, ord("("), ord("9"))
_PHONE_NEEDLES = Needles.of(
    [*_PLUS, (0, ord("1"), ord("9")), (0, ord(" "), ord("9"))],
    *([*_PLUS, (0, ord("1"), ord("9")), first] for first in (exactly("\u00a0")[0], exactly("\u2013")[0])),
    [*digits(3), (0, ord(" "), ord(".")), *digits(4)],
    # What the words end with and the mark after them; or spaces around the mark.
    *([*any_case(end), _MARK] for end in ("tel", "hone", "fon", "fono", "fone", "foon", "fax", "mobile", "mobil")),
    *([*any_case(end), _MARK] for end in ("cell", "handy", "gsm", "whatsapp")),
    *([*exactly(form), _MARK] for end in ("él", "óvil", "фон", "акс") for form in (end, end.upper())),
    *([*exactly(form), _MARK] for form in ("тел", "Тел", "ТЕЛ")),
    *([*exactly(word), _MARK] for word in _ASIAN_WORDS_FOR_PHONE),
    *([*exactly(f"{space}:")] for space in _SPACES[1:]),
    *([*exactly(f" :{space}"), _NUMBER] for space in ("", *_SPACES)),
    *([*exactly(f"\uff1a{space}"), _NUMBER] for space in ("", *_SPACES)),
    where=NEAR_DIGITS,
)


def _find_phone(text: str) -> Iterator[Span]:
    found = [match.span() for pattern in _AMERICAN for match in pattern.finditer(text)]
    found += [m.span() for m in _INTERNATIONAL.finditer(text) if 9 <= _digits_in(m[0]) <= 15]
    for match in _AFTER_A_MARK.finditer(text):
        end = match.start()
        if text[end] == ":" and end > 0 and text[end - 1] in _SPACES:
            end -= 1
        word = _WORD_FOR_PHONE.search(text, max(0, end - _LONGEST_WORD), end)
        if word and 7 <= _digits_in(match[1]) <= 15:
            found.append(match.span(1))
    yield from _apart(found)


def _digits_in(text: str) -> int:
    return sum(map(str.isdigit, text))


# -- internet addresses ------------------------------------------------------------------------------------------------

# A slash before it makes it a version (Chrome/91.0.44.124), two the host of an address (http://93.184.216.34/). With
# the ending of a file after it, it is part of a name (93.184.216.34.tar.gz).
_FILE_ENDINGS = "tar|tgz|zip|gz|xz|bz2|deb|rpm|exe|msi|dmg|jar|whl|apk|dll|so|patch|diff|log|txt|html|pdf"
_IPV4 = re.compile(
    rf"[1-9](?<!{_WORD}[1-9])(?<![.+~-][1-9])(?<![^/]/[1-9])[0-9]{{0,2}}(?:\.[0-9]{{1,3}}){{3}}"
    rf"(?!{_WORD}|[+~-]|\.[0-9]|\.(?:{_FILE_ENDINGS}){_WORD}*)"
)
_BEFORE_NUMBERING = re.compile(
    r"(?i)(?:(?:version|release|revision|firmware|kernel|build|section|chapter|clause|annex|appendix|object identifier)"
    r"|(?<![a-z])(?:v|ver|rev|oid|fig|figure|table|article|paragraph|rule|step))"
    r"""[\])]?["']?\s?[.:=]?\s*["'(]?\Z|\N{SECTION SIGN}\s*\Z|(?:[<>=]=|<<|>>|~>)\s*\Z"""
)
_BEGINNING_OF_LINE = re.compile(r"(?:\A|\n)[ \t]*\Z")
_COLONS = re.compile(r":(?=[0-9A-Fa-f]{0,4}:)")
_IPV6 = re.compile(rf"(?:[0-9A-Fa-f]{{0,4}}:){{2,7}}[0-9A-Fa-f]{{0,4}}(?<![^:]:)(?!{_WORD}|:[0-9A-Fa-f:]|\.[0-9])")
_IPV4_NEEDLES = Needles.of(*([_DIGIT, *_DOT, *digits(size), *_DOT, _DIGIT] for size in (1, 2, 3)), where=NEAR_DIGITS)
_IPV6_NEEDLES = Needles.of(*([*_COLON, *[_HEX] * size, *_COLON] for size in (3, 4)), [*[_HEX] * 3, *_COLON, *_COLON])
_HIGHEST_OF_A_VERSION = 50
_OBJECT_IDENTIFIER = re.compile(r"1\.[0-3]\.")  # ISO's arcs: the addresses that begin so are few
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_NO_BEGINNING = re.compile(rf"(?:{_WORD}|[:.])\Z")


def _find_ip(text: str) -> Iterator[Span]:
    found = [m.span() for m in _IPV4.finditer(text) if not _is_numbering(text, m) and _is_public(m[0])]
    done = 0
    for colon in _COLONS.finditer(text):
        begin = colon.start()
        while begin > done and begin > colon.start() - 4 and text[begin - 1] in _HEX_DIGITS:
            begin -= 1
        match = _IPV6.match(text, begin) if colon.start() >= done else None
        if match and not _NO_BEGINNING.search(text, max(0, begin - 1), begin):
            done = match.end()
            groups = match[0].split(":")
            has_long_group = max(map(len, groups[1:-1])) > 2 or (len(groups[0]) > 2 and not groups[1])
            if has_long_group and any(map(str.isdigit, match[0])) and _is_public(match[0]):
                found.append(match.span())
    yield from _apart(found)


def _is_numbering(text: str, match: re.Match[str]) -> bool:
    """Whether four numbers are those of a version, of a section or of an object identifier (OID)."""
    # Four small numbers are hardly ever an address, but often a version.
    if max(map(int, match[0].split("."))) < _HIGHEST_OF_A_VERSION or _OBJECT_IDENTIFIER.match(match[0]):
        return True
    begin = match.start()
    if text.startswith(".", match.end()) and _BEGINNING_OF_LINE.search(text, max(0, begin - 20), begin):
        return True
    return _BEFORE_NUMBERING.search(text, max(0, begin - 24), begin) is not None


def _is_public(address: str) -> bool:
    """Whether this is an address, and not one of a private, local or reserved network."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return False
    return known.is_global and not known.is_multicast and not known.is_reserved


# -- bank accounts and cards -------------------------------------------------------------------------------------------

# The length of an IBAN by country: ISO 13616, registry of 2024.
_COUNTRIES_BY_LENGTH = {
    15: "NO",
    16: "BE",
    18: "DK FI FK FO GL NL",
    19: "MK SI",
    20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HU LB NI PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
_IBAN_LENGTHS = {country: length for length, some in _COUNTRIES_BY_LENGTH.items() for country in some.split()}
_IBAN = re.compile(rf"(?<!{_WORD})(?=([A-Z]{{2}}[0-9]{{2}}(?:[ \u00a0]?[A-Z0-9]){{11,30}}))")
_AFTER_AN_IBAN = re.compile(_WORD)
_IBAN_NEEDLES = Needles.of(
    [_UPPER, _UPPER, _DIGIT, _DIGIT, *[_UPPER_OR_DIGIT] * 3],
    *([_UPPER, _UPPER, _DIGIT, _DIGIT, *space, *[_UPPER_OR_DIGIT] * 3] for space in (_SPACE, _NO_BREAK)),
    where=NEAR_DIGITS,
)


def is_iban(text: str) -> bool:
    """Whether a text without spaces is an IBAN: its country's length, and the check digits (ISO 7064, mod 97-10).

    >>> is_iban("GB82WEST12345698765432"), is_iban("GB82WEST12345698765433")
    (True, False)
    """
    if len(text) != _IBAN_LENGTHS.get(text[:2]):
        return False
    return int("".join(str(int(c, 36)) for c in text[4:] + text[:4])) % 97 == 1


def _find_iban(text: str) -> Iterator[Span]:
    for match in _IBAN.finditer(text):
        begin = end = match.start()
        length = _IBAN_LENGTHS.get(text[begin : begin + 2], 0)
        compact = ""
        while end < match.end(1) and len(compact) < length:
            compact += text[end].strip()
            end += 1
        if is_iban(compact) and not _AFTER_AN_IBAN.match(text, end):
            yield begin, end


_CARD = re.compile(
    rf"[2-6](?<!{_WORD}[2-6])(?<![.+/=#-][2-6])"
    r"(?:[0-9]{13,18}|[0-9]{3}(?:([ \u00a0-])[0-9]{4}\1[0-9]{4}\1[0-9]{4}(?:\1[0-9]{3})?"
    rf"|([ \u00a0-])[0-9]{{6}}\2[0-9]{{4,5}})){_NOT_AFTER}"
)
_CARD_NEEDLES = Needles.of(
    digits(14),
    *(
        [*digits(4), *separator, *digits(size), *separator, *digits(4)]
        for separator in ([_SEPARATOR], _NO_BREAK)
        for size in (4, 6)
    ),
    where=NEAR_DIGITS,
)


def is_luhn_number(number: str) -> bool:
    """Whether the last digit is the check digit of the others (ISO/IEC 7812-1).

    >>> is_luhn_number("4111111111111111"), is_luhn_number("4111111111111112")
    (True, False)
    """
    doubled = [int(digit) * 2 for digit in number[-2::-2]]
    return (sum(map(int, number[::-2])) + sum(value - 9 if value > 9 else value for value in doubled)) % 10 == 0


def _is_of_an_issuer(number: str) -> bool:
    """Whether a number of this length may begin so."""
    two, four = int(number[:2]), int(number[:4])
    length = len(number)
    if length == 14:
        return two in (36, 38) or 3000 <= four <= 3059  # Diners Club
    if length == 15:
        return two in (34, 37)  # American Express
    if length == 16:
        is_mastercard = 51 <= two <= 55 or 2221 <= four <= 2720
        return number[0] == "4" or is_mastercard or four == 6011 or two in (62, 64, 65) or 3528 <= four <= 3589
    return two == 62 or (length == 19 and number[0] == "4")  # UnionPay, Visa


def _find_card(text: str) -> Iterator[Span]:
    for match in _CARD.finditer(text):
        number = "".join(filter(str.isdigit, match[0]))
        if len(set(number)) > 2 and _is_of_an_issuer(number) and is_luhn_number(number):
            yield match.span()


# -- keys and secrets --------------------------------------------------------------------------------------------------

_KEYS = {
    "AKIA": r"AKIA[0-9A-Z]{16}",  # Amazon Web Services
    "ASIA": r"ASIA[0-9A-Z]{16}",
    "gh": r"gh[pousr]_[0-9A-Za-z]{36,251}",  # GitHub
    "github_pat_": r"github_pat_[0-9A-Za-z_]{50,255}",
    "glpat-": r"glpat-[0-9A-Za-z_-]{20,64}",  # GitLab
    "xox": r"xox[abeoprs]-[0-9A-Za-z-]{20,250}",  # Slack
    "xapp-": r"xapp-[0-9]-[0-9A-Za-z-]{20,250}",
    "AIza": r"AIza[0-9A-Za-z_-]{35}",  # Google
    "ya29.": r"ya29\.[0-9A-Za-z_-]{30,400}",
    # OpenAI, Anthropic, OpenRouter
    "sk-": r"sk-(?:(?:ant|proj|svcacct|admin|or-v1)-[0-9A-Za-z_-]{20,250}|[0-9A-Za-z]{32,64})",
    "_live_": r"[rs]k_live_[0-9A-Za-z]{20,250}",  # Stripe
    "hf_": r"hf_[A-Za-z]{30,40}",  # Hugging Face
    "npm_": r"npm_[0-9A-Za-z]{36}",
    "pypi-": r"pypi-AgE[0-9A-Za-z_-]{50,250}",
    "SG.": r"SG\.[0-9A-Za-z_-]{22}\.[0-9A-Za-z_-]{43}",  # SendGrid
    "eyJ": r"eyJ[0-9A-Za-z_-]{8,2000}\.eyJ[0-9A-Za-z_-]{8,4000}\.[0-9A-Za-z_-]{16,1000}",  # JSON Web Tokens
}
_KEY = re.compile(rf"(?<![0-9A-Za-z_])(?:{'|'.join(_KEYS.values())})(?![0-9A-Za-z_])")
_KEY_BLOCK = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----)){0,20000}"
    r"-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
)
_KEY_NEEDLES = Needles.of(
    *(exactly(prefix) for prefix in _KEYS if prefix not in ("gh", "xox")),
    [*exactly("gh"), (0, ord("o"), ord("u")), *exactly("_")],
    [*exactly("xox"), (0, ord("a"), ord("s")), *exactly("-")],
    where=IN_LONG_WORDS,
)


def _find_key(text: str) -> Iterator[Span]:
    found = [m.span() for m in _KEY.finditer(text) if any(map(str.isdigit, m[0])) or m[0].startswith("hf_")]
    yield from _apart([*found, *(m.span() for m in _KEY_BLOCK.finditer(text))])


_ASSIGNED = re.compile(
    r"(?ai)(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)[\"']?"
    r"(?:\s{0,3}[:=]|\s{0,3}=>)\s{0,3}[\"']?([0-9a-z_+/=.~-]{16,200})(?![\w$({])"
)
_SECRET_NEEDLES = Needles.of(
    *map(any_case, ("password", "passwd", "secret", "token", "apikey", "accesskey", "privatekey", "credential")),
    *([*any_case(word), (0, ord("-"), ord("_")), *any_case("key")] for word in ("api", "access", "private")),
)
_LEAST_BITS = 3.5


def _find_secret(text: str) -> Iterator[Span]:
    for match in _ASSIGNED.finditer(text):
        value = match[1]
        has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
        if has_both and _bits_per_character(value) >= _LEAST_BITS and not _is_name(value):
            yield match.span(1)


_WORD_IN_A_NAME = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{4,}")
_UNPRONOUNCEABLE = re.compile(r"(?i)[^aeiouy]{5}|\A[^aeiouy]*\Z|[aeiouy]{4}")
_LETTER_AFTER_NUMERAL = re.compile(r"[0-9][A-Za-z]")
_PATH = re.compile(r"(?:~|\.{1,2})?/\.?[a-z]+[/.-]")


def _is_name(value: str) -> bool:
    """Whether a value is made of words: an identifier (``rfc3161.TimeStampToken``) or a path, not random characters."""
    if _PATH.match(value):
        return True
    words = [word for word in _WORD_IN_A_NAME.findall(value) if not _UNPRONOUNCEABLE.search(word)]
    is_mostly_words = sum(map(len, words)) >= 0.7 * sum(map(str.isalpha, value))
    # In names, numerals end a word (sha256); in random characters they stand anywhere.
    return is_mostly_words and len(_LETTER_AFTER_NUMERAL.findall(value)) <= 1


def _bits_per_character(text: str) -> float:
    """The entropy of the characters: words and numbers have little, random keys much."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


# -- social security ---------------------------------------------------------------------------------------------------

_SSN = re.compile(rf"(?<!{_WORD})(?<![.+/=-])(?!000|666|9)[0-9]{{3}}-(?!00)[0-9]{{2}}-(?!0000)[0-9]{{4}}{_NOT_AFTER}")
_SSN_NEEDLES = Needles.of([*digits(3), *exactly("-"), *digits(2), *exactly("-"), *digits(4)], where=NEAR_DIGITS)


def _find_ssn(text: str) -> Iterator[Span]:
    return (match.span() for match in _SSN.finditer(text))


def _apart(spans: list[Span]) -> Iterator[Span]:
    """The places from left to right without those that overlap an earlier one."""
    done = 0
    for begin, end in sorted(spans):
        if begin >= done:
            yield begin, end
            done = end


RULES: dict[str, Rule] = {
    "key": Rule((_KEY_NEEDLES, Needles.of(exactly("PRIVATE KEY"))), _find_key),
    "secret": Rule((_SECRET_NEEDLES,), _find_secret),
    "email": Rule((Needles.of(exactly("@")),), _find_email),
    "iban": Rule((_IBAN_NEEDLES,), _find_iban),
    "credit_card": Rule((_CARD_NEEDLES,), _find_card),
    "ip": Rule((_IPV4_NEEDLES, _IPV6_NEEDLES), _find_ip),
    "ssn": Rule((_SSN_NEEDLES,), _find_ssn),
    "phone": Rule((_PHONE_NEEDLES,), _find_phone),
}
"""Every rule by its kind; where two overlap, the earlier one counts."""
