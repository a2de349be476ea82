"""The server of ``tamis ui``: who is answered, with what, and that nothing outside the runs can be reached."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import Page
from sample_runs import ANSI, EVIL, branched_run, failed_run, many_stages_run, running_run, write_metrics

from tamis.runs.pages import server as served
from tamis.runs.pages.server import RunServer

STAGES = ["list", "read", "words", "write"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs of all kinds, and what must not be reached beside it."""
    base = tmp_path_factory.mktemp("served")
    runs = base / "runs"
    branched_run(base / "a", runs / "branched")
    branched_run(base / "b", runs / "evil", evil=True)
    many_stages_run(runs / "many", base / "c")
    failed_run(runs / "failed", base / "d")
    running_run(runs / "running", STAGES)
    (base / "secret").mkdir()
    (base / "secret" / "run.json").write_text('{"pipeline": "secret"}')
    (runs / "link").symlink_to(base / "secret")
    (runs / "no run").mkdir()
    return base


@pytest.fixture
def server(folder: Path) -> Iterator[RunServer]:
    made = RunServer(str(folder / "runs"))
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


class Answer:
    def __init__(self, response: http.client.HTTPResponse, body: bytes) -> None:
        self.status, self.headers = response.status, response.headers
        self.text = body.decode()


def ask(server: RunServer, path: str, method: str = "GET", signed_in: bool = True, **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    given = {"Cookie": f"{server.cookie}={server.token}"} if signed_in else {}
    connection.request(method, path, headers={**given, **headers})
    response = connection.getresponse()
    answer = Answer(response, response.read())
    connection.close()
    return answer


# --- who is answered ------------------------------------------------------------------------------------------------


def test_only_this_machine_is_listened_to(server: RunServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_without_the_token_nothing_is_shown(server: RunServer) -> None:
    for path in ("/", "/runs/branched", "/runs/branched/events", "/?token=wrong", "/?token="):
        answer = ask(server, path, signed_in=False)
        assert answer.status == 403
        assert "branched" not in answer.text
    assert ask(server, "/", signed_in=False, Cookie=f"{server.cookie}=wrong").status == 403
    assert ask(server, "/", signed_in=False, Cookie=f"tamis_1={server.token}").status == 403


def test_the_token_becomes_a_cookie_and_leaves_the_address(server: RunServer) -> None:
    answer = ask(server, f"/runs/branched/drops?token={server.token}&stage=a%20b", signed_in=False)
    assert answer.status == 303
    assert answer.headers["Location"] == "/runs/branched/drops?stage=a+b"
    cookie = answer.headers["Set-Cookie"]
    assert cookie == f"{server.cookie}={server.token}; Path=/; HttpOnly; SameSite=Strict"
    assert ask(server, f"//example.org/?token={server.token}", signed_in=False).headers["Location"] == "/example.org"


@pytest.mark.parametrize("host", ["example.org", "example.org:80", "127.0.0.1", "127.0.0.1.example.org", ""])
def test_another_name_for_this_address_is_refused(server: RunServer, host: str) -> None:
    assert ask(server, "/", Host=host).status == 403
    assert ask(server, "/", Host=f"localhost:{server.server_port}").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(server: RunServer, method: str) -> None:
    assert ask(server, "/", method).status == 405


def test_every_page_has_a_strict_policy(server: RunServer) -> None:
    first, second = (ask(server, "/runs/branched") for _ in range(2))
    policy = first.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    nonce = policy.split("'nonce-")[1].split("'")[0]
    assert f'<script nonce="{nonce}">' in first.text
    assert nonce not in second.text
    assert first.headers["X-Frame-Options"] == "DENY"
    assert first.headers["Cache-Control"] == "no-store"
    assert " style=" not in first.text


# --- what is answered -----------------------------------------------------------------------------------------------


def test_the_list_names_all_runs_and_nothing_else(server: RunServer) -> None:
    text = Page(ask(server, "/").text).text
    for name in ("branched", "evil", "many", "failed", "running"):
        assert f"\n{name}\n" in text
    assert "no run" not in text
    assert "secret" not in text


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../secret",
        "..%2Fsecret",
        "%2e%2e%2fsecret",
        "link",
        "no%20run",
        "%00",
        "/etc",
        "many%2F..%2F..%2Fsecret",
    ],
)
@pytest.mark.parametrize("more", ["", "/drops", "/quarantine", "/events"])
def test_no_path_leads_out_of_the_folder(server: RunServer, name: str, more: str) -> None:
    answer = ask(server, f"/runs/{name}{more}")
    assert answer.status == 404
    assert "secret" not in answer.text


@pytest.mark.parametrize("place", ["0.99999999", "99.0", "-1.0", "..", "1", "0.0.0", "0.x", "%00", "9" * 500])
def test_odd_places_in_the_ledger_are_not_found(server: RunServer, place: str) -> None:
    assert ask(server, f"/runs/branched/drops/{place}").status == 404
    assert ask(server, f"/runs/branched/drops?after={place}").status == 200
    assert ask(server, f"/runs/branched/quarantine?from={place}").status == 200


