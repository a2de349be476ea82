"""Which files of which languages to take, and within what limits: the rules of ``PerExtensionFilter``.

The limits are those the BigCode project chose for StarCoder's data, ending by ending, by samples of each
(Li et al., 2023, https://arxiv.org/abs/2305.06161, section 3); NeMo Curator uses the same ones.
"""

from __future__ import annotations

import csv
import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tamis.errors import DataError, did_you_mean

__all__ = ["DEFAULT_FILE", "Rule", "rules_for"]

DEFAULT_FILE: Final = "code_meta.csv"

_COLUMNS: Final = ("language", "extension", "Include", "Long_line_threshold", "Alphanum_threshold", "Alpha filter")
_NO_ENDING: Final = "-"


@dataclass(frozen=True)
class Rule:
    """What files of one language with one ending must be like. ``None`` means no limit.

    Args:
        include: Whether to take such files at all.
        max_line_chars: The longest line, in characters; where it is limited, the mean is as well.
        min_alphanumeric: The lowest share of ASCII letters and digits, newlines and ``? ! , .``, 0 to 1.
        min_alphabetic: The lowest share of letters, 0 to 1.
        max_mean_line_chars: The highest mean length of the lines, in characters.
    """

    include: bool = True
    max_line_chars: int | None = 1000
    min_alphanumeric: float | None = 0.25
    min_alphabetic: float | None = None
    max_mean_line_chars: int = 100


_ENDINGS: Final = {
    "ada": "ada adb ads",
    "agda": "agda",
    "alloy": "als",
    "antlr": "g4",
    "applescript": "applescript scpt",
    "assembly": "a51 asm nasm",
    "augeas": "aug",
    "awk": "auk awk gawk mawk nawk",
    "batchfile": "bat cmd",
    "bison": "bison",
    "bluespec": "bsv",
    "c": "c cats h w",
    "c++": "c++ cc cp cpp cxx h++ hh hpp hxx inl ipp tcc tpp",
    "c-sharp": "cake cs cshtml csx",
    "clojure": "boot cl2 clj cljc cljs cljx",
    "cmake": "cmake",
    "coffeescript": "_coffee cjsx coffee cson iced",
    "common-lisp": "asd lisp lsp ny sexp",
    "css": "css",
    "cuda": "cu cuh",
    "dart": "dart",
    "dockerfile": "- 1 3 dockerfile mustache",
    "elixir": "ex exs",
    "elm": "elm",
    "emacs-lisp": "el emacs",
    "erlang": "erl escript hrl xrl yrl",
    "f-sharp": "fs fsi fsx",
    "fortran": "f f03 f08 f77 f90 f95 for fpp",
    "glsl": "fp frag frg fsh fshader geo geom glsl glslv shader vert vrx vsh vshader",
    "go": "go",
    "groovy": "groovy grt gtpl gvy",
    "haskell": "hs hsc",
    "html": "htm html xht xhtml",
    "idris": "idr lidr",
    "isabelle": "thy",
    "java": "java",
    "java-server-pages": "jsp",
    "javascript": "es6 js jsm pac sjs xsjslib",
    "json": "json",
    "julia": "jl",
    "kotlin": "kt kts",
    "lean": "hlean lean",
    "literate-agda": "lagda",
    "literate-coffeescript": "litcoffee",
    "literate-haskell": "lhs",
    "lua": "lua nse wlua",
    "makefile": "- cmake mak mk txt",
    "maple": "mpl",
    "markdown": "markdown md mkd mkdn ron",
    "mathematica": "cdf ma mathematica mt nb nbp wl wlt",
    "matlab": "matlab",
    "ocaml": "eliom eliomi ml ml4 mli mll mly",
    "pascal": "dfm dpr lpr pas",
    "perl": "al perl ph pl plx pm psgi t",
    "php": "ctp php phpt",
    "powershell": "ps1 psd1 psm1",
    "prolog": "prolog yap",
    "protocol-buffer": "proto",
    "python": "bzl gyp py pyde pyw",
    "r": "r rd rsx",
    "racket": "rkt rktd rktl scrbl",
    "restructuredtext": "rest rst",
    "rmarkdown": "rmd",
    "ruby": "builder gemspec jbuilder podspec rabl rake rb rbw ru ruby thor",
    "rust": "rs",
    "sas": "sas",
    "scala": "sbt scala",
    "scheme": "scm sld sps",
    "shell": "bash bats command ksh sh tmux tool zsh",
    "smalltalk": "st",
    "solidity": "sol",
    "sparql": "rq sparql",
    "sql": "cql db2 ddl pck pkb pks plb pls plsql prc sql tab udf",
    "stan": "stan",
    "standard-ml": "fun sig sml",
    "stata": "ado do doh ihlp mata matah sthlp",
    "systemverilog": "sv svh vh",
    "tcl": "adp tcl tm",
    "tcsh": "csh tcsh",
    "tex": "aux bbx bib cbx dtx ins lbx ltx mkii mkiv mkvi sty tex toc",
    "thrift": "thrift",
    "typescript": "ts tsx",
    "verilog": "veo",
    "vhdl": "vhd vhdl vhf vhi vho vht vhw",
    "visual-basic": "bas frm frx vb vba vbhtml vbs",
    "xslt": "xsl xslt",
    "yacc": "y yacc yy",
    "yaml": "yaml yml",
    "zig": "zig",
}
"""The endings of each language; ``-`` stands for files without one."""

