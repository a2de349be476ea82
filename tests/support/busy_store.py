"""An S3 server on the loopback, behind a server that can answer 503 for a while."""

from __future__ import annotations

import http.client
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import s3fs
from moto.server import ThreadedMotoServer

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class BusyStore:
    """A bucket, the environment in which programs find it, and whether its server is busy.

    Attributes:
        address: The bucket.
        is_busy: Called with the method and the path of each request; the answer is 503 where it returns true.
        refused: How many requests were answered like that.
    """

    def __init__(self, moto_port: int) -> None:
        self.is_busy: Callable[[str, str], bool] = lambda _method, _path: False
        self.refused = 0
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self._body()
                if store.is_busy(self.command, self.path):
                    store.refused += 1
                    self._send(503, [("Content-Type", "application/xml")], SLOW_DOWN)
                    return
                behind = http.client.HTTPConnection("127.0.0.1", moto_port, timeout=30)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in ("transfer-encoding", "expect")}
                headers["Content-Length"] = str(len(body))
                behind.request(self.command, self.path, body, headers)
                answer = behind.getresponse()
                self._send(answer.status, answer.getheaders(), answer.read())
                behind.close()

            def _body(self) -> bytes:
                if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                pieces = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    pieces.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(pieces)

            def _send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                self.send_response_only(status)
                length = len(body)
                for name, value in headers:
                    if name.lower() == "content-length" and self.command == "HEAD":
                        length = int(value)
                    elif name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 - the names that the server calls

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.settings = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "1",  # what tamis tries again is under test, not what botocore does
        }
        self.address = f"s3://bucket-{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def busy_store() -> Iterator[BusyStore]:
    """A store with an empty bucket; programs that this one starts find it, too."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    store = BusyStore(server.get_host_and_port()[1])
    before = {name: os.environ.get(name) for name in store.settings}
    os.environ.update(store.settings)
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        s3fs.S3FileSystem().mkdir(store.address)
        yield store
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        store.close()
        server.stop()
