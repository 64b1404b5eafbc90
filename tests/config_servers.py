"""Servers of live values for tests: etcd as Debian has it; Consul and Nacos as stand-ins.

The stand-ins speak the part of the HTTP APIs that `orbweb.config` uses, as their documentation
describes it; that the real ones behave like this is not shown by them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import subprocess
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from aiohttp import web
from tests.ports import free_port
from tests.standins import MET

Values = dict[str, str]

PASSWORD = "s3/cret"


class Store(ABC):
    """A place of live values that a test changes, takes away and brings back."""

    def __init__(self, secured: bool) -> None:
        self.secured = secured

    @abstractmethod
    async def start(self) -> None:
        """Be there; also after `stop`."""

    @abstractmethod
    async def stop(self) -> None:
        """Be away, at once."""

    @abstractmethod
    async def put(self, values: Values) -> None:
        """Let it hold these values and no others."""

    @abstractmethod
    def address(self, password: str = PASSWORD) -> str:
        """The CONFIG_SOURCE."""


class FileStore(Store):
    """A TOML file."""

    def __init__(self, directory: Path, secured: bool = False) -> None:
        super().__init__(secured)
        self.path = directory / "orbweb.live.toml"

    async def start(self) -> None:
        if (held := self.path.with_suffix(".away")).exists():
            held.rename(self.path)

    async def stop(self) -> None:
        self.path.rename(self.path.with_suffix(".away"))

    async def put(self, values: Values) -> None:
        lines = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in values.items()]
        self.path.write_text("\n".join(lines))

    def address(self, password: str = PASSWORD) -> str:
        return f"file:{self.path.name}"


class EtcdStore(Store):
    """A real etcd of one node."""

    def __init__(self, directory: Path, secured: bool = False) -> None:
        super().__init__(secured)
        self.directory = directory / "etcd"
        self.port = free_port()
        self._peer = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._known: Values = {}
        self._token = ""

    @staticmethod
    def program() -> str | None:
        """Debian's `etcd`, or None: the tests that need it then say so and are skipped."""
        return shutil.which("etcd")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        program, peer = self.program(), f"http://127.0.0.1:{self._peer}"
        assert program is not None
        first = not self.directory.exists()
        self._process = subprocess.Popen(  # noqa: ASYNC220
            [
                program,
                *("--data-dir", str(self.directory), "--name", "one"),
                *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", f"one={peer}", "--unsafe-no-fsync"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(400):
            if await self._is_well():
                break
            await asyncio.sleep(0.05)
        else:
            raise AssertionError("etcd does not answer")
        if first and self.secured:
            await self._secure()

    async def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def put(self, values: Values) -> None:
        gone = self._known.keys() - values.keys()
        steps = [{"request_delete_range": {"key": coded(f"/orbweb/{key}")}} for key in gone]
        steps += [
            {"request_put": {"key": coded(f"/orbweb/{key}"), "value": coded(value)}}
            for key, value in values.items()
        ]
        await self.call("/v3/kv/txn", success=steps)
        self._known = values

    def address(self, password: str = PASSWORD) -> str:
        login = f"crawler:{quote(password, safe='')}@" if self.secured else ""
        return f"etcd://{login}127.0.0.1:{self.port}/orbweb/"

    async def call(self, path: str, **body: Any) -> Any:
        headers = {"Authorization": self._token} if self._token else {}
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.url + path, json=body, headers=headers) as reply,
        ):
            answer = await reply.json()
            assert reply.status == 200, answer
            return answer

    async def _is_well(self) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(self.url + "/health") as got:
                return '"true"' in await got.text()
        except aiohttp.ClientError:
            return False

    async def _secure(self) -> None:
        """A user that may read the prefix and nothing else, and root for the test itself."""
        everything = {"permType": "READ", "key": coded("/orbweb/"), "range_end": coded("/orbweb0")}
        for user, password in (("root", "r"), ("crawler", PASSWORD)):
            await self.call("/v3/auth/user/add", name=user, password=password)
            await self.call("/v3/auth/role/add", name=user)
            await self.call("/v3/auth/user/grant", user=user, role=user)
        await self.call("/v3/auth/role/grant", name="crawler", perm=everything)
        await self.call("/v3/auth/enable")
        answer = await self.call("/v3/auth/authenticate", name="root", password="r")
        self._token = answer["token"]


