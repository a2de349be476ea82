"""The report and the pages of ``tamis ui`` in a real browser: light and dark, wide and narrow, by keyboard."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import CHROMIUM, FLAGS
from sample_runs import branched_run, duplicates_run, failed_run, many_stages_run, running_run, write_metrics

from tamis.runs.pages.server import RunServer

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt-get install chromium)"),
]

STAGES = ["list", "read", "words", "write"]
PAGES = [
    "/",
    "/runs/branched",
    "/runs/evil",
    "/runs/many",
    "/runs/failed",
    "/runs/duplicates",
    "/runs/running",
    "/runs/evil/drops",
    "/runs/evil/drops?q=script",
    "/runs/evil/drops/0.0",
    "/runs/failed/drops",
    "/runs/branched/quarantine",
    "/compare?a=branched&b=evil",
]
CONTRAST = """() => {
  const channel = (v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; };
  const light = (color) => {
    const [r, g, b] = color.match(/[0-9.]+/g).map(channel);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const shown = "body, .soft, a:not(.skip), .loss, th, .state, .port, .better, .worse, .live";
  const ratios = [...document.querySelectorAll(shown)].map((element) => {
    const ink = light(getComputedStyle(element).color);
    return [(Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05), element.className || element.tagName];
  });
  return ratios.sort((a, b) => a[0] - b[0])[0];
}"""
"""The lowest contrast of a text with the page, and where it is (WCAG 2.1, 1.4.3)."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("browser")
    runs = base / "runs"
    result = branched_run(base / "a", runs / "branched")
    write_metrics(runs / "branched", [stage.name for stage in result.stages])
    branched_run(base / "b", runs / "evil", evil=True)
    many_stages_run(runs / "many", base / "c")
    failed_run(runs / "failed", base / "d")
    duplicates_run(runs / "duplicates", base / "e")
    running_run(runs / "running", STAGES)
    return runs


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunServer]:
    made = RunServer(str(folder))
    threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield made
        made.close()


class Tab:
    """A page of the browser that notes what it asks for and complains about."""

    def __init__(self, browser: Any, **settings: Any) -> None:
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def focused(self) -> str:
        return str(self.page.evaluate("document.activeElement.outerHTML.slice(0, 200)"))


@pytest.fixture
def tab(browser: Any, server: RunServer) -> Iterator[Tab]:
    made = Tab(browser, viewport={"width": 1100, "height": 800})
    made.page.goto(server.address)
    yield made
    made.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 360])
def test_pages_fit_load_nothing_else_and_are_readable(browser: Any, server: RunServer, scheme: str, width: int) -> None:
    tab = Tab(browser, viewport={"width": width, "height": 800}, color_scheme=scheme)
    tab.page.goto(server.address)
    assert "token" not in tab.page.url
    for path in PAGES:
        tab.page.goto(f"http://127.0.0.1:{server.server_port}{path}")
        tab.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert tab.page.title() != "broken"
        assert tab.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), path
        ratio, where = tab.page.evaluate(CONTRAST)
        assert ratio >= 4.5, (path, where)
    assert tab.complaints == []
    assert all(url.startswith(f"http://127.0.0.1:{server.server_port}/") for url in tab.asked)
    tab.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 360])
def test_the_report_does_so_without_a_server(browser: Any, folder: Path, scheme: str, width: int) -> None:
    tab = Tab(browser, viewport={"width": width, "height": 800}, color_scheme=scheme)
    for name in ("branched", "evil", "many", "failed", "duplicates"):
        page = (folder / name / "report.html").as_uri()
        tab.page.goto(page)
        tab.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert tab.page.title() != "broken"
        assert tab.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), name
        assert tab.page.evaluate(CONTRAST)[0] >= 4.5
    assert tab.complaints == []
    assert all(url.startswith("file:") for url in tab.asked)
    tab.context.close()


