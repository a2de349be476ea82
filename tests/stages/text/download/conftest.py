"""A web server for the tests, with a few addresses that behave badly."""

from __future__ import annotations

import http.server
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest


class Server(http.server.ThreadingHTTPServer):
    """Serves ``files``. A name in ``troubles`` fails so often before it works."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.troubles: dict[str, tuple[str, int]] = {}
        self.asked: Counter[str] = Counter()

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.lstrip("/").partition("?")[0]
        self.server.asked[name] += 1
        trouble, times = self.server.troubles.get(name, ("", 0))
        if name not in self.server.files:
            self.send_error(404)
        elif self.server.asked[name] > times:
            self._send(self.server.files[name])
        elif trouble == "busy":
            self.send_error(503)
        elif trouble == "breaks off":
            self._send(self.server.files[name], cut=True)
        else:
            self.connection.close()

    def _send(self, data: bytes, cut: bool = False) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Not a word."""


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