_RULES: Final = {
    Rule(include=False): {
        "bison": "bison",
        "c": "cats w",
        "c-sharp": "csx",
        "clojure": "cl2",
        "common-lisp": "sexp",
        "erlang": "xrl",
        "fortran": "f77",
        "glsl": "frg geo vrx",
        "groovy": "grt",
        "mathematica": "cdf nbp wlt",
        "pascal": "dpr",
        "perl": "al ph plx",
        "racket": "rkt rktd rktl",
        "restructuredtext": "rest",
        "sql": "pck pls tab",
        "standard-ml": "sig",
        "stata": "ihlp sthlp",
        "tex": "aux ltx toc",
        "vhdl": "vhf vht",
        "visual-basic": "frx",
        "yacc": "yy",
    },
    Rule(max_line_chars=None): {  # prose in long lines, or data that belongs there
        "assembly": "asm",
        "bluespec": "bsv",
        "cmake": "cmake",
        "markdown": "markdown md mkd mkdn ron",
        "r": "r",
        "restructuredtext": "rst",
        "rmarkdown": "rmd",
        "sql": "sql",
        "stata": "ado do",
        "tex": "bbx bib cbx dtx ins lbx mkii mkiv mkvi sty tex",
    },
    Rule(max_line_chars=500): {"glsl": "fsh"},
    Rule(min_alphabetic=0.25): {
        "ada": "ads",
        "augeas": "aug",
        "glsl": "fp",
        "maple": "mpl",
        "mathematica": "wl",
        "scheme": "scm sld sps",
        "sql": "prc",
        "systemverilog": "sv",
        "vhdl": "vhd",
        "visual-basic": "bas",
        "yacc": "y",
    },
    Rule(min_alphabetic=0.5): {"yaml": "yaml yml"},
    Rule(max_line_chars=None, min_alphabetic=0.25): {"matlab": "matlab"},
    Rule(max_line_chars=None, min_alphabetic=0.5): {"json": "json"},
    Rule(max_line_chars=None, min_alphanumeric=None): {"visual-basic": "frm"},
    Rule(max_line_chars=None, min_alphanumeric=None, min_alphabetic=0.25): {"mathematica": "ma nb"},
    Rule(min_alphanumeric=None): {"sas": "sas"},
}
"""Where the rule differs from the usual one."""


def rules_for(lang: str, file: str = DEFAULT_FILE) -> dict[str, Rule]:
    """The rules for a language, by file name ending.

    Args:
        lang: The language, as people write it or as the table has it.
        file: A CSV file; the rules above if there is none of the default's name.

    >>> rules_for("Standard ML")["sig"].include, rules_for("R")["rd"].max_line_chars
    (False, 1000)
    """
    rules = _own_rules() if file == DEFAULT_FILE and not os.path.exists(file) else _read(file)
    language = _in_table(lang)
    if language not in rules:
        raise ValueError(
            f"PerExtensionFilter(lang={lang!r}): there are no rules for it.{did_you_mean(language, rules)}"
        )
    return rules[language]


def _in_table(lang: str) -> str:
    special = {"C#": "c-sharp", "F#": "f-sharp"}
    return special.get(lang, lang.lower().replace(" ", "-"))


@functools.cache
def _own_rules() -> dict[str, dict[str, Rule]]:
    rules = {language: dict.fromkeys(_split(endings), Rule()) for language, endings in _ENDINGS.items()}
    for rule, languages in _RULES.items():
        for language, endings in languages.items():
            rules[language].update(dict.fromkeys(_split(endings), rule))
    return rules


def _split(endings: str) -> list[str]:
    return ["" if ending == _NO_ENDING else ending for ending in endings.split()]


def _read(path: str) -> dict[str, dict[str, Rule]]:
    """The rules of a CSV file. What is not a number, such as an empty field or a word, means no limit."""
    rules: dict[str, dict[str, Rule]] = {}
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            for missing in [c for c in _COLUMNS if c not in (rows.fieldnames or ())]:
                raise DataError(f"there is no column {missing!r}; the rules need {', '.join(_COLUMNS)}", path=path)
            for row in rows:
                line = _number(row["Long_line_threshold"])
                rules.setdefault(row["language"], {})[row["extension"]] = Rule(
                    include=row["Include"] == "1",
                    max_line_chars=None if line is None else int(line),
                    min_alphanumeric=_number(row["Alphanum_threshold"]),
                    min_alphabetic=_number(row["Alpha filter"]),
                )
    except FileNotFoundError as e:
        raise FileNotFoundError(f"PerExtensionFilter(metadata_file={path!r}): there is no such file") from e
    return rules


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
