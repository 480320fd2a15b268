"""The page while runs are under way: on this machine alone, for reading alone."""

from __future__ import annotations

import hashlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from everlearn.collection import Collection, Problem, collect
from everlearn.errors import BadInput
from everlearn.report.web.data import block
from everlearn.report.web.page import embedded, rendered

HERE, PORT = "127.0.0.1", 8787
EVERY = 1000  # milliseconds between two requests of the page for new data
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Source:
    """The data of what is in a folder of runs. They are read when asked for, at most half of the time."""

    def __init__(self, folder: str, edited: bool = False):
        self.folder, self.edited, self.lock, self.memo = folder, edited, threading.Lock(), {}
        self.data: dict[str, Any] = {}
        self.words, self.tag, self.until = b"", "", 0.0

    def read(self) -> tuple[dict[str, Any], bytes, str]:
        """The data, as JSON too, and a tag that changes when they do."""
        with self.lock:
            begun = time.monotonic()
            if begun >= self.until:
                self.data = block(self._found(), [self.folder], self.memo)
                self.words = str(embedded(self.data)).encode()
                self.tag = f'"{hashlib.sha256(self.words).hexdigest()[:16]}"'
                now = time.monotonic()
                self.until = now + max(0.3, now - begun)
            return self.data, self.words, self.tag

    def _found(self) -> Collection:
        """What is there now; a folder that was removed is named."""
        try:
            return collect([self.folder], edited=self.edited)
        except BadInput as error:
            return Collection((), problems=(Problem("damaged", Path(self.folder), str(error)),))


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD for the page and its data, if this machine was asked by its own name."""

    server: Server
    server_version, sys_version, timeout = "everlearn", "", 10

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if self.headers.get("Host", "") not in self.server.names:
            self._answer(403, b"this page is for this machine alone\n")
        elif path == "/":
            self._answer(200, rendered(self.server.source.read()[0], live=EVERY).encode(), "text/html")
        elif path == "/data.json":
            _, words, tag = self.server.source.read()
            same = self.headers.get("If-None-Match") == tag
            self._answer(304 if same else 200, b"" if same else words, "application/json", {"ETag": tag})
        else:
            self._answer(404, b"there is the page, /, and its data, /data.json\n")

    do_HEAD = do_GET

    def _refuse(self) -> None:
        self._answer(405, b"for reading alone\n", more={"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse

    def _answer(self, code: int, words: bytes, kind: str = "text/plain", more: dict[str, str] = {}) -> None:
        self.send_response(code)
        length = {} if code == 304 else {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(words))}
        for name, value in (HEADERS | length | more).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(words)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""


class Server(ThreadingHTTPServer):
    daemon_threads, allow_reuse_address = True, True

    def __init__(self, source: Source, port: int):
        super().__init__((HERE, port), Handler)
        self.source, self.port = source, self.server_address[1]
        self.names = {f"{name}:{self.port}" for name in (HERE, "localhost")}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing is said of a browser that closed the page while it was answered."""


def serve(folder: str, port: int | None = None, edited: bool = False) -> Server:
    """A server of the page of this folder, not yet serving; without `port` the usual one, or another that is free.
    What is not as it was written is damaged, unless it may be `edited`."""
    source = Source(folder, edited)
    collect([folder], edited=edited)  # one that is not there is refused now
    rendered(source.read()[0], live=EVERY)  # what takes long is made before the first visit
    try:
        return Server(source, PORT if port is None else port)
    except OSError as error:
        if port is not None:
            raise BadInput(f"port {port} is not available: {error.strerror}; give another with --port") from None
        return Server(source, 0)