class StandIn(Store):
    """An HTTP server whose connections end when it is stopped."""

    def __init__(self, secured: bool = False) -> None:
        super().__init__(secured)
        self.port = free_port()
        self.polled = asyncio.Event()
        """Somebody waits, or has waited, for a change."""
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._connections: set[asyncio.Transport] = set()

    async def start(self) -> None:
        app = web.Application(middlewares=[self._noted])
        self.route(app)
        self._runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        for transport in self._connections:
            transport.abort()
        self._connections.clear()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _noted(self, request: web.Request, handler: Any) -> web.StreamResponse:
        assert isinstance(request.transport, asyncio.Transport)
        self._connections.add(request.transport)
        answer: web.StreamResponse = await handler(request)
        return answer

    @abstractmethod
    def route(self, app: web.Application) -> None:
        """Its paths."""

    async def until(self, seconds: float) -> None:
        """Until a change, but no longer than that."""
        self.polled.set()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    def tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class ConsulStandIn(StandIn):
    """`GET /v1/kv/PREFIX?recurse` with blocking queries and a token."""

    def __init__(self, secured: bool = False) -> None:
        super().__init__(secured)
        MET["Consul"] = ""
        self.values: Values = {}
        self.index = 7

    def route(self, app: web.Application) -> None:
        app.router.add_get("/v1/kv/{prefix:.*}", self._get)

    async def put(self, values: Values) -> None:
        self.values, self.index = values, self.index + 1
        self.tell()

    def address(self, password: str = PASSWORD) -> str:
        login = f":{quote(password, safe='')}@" if self.secured else ""
        return f"consul://{login}127.0.0.1:{self.port}/orbweb/"

    async def _get(self, request: web.Request) -> web.Response:
        if self.secured and request.headers.get("X-Consul-Token") != PASSWORD:
            return web.Response(status=403, text="Permission denied: token lacks 'key:read'")
        assert "recurse" in request.query
        if int(request.query.get("index", 0)) == self.index:
            await self.until(float(request.query["wait"].rstrip("s")))
        prefix = request.match_info["prefix"]
        pairs = [
            {"Key": prefix + key, "Value": coded(value), "ModifyIndex": self.index}
            for key, value in self.values.items()
        ]
        headers = {"X-Consul-Index": str(self.index)}
        if not pairs:
            return web.Response(status=404, headers=headers)
        return web.json_response(pairs, headers=headers)


class NacosStandIn(StandIn):
    """Login, reading and listening of the open API."""

    def __init__(self, secured: bool = False) -> None:
        super().__init__(secured)
        MET["Nacos"] = ""
        self.text = ""
        self.tokens: set[str] = set()

    def route(self, app: web.Application) -> None:
        app.router.add_post("/nacos/v1/auth/login", self._login)
        app.router.add_get("/nacos/v1/cs/configs", self._get)
        app.router.add_post("/nacos/v1/cs/configs/listener", self._listen)

    async def put(self, values: Values) -> None:
        self.write(json.dumps(values))

    def write(self, text: str) -> None:
        self.text = text
        self.tell()

    def address(self, password: str = PASSWORD) -> str:
        login = f"crawler:{quote(password, safe='')}@" if self.secured else ""
        return f"nacos://{login}127.0.0.1:{self.port}/orbweb.json?group=crawl&namespace=team"

    async def _login(self, request: web.Request) -> web.Response:
        form = await request.post()
        if (form["username"], form["password"]) != ("crawler", PASSWORD):
            return web.Response(status=403, text="unknown user!")
        self.tokens.add(token := f"token-{len(self.tokens)}")
        return web.json_response({"accessToken": token, "tokenTtl": 18000})

    def _may(self, request: web.Request) -> bool:
        return not self.secured or request.query.get("accessToken") in self.tokens

    async def _get(self, request: web.Request) -> web.Response:
        if not self._may(request):
            return web.Response(status=403, text="token invalid!")
        wanted = [request.query.get(name) for name in ("dataId", "group", "tenant")]
        if not self.text or wanted != ["orbweb.json", "crawl", "team"]:
            return web.Response(status=404, text="config data not exist")
        return web.Response(text=self.text)

    async def _listen(self, request: web.Request) -> web.Response:
        if not self._may(request):
            return web.Response(status=403, text="token invalid!")
        listened = str((await request.post())["Listening-Configs"])
        data_id, group, known, tenant = listened.removesuffix("\x01").split("\x02")
        assert (data_id, group, tenant) == ("orbweb.json", "crawl", "team")
        if known == hashlib.md5(self.text.encode()).hexdigest():
            await self.until(int(request.headers["Long-Pulling-Timeout"]) / 1000)
        if known == hashlib.md5(self.text.encode()).hexdigest():
            return web.Response(text="")
        return web.Response(text=quote(f"{data_id}\x02{group}\x02{tenant}\x01"))


class NacosThreeStandIn(NacosStandIn):
    """As Nacos from 3.2 on answers what it had in version 1 of its open API."""

    def route(self, app: web.Application) -> None:
        app.router.add_route("*", "/nacos/{path:v1/.*}", self._gone)

    async def _gone(self, request: web.Request) -> web.Response:
        said = {"timestamp": "2025-06-05T23:38:05.126+08:00", "status": 404, "error": "Not Found"}
        return web.json_response({**said, "path": request.path}, status=404)


def coded(text: str) -> str:
    return b64encode(text.encode()).decode()


def decoded(text: str) -> str:
    return b64decode(text).decode()