def test_one_run_is_shown(server: RunServer) -> None:
    page = Page(ask(server, "/runs/branched").text)
    for shown in ("Rows through the stages", "Why rows were dropped", "Scores", "Quarantine"):
        assert any(line.strip().startswith(shown) for line in page.text.splitlines())
    assert "the model server answered 503" in ask(server, "/runs/failed").text


def test_drops_are_filtered_searched_and_turned(server: RunServer) -> None:
    first = ask(server, "/runs/branched/drops")
    assert first.text.count("<article") == 20
    links = [value or "" for name, value in Page(first.text).attributes if name == "href"]
    following = next(link for link in links if "after=" in link)
    second = ask(server, following)
    earlier = next(v or "" for n, v in Page(second.text).attributes if n == "href" and "before=" in (v or ""))
    assert articles(ask(server, earlier).text) == articles(first.text)
    assert not set(articles(second.text)) & set(articles(first.text))
    odd = ask(server, "/runs/branched/drops?stage=alpha_numeric")
    assert all("alpha_numeric &gt; 0.25" in article for article in articles(odd.text))
    assert len(articles(odd.text)) == 20
    found = ask(server, "/runs/branched/drops?q=%25%25%25")
    assert all("<mark>%%%</mark>" in article for article in articles(found.text))
    assert "No dropped row matches" in ask(server, "/runs/branched/drops?q=nowhere-to-be-found").text
    assert "No dropped row matches" in ask(server, "/runs/branched/drops?stage=nosuch&reason=%3Cb%3E").text


def articles(text: str) -> list[str]:
    return [part.split("</article>")[0] for part in text.split("<article")[1:]]


def test_one_dropped_row_is_shown_whole(server: RunServer) -> None:
    text = Page(ask(server, "/runs/branched/drops/0.0").text).text
    assert "word_count" in text
    assert "As it is in the source" in text


def test_two_runs_are_compared(server: RunServer) -> None:
    text = Page(ask(server, "/compare?a=branched&b=many").text).text
    assert "only in the earlier run" in text
    assert "at_least_1_words_and_a_rather_long_name" in text
    assert ask(server, "/compare?a=branched&b=..").status == 404
    assert ask(server, "/compare").status == 404


@pytest.mark.parametrize(
    "path", ["/", "/runs/evil", "/runs/evil/drops", "/runs/evil/drops/0.0", "/compare?a=evil&b=many"]
)
def test_hostile_data_is_text(server: RunServer, path: str) -> None:
    answer = ask(server, path)
    page = Page(answer.text)
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert not set(answer.text) & set(ANSI) & {"\x1b", "\x07", "\u202e"}


def test_hostile_parameters_are_text(server: RunServer) -> None:
    from urllib.parse import urlencode

    fields = urlencode({"stage": EVIL, "reason": EVIL, "q": EVIL, "source": EVIL})
    page = Page(ask(server, f"/runs/branched/drops?{fields}").text)
    assert page.tags.count("script") == 1
    assert "img" not in page.tags


def test_a_damaged_run_is_a_page_that_says_so(server: RunServer, folder: Path) -> None:
    broken = folder / "runs" / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("[1")
    assert "killed" in ask(server, "/").text
    (broken / "run.json").write_text('{"pipeline": 1, "stages": [{"name": {}}], "state": "done"}')
    assert ask(server, "/runs/broken").status in (200, 404)
    (broken / "run.json").unlink()
    broken.rmdir()


def test_a_single_run_is_its_own_first_page(folder: Path) -> None:
    made = RunServer(str(folder / "runs" / "branched"))
    threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        assert "Rows through the stages" in ask(made, "/").text
        assert ask(made, "/runs/evil").status == 404
    finally:
        made.shutdown()
        made.server_close()


# --- live -----------------------------------------------------------------------------------------------------------


def test_a_running_run_sends_what_changes_until_it_ends(
    server: RunServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "EVENTS_S", 0.05)
    run = folder / "runs" / "live"
    running_run(run, STAGES, seconds=10)
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request("GET", "/runs/live/events", headers={"Cookie": f"{server.cookie}={server.token}"})
    response = connection.getresponse()
    assert response.headers["Content-Type"].startswith("text/event-stream")
    name, data = event(response)
    assert (name, sorted(data)) == ("update", ["badge", "head", "sections"])
    write_metrics(run, STAGES, 20, ended=False)
    name, data = event(response)
    assert name == "update"
    assert "badge" not in data
    os.remove(run / "run.lock")
    names = [event(response)[0]]
    while names[-1] != "end":
        names.append(event(response)[0])
    connection.close()
    for file in sorted(run.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    run.rmdir()


def event(response: http.client.HTTPResponse) -> tuple[str, dict[str, str]]:
    began = time.monotonic()
    name = ""
    while time.monotonic() - began < 20:
        line = response.readline().decode().rstrip("\n")
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            return name, json.loads(line.removeprefix("data: "))
    raise AssertionError("no event came")
