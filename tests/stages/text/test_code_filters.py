"""Filters for source code: what they measure, and that both forms agree."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import regex
from comment_parser import comment_parser
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from property_tests import examples

from tamis.stages.text.filters import DocumentFilter, ScoreFilter
from tamis.stages.text.filters import code as filters
from tamis.stages.text.filters.code_extensions import Rule, rules_for
from tamis.stages.text.filters.comments import LANGUAGES, UnreadableSource, comments_of
from tamis.stages.text.filters.words import letters
from tamis.testing import run_stage

PARTS = [
    *["def f(x):\n    return x\n", "x = 1", "# note", "// note", "/* a\nb */", "/*", "*/", "<!-- c -->", "<!--", "-->"],
    *[
        '"',
        "'",
        "`",
        "\\",
        '\\"',
        "#",
        "/",
        "*",
        "\n",
        "\n\n",
        "\r\n",
        " ",
        "\t",
        '"""doc"""\n',
        "<?xml version=",
        "<p>",
    ],
    *[
        "<p>",
        "日本語",
        "ж",
        "\u0301",
        "\u093f",
        "Ⅳ",
        "\U0001f469",
        "\u0661",
        "\0",
        "1.5, ",
        "?!,.",
        "y" * 600,
        "\ufeff",
    ],
]
CODE = st.one_of(st.text(), st.lists(st.sampled_from(PARTS), max_size=15).map("".join))
MANY = examples(150, suppress_health_check=[HealthCheck.too_slow])

VECTORISED: list[DocumentFilter] = [
    filters.NumberOfLinesOfCodeFilter(min_lines=2, max_lines=5),
    filters.XMLHeaderFilter(),
    filters.XMLHeaderFilter(char_prefix_search_length=20),
    filters.AlphaFilter(),
    *(
        filters.PerExtensionFilter(lang, extension)
        for lang, extension in [
            ("Python", "py"),
            ("Markdown", "md"),
            ("yaml", "yml"),
            ("json", "json"),
            ("SAS", "sas"),
            ("GLSL", "fsh"),
            ("Mathematica", "nb"),
            ("Visual Basic", "frm"),
            ("C", "cats"),
            ("C", "none"),
            ("Dockerfile", None),
        ]
    ),
]


@pytest.mark.parametrize("filter_", VECTORISED, ids=repr)
@MANY
@given(texts=st.lists(CODE, max_size=4))
@example(texts=["", " ", "\n", "a" * 1001, "\n".join(["a" * 101] * 3), "a" + "\n" * 9, "?" * 3])
def test_both_forms_agree(filter_: DocumentFilter, texts: list[str]) -> None:
    column = pa.chunked_array([pa.array(texts, pa.string())])
    scores = filter_.score_column(column)
    expected = [filter_.score_document(text) for text in texts]
    assert np.asarray(scores).tolist() == expected
    assert filter_.keep_scores(scores).tolist() == [filter_.keep_document(score) for score in expected]


@pytest.mark.parametrize("filter_", VECTORISED, ids=repr)
def test_column_form_takes_chunks_slices_and_nulls(filter_: DocumentFilter) -> None:
    texts = ["not seen", "x = 1\ny = 2", "", None, "日本\n" * 3, '<?xml version="1.0"?>']
    whole = pa.array(texts, pa.large_string())
    column = pa.chunked_array([whole.slice(1, 2), whole.slice(0, 0), whole.slice(3)])
    assert np.asarray(filter_.score_column(column)).tolist() == [filter_.score_document(t or "") for t in texts[1:]]
    assert len(filter_.score_column(pa.chunked_array([], pa.string()))) == 0
    assert filter_.vectorised


def test_alphabetic_is_what_regular_expressions_call_alpha() -> None:
    # Characters that this Python does not know may be newer in one of the two tables than in the other.
    known = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Cs")]
    alpha = set(regex.findall("[[:alpha:]]", "".join(known)))
    assert [c for c in known if bool(letters().match(c)) != (c in alpha)] == []


@pytest.mark.parametrize("language", LANGUAGES)
@MANY
@given(source=CODE)
@example(source="/***/ /*a**b*/ /**/ /*/ */ // x\n/")
@example(source="a = 'it\\'s' # x\n\"\\\" // y\n\" /'/' /* z */")
@example(source='"a" "b<!-- c -->" <!-- d\n --> "\n <!-- e --> "')
def test_comments_are_those_of_the_package(language: str, source: str) -> None:
    theirs: list[str] | None
    try:
        theirs = [c.text() for c in comment_parser.extract_comments_from_str(source, mime=language)]
    except Exception:  # noqa: BLE001 - it lets several kinds through
        theirs = None
    try:
        ours: list[str] | None = comments_of(source, language)
    except UnreadableSource:
        ours = None
    assert ours == theirs


SCORES: list[tuple[DocumentFilter, str, Any]] = [
    (filters.PythonCommentToCodeFilter(), '"""Doc."""\nx = 1  # one\n', (4 + 5) / 24),
    (filters.PythonCommentToCodeFilter(), 'def f():\n    """A."""\n\nclass C:\n    """B."""\n', 5 / 45),
    (filters.PythonCommentToCodeFilter(), "x = (  # never closed", 0.0),
    (filters.PythonCommentToCodeFilter(), "x = '\0'  # NUL", 0.0),
    (filters.PythonCommentToCodeFilter(), "(" * 10_000 + ")" * 10_000 + "# deep", 0.0),
    (filters.GeneralCommentToCodeFilter("text/x-c"), "/* a */ f(); // b", len(" a   b") / 17),
    (filters.GeneralCommentToCodeFilter("text/x-c"), "f(); /* never closed", 9999.0),
    (filters.NumberOfLinesOfCodeFilter(), "a\nb\n", 3),
    (filters.XMLHeaderFilter(), "\n" * 90 + "<?xml version=", 0),
    (filters.AlphaFilter(), "किa1", 0.75),  # a vowel sign is alphabetic
    (filters.HTMLBoilerplateFilter(), "<p>" + "a" * 99, 0.0),
    (filters.HTMLBoilerplateFilter(), "<p>" + "a" * 100, 100 / 103),
    (filters.HTMLBoilerplateFilter(), "<script>var x;</script><!-- no -->" + "a" * 100, 100 / 134),
    (filters.HTMLBoilerplateFilter(), "<![foo[" + "a" * 200, 0.0),  # the parser refuses it
    (filters.PerExtensionFilter("C#", "cs"), "int x = 1;", 1),
    (filters.PerExtensionFilter("c-sharp", "csx"), "int x = 1;", 0),  # such files are left out
    (filters.PerExtensionFilter("Python", "py"), "a" * 1001 + "\n" * 20, 0),
    (filters.PerExtensionFilter("Python", "py"), "a" * 101, 0),  # lines are too long in the mean
    (filters.PerExtensionFilter("Markdown", "md"), "a" * 5000, 1),
    (filters.PerExtensionFilter("Python", "py"), "+-" * 20 + "ab", 0),
    (filters.PerExtensionFilter("YAML", "yml"), "1: a", 0),
]


@pytest.mark.parametrize(("filter_", "text", "score"), SCORES)
def test_score(filter_: DocumentFilter, text: str, score: float) -> None:
    assert filter_.score_document(text) == pytest.approx(score)


@pytest.mark.parametrize(
    "filter_",
    [
        filters.PythonCommentToCodeFilter(),
        filters.GeneralCommentToCodeFilter("text/x-go"),
        filters.NumberOfLinesOfCodeFilter(),
        filters.AlphaFilter(),
        filters.HTMLBoilerplateFilter(),
        filters.PerExtensionFilter("Python", "py"),
    ],
)
@pytest.mark.parametrize("text", ["", "   "])
def test_text_without_code_is_dropped_not_raised(filter_: DocumentFilter, text: str) -> None:
    assert filter_.keep_document(filter_.score_document(text)) is False


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: filters.GeneralCommentToCodeFilter("text/x-jav"), "Did you mean 'text/x-java'?"),
        (lambda: filters.PerExtensionFilter("Rubi", "rb"), "Did you mean 'ruby'?"),
        (lambda: filters.PerExtensionFilter("Ruby", "rb", "mine.csv"), "no such file"),
        (lambda: filters.TokenizerFertilityFilter(), "give the path"),
        (lambda: filters.XMLHeaderFilter(-1), "must not be negative"),
    ],
)
def test_wrong_parameters_are_refused(make: Any, words: str) -> None:
    with pytest.raises((ValueError, OSError)) as caught:
        make()
    assert words in str(caught.value)


def test_rules_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    columns = "extension,language,Include,Alphanum_threshold,Long_line_threshold,Alpha filter"
    Path("code_meta.csv").write_text(f"{columns}\npy,python,1,remove,20,\n,make,0,,,0.5\n", encoding="utf-8")
    assert rules_for("Python") == {"py": Rule(max_line_chars=20, min_alphanumeric=None)}
    filter_ = filters.PerExtensionFilter("Python", "py")
    assert [filter_.score_document("+" * n) for n in (20, 21)] == [1, 0]
    assert not filters.PerExtensionFilter("make", None).score_document("x")
    Path("bad.csv").write_text("extension,language\npy,python\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"bad\.csv: there is no column 'Include'"):
        filters.PerExtensionFilter("Python", "py", "bad.csv")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    import sentencepiece

    folder = tmp_path_factory.mktemp("tokenizer")
    words = ("def", "return", "value", "function", "result", "class", "import", "number", "string", "print")
    lines = [" ".join(words[i % k] for k in range(1, 11)) + f" = ({i})" for i in range(300)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(folder / "code"), vocab_size=60, model_type="bpe", minloglevel=2
    )
    return str(folder / "code.model")


def test_fertility_is_characters_per_token(tokenizer: str) -> None:
    filter_ = filters.TokenizerFertilityFilter(tokenizer, min_char_to_token_ratio=2.5)
    usual, odd = filter_.score_document("return function value"), filter_.score_document("(= )0)= 17=(3")
    assert usual > 2.5 > odd > 0
    assert filter_.score_document("") == -1.0


def test_fertility_runs_in_worker_processes(tokenizer: str) -> None:
    rows = [{"text": "return function value"}, {"text": "(= )0)= 17=(3"}]
    run = run_stage(ScoreFilter(filters.TokenizerFertilityFilter(tokenizer), score_field="fertility"), rows, workers=2)
    assert [row["text"] for row in run] == ["return function value"]
    assert run.dropped[0].reason == "tokenizer_fertility < 2.5"


def test_reasons_say_what_was_wrong() -> None:
    assert filters.XMLHeaderFilter().reason() == "begins with an XML header"
    reasons = [filters.PerExtensionFilter("C", e).reason() for e in ("c", "cats", "none", None)]
    assert reasons == [
        "outside the limits for C files ending in .c",
        "C files ending in .cats are left out",
        "no rule for C files ending in .none",
        "no rule for C files without an ending",
    ]
