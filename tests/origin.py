"""An origin that says to the microsecond when requests reached it: the kernel's time stamps."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from types import TracebackType
from typing import NamedTuple, Self

SO_TIMESTAMPNS = 35
"""Linux: each read tells when its bytes arrived, however late the reader is scheduled."""


class Arrival(NamedTuple):
    """One request."""

    at: float
    host: str
    path: str


Answer = Callable[[str], tuple[int, dict[str, str], bytes]]


class StampingOrigin:
    """Answers GET requests from threads; `answer(path)` gives status, headers and body.

    `note` is called with each request and its status before the answer is sent.
    """

    def __init__(
        self,
        answer: Answer,
        address: str = "127.0.0.1",
        note: Callable[[Arrival, int], None] | None = None,
    ) -> None:
        self.arrivals: list[Arrival] = []
        self._answer = answer
        self._note = note
        self._listener = socket.create_server((address, 0), backlog=128)
        self._listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)  # connections inherit it
        self.port: int = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def gaps(self) -> list[float]:
        """Seconds between the arrivals."""
        times = sorted(arrival.at for arrival in self.arrivals)
        return [later - earlier for earlier, later in pairwise(times)]

    def paths(self) -> list[str]:
        return [arrival.path for arrival in sorted(self.arrivals)]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):
            while True:
                head, ancillary, _, _ = connection.recvmsg(65_536, 256)
                if not head:
                    return
                lines = head.decode().split("\r\n")
                path = lines[0].split(" ")[1]
                host = next(line[6:] for line in lines if line.lower().startswith("host: "))
                seconds, nanoseconds = struct.unpack("qq", ancillary[0][2][:16])
                arrival = Arrival(seconds + nanoseconds / 1e9, host, path)
                self.arrivals.append(arrival)
                status, headers, body = self._answer(path)
                if self._note is not None:
                    self._note(arrival, status)
                fields = {"Content-Length": str(len(body)), "Content-Type": "text/html", **headers}
                answer = [f"HTTP/1.1 {status} X", *(f"{k}: {v}" for k, v in fields.items())]
                connection.sendall("\r\n".join(answer).encode() + b"\r\n\r\n" + body)
                if headers.get("Connection") == "close":
                    return
