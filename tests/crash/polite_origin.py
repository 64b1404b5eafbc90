"""A web site that only measures: it notes when each request arrives, before anything else.

    python -m tests.crash.polite_origin LOG [LATENCY]

Prints its port. Every page is the same; robots.txt is 404. It asks for a better place in the line
for the processor than what it judges, so that its own delays are not taken for those of the nodes.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from contextlib import suppress
from typing import cast

from orbweb.testing.origin import Hit, OriginWriter

PAGE = b"<html><body><h1>page</h1></body></html>"
REQUEST = re.compile(rb"(\w+) (\S+) HTTP/1\.1\r\n(?:.*\r\n)*?[Hh]ost: (\S+)\r\n")


class Page(asyncio.Protocol):
    """One connection; requests come one after the other."""

    def __init__(self, log: OriginWriter, latency: float) -> None:
        self._log = log
        self._latency = latency
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        arrived = time.time()
        method, path, host = (part.decode() for part in REQUEST.match(data).groups())  # type: ignore[union-attr]
        asyncio.get_running_loop().call_later(
            self._latency, self._answer, arrived, method, path, host
        )

    def _answer(self, arrived: float, method: str, path: str, host: str) -> None:
        robots = path == "/robots.txt"
        status = 404 if robots else 200
        self._log.write(Hit(arrived, time.time(), host, method, path, status))
        if self._transport is not None and not self._transport.is_closing():
            head = f"HTTP/1.1 {status} X\r\nContent-Type: text/html\r\n"
            head += f"Content-Length: {len(PAGE)}\r\n\r\n"
            self._transport.write(head.encode() + PAGE)


async def main(log: str, latency: float) -> None:
    with suppress(PermissionError):
        os.nice(-15)
    writer = OriginWriter(log)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(lambda: Page(writer, latency), "0.0.0.0", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