MARKED = """() => {
  const channel = (v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; };
  const light = (color) => {
    const [r, g, b] = color.match(/[0-9.]+/g).map(channel);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  return [...document.querySelectorAll("mark")].map((mark) => {
    const style = getComputedStyle(mark), ink = light(style.color), ground = light(style.backgroundColor);
    return (Math.max(ink, ground) + .05) / (Math.min(ink, ground) + .05);
  });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_differences_of_duplicates_are_marked_and_readable(browser: Any, folder: Path, scheme: str) -> None:
    tab = Tab(browser, viewport={"width": 1100, "height": 800}, color_scheme=scheme)
    tab.page.goto((folder / "duplicates" / "report.html").as_uri())
    tab.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    ratios = tab.page.evaluate(MARKED)
    assert ratios
    assert min(ratios) >= 4.5
    marked = tab.page.locator("mark.lost").all_inner_texts()
    assert any(text.startswith("<script>document.title=") for text in marked)
    kept, lost = (tab.page.locator(f".pair .excerpt.{kind}").first.bounding_box() for kind in ("kept", "lost"))
    assert kept["y"] == lost["y"]  # side by side
    tab.page.set_viewport_size({"width": 360, "height": 800})
    kept, lost = (tab.page.locator(f".pair .excerpt.{kind}").first.bounding_box() for kind in ("kept", "lost"))
    assert lost["y"] >= kept["y"] + kept["height"]
    tab.context.close()


def test_without_a_token_the_browser_is_refused(browser: Any, server: RunServer) -> None:
    tab = Tab(browser)
    response = tab.page.goto(f"http://127.0.0.1:{server.server_port}/runs/branched")
    assert response.status == 403
    assert "branches" not in tab.page.content()
    tab.context.close()


def test_everything_can_be_reached_by_keyboard(tab: Tab, server: RunServer) -> None:
    page = tab.page
    page.goto(f"http://127.0.0.1:{server.server_port}/runs/branched")
    page.keyboard.press("Tab")
    assert "Skip to the content" in tab.focused()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert "<summary" in tab.focused()
    assert outline != "none" or page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.parentElement.open")
    head = page.locator("table.sortable th button", has_text="Time").first
    head.focus()
    page.keyboard.press("Enter")
    assert page.locator("th[aria-sort=descending]").first.inner_text().startswith("Time")


def test_the_drops_browser_by_keyboard(tab: Tab, server: RunServer) -> None:
    page = tab.page
    page.goto(f"http://127.0.0.1:{server.server_port}/runs/branched/drops")
    first = page.locator("article").first.inner_text()
    page.keyboard.press("n")
    page.wait_for_url("**after=**")
    assert page.locator("article").first.inner_text() != first
    page.keyboard.press("p")
    page.wait_for_url("**before=**")
    assert page.locator("article").first.inner_text() == first
    page.keyboard.press("/")
    page.keyboard.type("%%%")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=**")
    assert page.locator("article mark").first.inner_text() == "%%%"
    page.locator("article a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/drops/*")
    assert "%%%" in page.locator("pre").first.inner_text()


def test_a_run_is_shown_live(tab: Tab, server: RunServer, folder: Path) -> None:
    page = tab.page
    page.goto(f"http://127.0.0.1:{server.server_port}/runs/running")
    playwright.expect(page.locator(".live")).to_have_text("live")
    page.locator("summary").first.click()
    before = page.locator(".tiles").inner_text()
    write_metrics(folder / "running", STAGES, seconds=90, ended=False)
    playwright.expect(page.locator(".tiles")).not_to_have_text(before, use_inner_text=True)
    assert page.locator("details").first.evaluate("(details) => details.open")
    assert tab.complaints == []


def test_the_list_shows_runs_as_they_begin(tab: Tab, server: RunServer, folder: Path) -> None:
    playwright.expect(tab.page.locator(".live")).to_have_text("live")
    running_run(folder / "newcomer", STAGES)
    tab.page.get_by_role("link", name="newcomer").wait_for()
    for file in sorted((folder / "newcomer").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    (folder / "newcomer").rmdir()
