"""Live values from etcd (3.4 or later), over the JSON gateway of its gRPC API.

One key for each value below a prefix, such as `/orbweb/job:books/DEPTH_LIMIT`; its value is read
as in the environment. https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

from orbweb.config.address import Address
from orbweb.config.source import Document
from orbweb.config.watching import LOOK_SECONDS, Watching
from orbweb.config.web import Answer, Web, refused
from orbweb.errors import ConfigError, SourceUnavailable

UNAUTHENTICATED = 401
BAD_LOGIN = ("authentication failed", "user name is empty", "permission denied")


class EtcdSource(Watching):
    """See `ConfigSource`. Waits with a watch from the revision that was read."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        self.name = f"etcd {address.place}"
        self._web = Web(address.base, self.name)
        self._login = address.user, address.password
        self._prefix = f"/{address.path.strip('/')}/"
        self._token = ""
        self._revision = 0

    async def read(self) -> Document:
        """See `Watching`."""
        answer = await self._ask("/v3/kv/range", self._range())
        self._revision = int(answer["header"]["revision"])
        values = {
            _text(pair["key"]).removeprefix(self._prefix): _text(pair.get("value", ""))
            for pair in answer.get("kvs", ())
        }
        values.pop("", None)
        return Document(values, str(self._revision), self.name)

    async def changed(self) -> None:
        """See `Watching`."""
        wanted = {"create_request": {**self._range(), "start_revision": str(self._revision + 1)}}
        async with self._web.open(
            "POST", "/v3/watch", LOOK_SECONDS, json=wanted, headers=self._headers()
        ) as reply:
            if reply.status != 200:
                return
            try:
                async for line in reply.content:
                    told = json.loads(line).get("result", {})
                    if told.get("events") or told.get("canceled"):
                        return
            except ValueError:  # more in one line than is read at once: a change it is
                return

    async def aclose(self) -> None:
        """See `ConfigSource`."""
        await self._web.close()

    def _range(self) -> dict[str, str]:
        """All keys with the prefix: up to the first one behind them."""
        end = self._prefix[:-1] + chr(ord(self._prefix[-1]) + 1)
        return {"key": _base64(self._prefix), "range_end": _base64(end)}

    def _headers(self) -> dict[str, str]:
        return {"Authorization": self._token} if self._token else {}

    async def _ask(self, path: str, body: dict[str, Any]) -> Any:
        if self._login[0] and not self._token:
            await self._authenticate()
        answer = await self._web.ask("POST", path, json=body, headers=self._headers())
        if answer.status == UNAUTHENTICATED and self._login[0]:  # a token holds for some minutes
            await self._authenticate()
            answer = await self._web.ask("POST", path, json=body, headers=self._headers())
        return self._good(answer)

    async def _authenticate(self) -> None:
        self._token = ""
        body = {"name": self._login[0], "password": self._login[1]}
        answer = await self._web.ask("POST", "/v3/auth/authenticate", json=body)
        self._token = str(self._good(answer)["token"])

    def _good(self, answer: Answer) -> Any:
        if answer.status == 200:
            return answer.json(self.name)
        if any(words in answer.text for words in BAD_LOGIN):
            raise ConfigError(f"{self.name} refuses user or password of CONFIG_SOURCE")
        raise refused(self.name, answer)


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def _text(coded: str) -> str:
    try:
        return b64decode(coded).decode()
    except ValueError as error:
        raise SourceUnavailable(f"a key or value in etcd is no UTF-8 text: {error}") from error
