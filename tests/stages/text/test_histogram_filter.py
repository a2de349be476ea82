"""The histogram filter, on an archive of the same form as the published one."""

from __future__ import annotations

import functools
import http.server
import io
import pickle
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tamis.errors import DataError
from tamis.stages.text.filters import HistogramFilter, ScoreFilter

HISTOGRAMS = {
    "en": "".join(f"{character}\t{1000 - n}\n" for n, character in enumerate(" etaoinshrdlucmfwypvbgkjqxz.,]Éž語")),
    "zh": "的\t9\n一\t8\n。\t7\n]\t6\né\t5\n",
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "histograms.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for language, lines in HISTOGRAMS.items():
            member = tarfile.TarInfo(f"checkpoint/edunov/cc60_multilingual/clean_hists/{language}")
            member.size = len(lines.encode())
            tar.addfile(member, io.BytesIO(lines.encode()))
    return path


@pytest.fixture(scope="module")
def cache(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("cache"))
    HistogramFilter(cache_dir=folder, archive=str(archive)).model_check_or_download()
    return folder


@pytest.fixture(scope="module")
def server(archive: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(archive.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


@pytest.mark.parametrize(
    ("lang", "text", "score"),
    [
        ("en", "an english text.", 1),
        ("en", "AN ENGLISH TEXT", 0),
        ("en", "abcd\0", 0),  # exactly the threshold, which must be exceeded
        ("en", "语言" * 5, 0),
        ("en", "语 語", 0),  # what is behind the threshold's line is not usual
        ("en", "    a    ", 0),  # white space at the ends is not counted as usual, but is part of the length
        ("zh", "的一。的一。", 1),
        ("en", "", 0),
        ("en", " \n", 0),
    ],
)
def test_score(cache: str, lang: str, text: str, score: int) -> None:
    keep = HistogramFilter(lang, cache_dir=cache)
    assert keep.score_document(text) == score
    assert keep.keep_document(score) is bool(score)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("et 語\n\0")))))
@example(texts=["", " ", "\0", "שלום\u200f", "e\u0301", "\u3000e\x1c"])
def test_both_forms_agree(cache: str, texts: list[str]) -> None:
    keep = HistogramFilter(cache_dir=cache, threshold=0.4)
    scores = keep.score_column(pa.chunked_array([pa.array([*texts, None], pa.string())]))
    assert scores.tolist() == [keep.score_document(text) for text in [*texts, ""]]
    assert keep.keep_scores(scores).tolist() == [keep.keep_document(score) for score in scores]


def test_archive_is_downloaded_once(server: str, tmp_path: Path) -> None:
    keep = HistogramFilter(cache_dir=str(tmp_path), archive=f"{server}/histograms.tar.gz")
    ScoreFilter(keep).setup_on_node()
    ScoreFilter(keep).setup()
    assert [p.name for p in tmp_path.iterdir()] == ["histograms"]
    again = HistogramFilter(cache_dir=str(tmp_path), archive="/nowhere")
    assert again.score_document("an english text.") == 1


def test_cache_is_the_users_when_none_is_given(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    HistogramFilter(archive=str(archive)).model_check_or_download()
    assert (tmp_path / "tamis" / "histograms").is_dir()


def test_archive_that_cannot_be_had_is_said(server: str, tmp_path: Path) -> None:
    for address in (f"{server}/missing.tar.gz", str(tmp_path / "missing.tar.gz")):
        with pytest.raises(DataError, match=r"cannot be fetched[\s\S]*archive=\.\.\."):
            HistogramFilter(cache_dir=str(tmp_path / "cache"), archive=address).model_check_or_download()
    (tmp_path / "broken.tar.gz").write_bytes(b"\x1f\x8b broken")
    with pytest.raises(DataError, match="cannot be unpacked"):
        HistogramFilter(cache_dir=str(tmp_path / "cache"), archive=str(tmp_path / "broken.tar.gz")).load_model()
    assert list((tmp_path / "cache").iterdir()) == []


def test_unknown_language_is_refused(cache: str) -> None:
    with pytest.raises(DataError, match=r"no histogram for the language 'eng'[\s\S]*There are: en, zh"):
        HistogramFilter("eng", cache_dir=cache).load_model()
    with pytest.raises(ValueError, match="give the code of a language"):
        HistogramFilter("../en")


def test_it_travels_and_runs_on_threads(cache: str) -> None:
    keep = HistogramFilter(cache_dir=cache)
    assert keep.vectorised
    keep.load_model()
    column = pa.chunked_array([["an english text.", "語"]])
    assert np.asarray(pickle.loads(pickle.dumps(keep)).score_column(column)).tolist() == [1, 0]
