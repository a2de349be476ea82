"""Serves pages about runs to a browser on this machine: read-only, with a token, live while a run goes on.

Only 127.0.0.1 is listened on, so no other machine can connect. Another user of this machine, or a web page that makes
the browser ask this server, has no token; a page that gives its own name this address (DNS rebinding) is recognized by
the Host header. Everything is answered from the run directories, and nothing is ever written.
"""

from __future__ import annotations

import hmac
import http.server
import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from tamis.errors import TamisError
from tamis.runs.pages.known_runs import KnownRuns
from tamis.runs.pages.ui_pages import NotFoundError, Site

HOST: Final = "127.0.0.1"
EVENTS_S: Final = 1.0
"""Seconds between two looks at a run that is going on."""

_MOST_STREAMS: Final = 32
_MOST_FIELDS: Final = 20
_IDLE_S: Final = 30.0


@dataclass(frozen=True)
class Request:
    """What was asked for: the parts of the path, decoded, and the parameters."""

    parts: tuple[str, ...]
    parameters: dict[str, str]

    @classmethod
    def of(cls, target: str) -> Request:
        """The request for the target of a request line.

        >>> Request.of("/runs/a%2F..%2Fb/drops?stage=x")
        Request(parts=('runs', 'a/../b', 'drops'), parameters={'stage': 'x'})
        """
        url = urlsplit(target)
        fields = parse_qs(url.query, max_num_fields=_MOST_FIELDS, errors="replace")
        parts = tuple(unquote(part, errors="replace") for part in url.path.split("/") if part)
        return cls(parts, {name: values[-1] for name, values in fields.items()})


class RunServer(http.server.ThreadingHTTPServer):
    """The server. :meth:`serve_forever` answers requests until :meth:`shutdown` is called by another thread.

    Args:
        target: A run directory, or a folder of them.
        port: The port to listen on; any that is free when 0.
    """

    daemon_threads = True

    def __init__(self, target: str, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(32)
        self.runs = KnownRuns(target)
        self.streams = threading.BoundedSemaphore(_MOST_STREAMS)
        self.closing = threading.Event()
        super().__init__((HOST, port), _Handler)

    @property
    def cookie(self) -> str:
        """The name of the cookie. Browsers do not tell ports of a machine apart, so it has the port in it."""
        return f"tamis_{self.server_port}"

    @property
    def address(self) -> str:
        """The address to open, with the token."""
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    def shutdown(self) -> None:
        """Stop answering, also those who are listening to a run."""
        self.closing.set()
        super().shutdown()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: RunServer
    server_version = "tamis"
    sys_version = ""
    timeout = _IDLE_S

    def do_GET(self) -> None:
        try:
            self._answer()
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True

    do_HEAD = do_GET  # noqa: N815 - the name that http.server asks for

    def _refuse_method(self) -> None:
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET is answered.", {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse_method  # noqa: N815 - the names that http.server looks for

    def log_message(self, *arguments: Any) -> None:
        """Nothing is logged: addresses hold the token."""

    def _answer(self) -> None:
        if not self._is_for_us():
            self._send(HTTPStatus.FORBIDDEN, "This server is only for 127.0.0.1 and localhost.")
            return
        try:
            request = Request.of(self.path)
        except ValueError:
            self._send(HTTPStatus.BAD_REQUEST, "The address cannot be read.")
            return
        given = request.parameters.get("token")
        if given is not None:
            self._sign_in(request, given)
        elif not self._is_signed_in():
            self._send(HTTPStatus.FORBIDDEN, "Open the address that 'tamis ui' has printed: it has a token in it.")
        else:
            self._page(request)

    def _is_for_us(self) -> bool:
        port = self.server.server_port
        return self.headers.get("Host", "") in (f"{HOST}:{port}", f"localhost:{port}")

    def _is_signed_in(self) -> bool:
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return False
        return cookie is not None and self._is_token(cookie.value)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.server.token.encode())

    def _sign_in(self, request: Request, given: str) -> None:
        """Turn the token of an address into a cookie, so that the token does not stay in the address."""
        if not self._is_token(given):
            self._send(HTTPStatus.FORBIDDEN, "The token in this address is of another 'tamis ui'.")
            return
        rest = {name: value for name, value in request.parameters.items() if name != "token"}
        to = "/" + "/".join(quote(part, safe="", errors="replace") for part in request.parts)
        cookie = f"{self.server.cookie}={self.server.token}; Path=/; HttpOnly; SameSite=Strict"
        location = f"{to}?{urlencode(rest)}" if rest else to
        self._send(HTTPStatus.SEE_OTHER, "", {"Location": location, "Set-Cookie": cookie})

    def _page(self, request: Request) -> None:
        nonce = secrets.token_urlsafe(16)
        site = Site(self.server.runs, nonce)
        try:
            if request.parts and request.parts[-1] == "events":
                self._stream(site.parts(request.parts[:-1]))
                return
            page = site.page(request.parts, request.parameters)
        except NotFoundError as error:
            self._send(HTTPStatus.NOT_FOUND, str(error))
            return
        except (TamisError, OSError) as error:
            page = site.problem(str(error))
        except (ValueError, TypeError, LookupError, AttributeError) as error:  # files of the run that are not ours
            page = site.problem(f"the files of this run are damaged: {type(error).__name__}: {error}")
        self._send(HTTPStatus.OK, page, {"Content-Security-Policy": _policy(nonce)}, kind="text/html")

    def _send(
        self, status: HTTPStatus, text: str, headers: dict[str, str] | None = None, kind: str = "text/plain"
    ) -> None:
        content = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        self._send_headers({"Content-Security-Policy": "default-src 'none'", **(headers or {})}, kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _send_headers(self, headers: dict[str, str], kind: str) -> None:
        always = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        for name, value in (always | headers).items():
            self.send_header(name, value)

    def _stream(self, parts: Callable[[], tuple[dict[str, str], bool]]) -> None:
        """Send the parts of a page whenever they change, until the run has ended or the browser is gone."""
        if not self.server.streams.acquire(blocking=False):
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, "Too many pages are open.")
            return
        try:
            self.close_connection = True
            self.send_response(HTTPStatus.OK)
            self._send_headers({}, "text/event-stream")
            self.end_headers()
            if self.command != "HEAD":
                self._send_events(parts)
        finally:
            self.server.streams.release()

    def _send_events(self, parts: Callable[[], tuple[dict[str, str], bool]]) -> None:
        sent: dict[str, str] = {}
        last = time.monotonic()
        while not self.server.closing.is_set():
            try:
                now, goes_on = parts()
            except (TamisError, OSError, NotFoundError, ValueError, TypeError):  # the run was removed, or is damaged
                now, goes_on = {}, False
            changed = {name: html for name, html in now.items() if sent.get(name) != html}
            if changed:
                self._event("update", json.dumps(changed))
                sent, last = now, time.monotonic()
            if not goes_on:
                self._event("end", "{}")
                return
            if time.monotonic() - last > _IDLE_S / 2:
                self.wfile.write(b": still here\n\n")  # finds out whether the browser is
                last = time.monotonic()
            self.server.closing.wait(EVENTS_S)

    def _event(self, name: str, data: str) -> None:
        self.wfile.write(f"event: {name}\ndata: {data}\n\n".encode())
        self.wfile.flush()


def _policy(nonce: str) -> str:
    return (
        f"default-src 'none'; img-src data:; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
