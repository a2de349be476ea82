"""Pages as tests look at them: taken apart, or in a real browser."""

from __future__ import annotations

import html.parser
import shutil
import subprocess
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Page(html.parser.HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += f"{data}\n"


def in_browser(page: Path, profile: Path) -> str:
    """The page as the browser understood it, after its scripts ran."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", *FLAGS, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
