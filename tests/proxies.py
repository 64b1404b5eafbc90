"""Forward proxies for tests: HTTP (absolute form and CONNECT) and SOCKS5 on one port.

    python -m tests.proxies SOURCE [USER:PASSWORD]

Prints its port. SOURCE is the address that it connects from, so that an origin can tell who asks:
whoever comes from another one came past the proxy.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import subprocess
import sys
from contextlib import suppress
from urllib.parse import urlsplit

PIECE = 65_536


class ForwardProxy:
    """A proxy on 127.0.0.1, as `async with`. `login` is `user:password`; empty = anybody may."""

    def __init__(self, source: str, login: str = "") -> None:
        self.source = source
        self.login = login
        self.asked: list[str] = []
        """`GET url`, `CONNECT host:port` and `SOCKS host:port`, as they came."""
        self.refuse = 0
        """The status that every request is answered with, instead of being passed on; 0 = none."""
        self.drop = 0
        """So many requests are passed on, and their connection is closed before the answer."""
        self.deaf = False
        """It takes connections and says nothing."""
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> ForwardProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Refuse connections from now on, and end those that are there."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def url(self, scheme: str = "http", login: str | None = None) -> str:
        """Its address; with another login than its own if one is given."""
        login = self.login if login is None else login
        return f"{scheme}://{login}{'@' if login else ''}127.0.0.1:{self.port}"

    @property
    def id(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                first = await reader.readexactly(1)
                if self.deaf:
                    await asyncio.Event().wait()
                if first == b"\x05":
                    await self._socks(reader, writer)
                else:
                    await self._http(first, reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _http(
        self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One request, then the connection is closed: the origin is told so too."""
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head.split("\r\n")
        method, target, _ = line.split(" ")
        self.asked.append(f"{method} {target}")
        headers = dict(field.split(": ", 1) for field in fields if field)
        if status := self._refusal(headers):
            writer.write(b"HTTP/1.1 %d no\r\nContent-Length: 0\r\n\r\n" % status)
            return await writer.drain()
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            try:
                upstream = await self._connect(host, int(port))
            except OSError:
                writer.write(b"HTTP/1.1 502 not there\r\nContent-Length: 0\r\n\r\n")
                return await writer.drain()
            writer.write(b"HTTP/1.1 200 there\r\n\r\n")
            return await self._join(reader, writer, *upstream)
        url = urlsplit(target)
        answer, origin = await self._connect(url.hostname or "", url.port or 80)
        kept = [f"{n}: {v}" for n, v in headers.items() if not n.lower().startswith("proxy-")]
        path = f"{url.path or '/'}{'?' if url.query else ''}{url.query}"
        request = [f"{method} {path} HTTP/1.1", *kept, "Connection: close", "", ""]
        origin.write("\r\n".join(request).encode("latin-1"))
        if self.drop:
            self.drop -= 1
            await answer.readline()
            origin.close()
            return await origin.wait_closed()
        return await self._join(reader, writer, answer, origin)

    def _refusal(self, headers: dict[str, str]) -> int:
        expected = f"Basic {base64.b64encode(self.login.encode()).decode()}"
        if self.login and headers.get("Proxy-Authorization") != expected:
            return 407
        return self.refuse

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """RFC 1928 with the user and password of RFC 1929."""
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        wanted = 2 if self.login else 0
        writer.write(bytes([5, wanted if wanted in methods else 255]))
        if wanted not in methods:
            return
        if wanted:
            await reader.readexactly(1)
            user = await reader.readexactly((await reader.readexactly(1))[0])
            password = await reader.readexactly((await reader.readexactly(1))[0])
            good = f"{user.decode()}:{password.decode()}" == self.login
            writer.write(bytes([1, not good]))
            if not good:
                return
        _, _, _, kind = await reader.readexactly(4)
        if kind == 1:
            host = socket.inet_ntoa(await reader.readexactly(4))
        else:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        port = int.from_bytes(await reader.readexactly(2))
        self.asked.append(f"SOCKS {host}:{port}")
        try:
            upstream = await self._connect(host, port)
        except OSError:
            writer.write(bytes([5, 5, 0, 1, 0, 0, 0, 0, 0, 0]))
            return
        writer.write(bytes([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]))
        await self._join(reader, writer, *upstream)

    async def _connect(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Every name is this machine, so that sites of many names can be played."""
        place = host if host.startswith("127.") else "127.0.0.1"
        return await asyncio.open_connection(place, port, local_addr=(self.source, 0))

    async def _join(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answer: asyncio.StreamReader,
        origin: asyncio.StreamWriter,
    ) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                there = group.create_task(_pump(reader, origin))
                await _pump(answer, writer)
                there.cancel()
        except* OSError:
            pass
        finally:
            origin.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE):
        writer.write(piece)
        await writer.drain()


class ProxyProcess:
    """A proxy in a process of its own, as `with`."""

    def __init__(self, source: str, login: str = "") -> None:
        self.source = source
        command = [sys.executable, "-m", "tests.proxies", source, login]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = f"{login}{'@' if login else ''}127.0.0.1:{self._process.stdout.readline()}"
        self.address = f"http://{self.address.strip()}"

    def __enter__(self) -> ProxyProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


async def _main(source: str, login: str) -> None:
    async with ForwardProxy(source, login) as proxy:
        print(proxy.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""))
