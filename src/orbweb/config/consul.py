"""Live values from Consul's key-value store, by blocking queries.

One key for each value below a prefix, such as `orbweb/job:books/DEPTH_LIMIT`; its value is read
as in the environment.
https://developer.hashicorp.com/consul/api-docs/features/blocking
"""

from __future__ import annotations

from base64 import b64decode
from urllib.parse import quote

from orbweb.config.address import Address
from orbweb.config.source import Document
from orbweb.config.watching import LOOK_SECONDS, Watching
from orbweb.config.web import Answer, Web, refused
from orbweb.errors import SourceUnavailable

NOT_FOUND = 404


class ConsulSource(Watching):
    """See `ConfigSource`. The password of the address is the ACL token."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        self.name = f"consul {address.place}"
        self._web = Web(address.base, self.name)
        self._prefix = address.path.strip("/") + "/"
        self._query = {"recurse": "true", **address.only("dc", "ns", "partition")}
        self._headers = {"X-Consul-Token": address.password} if address.password else {}
        self._index = 0

    async def read(self) -> Document:
        """See `Watching`."""
        answer = await self._ask(0)
        pairs = answer.json(self.name) if answer.status != NOT_FOUND else ()
        self._index = _index(answer)
        try:
            values = {
                str(pair["Key"]).removeprefix(self._prefix): b64decode(pair["Value"] or "").decode()
                for pair in pairs
            }
        except (KeyError, TypeError, ValueError) as error:
            raise SourceUnavailable(f"{self.name}: a value is no UTF-8 text: {error}") from error
        values.pop("", None)
        return Document(values, str(self._index), self.name)

    async def changed(self) -> None:
        """See `Watching`. An index that goes back is a store that was made anew."""
        while self._index == _index(await self._ask(self._index)):
            pass

    async def aclose(self) -> None:
        """See `ConfigSource`."""
        await self._web.close()

    async def _ask(self, index: int) -> Answer:
        """Waits for another index than this one; 0 = does not wait."""
        query, seconds = dict(self._query), 0.0
        if index:
            query |= {"index": str(index), "wait": f"{LOOK_SECONDS:.0f}s"}
            seconds = LOOK_SECONDS * 17 / 16  # the server adds up to a sixteenth
        path = f"/v1/kv/{quote(self._prefix)}"
        answer = await self._web.ask("GET", path, seconds, params=query, headers=self._headers)
        if answer.status not in (200, NOT_FOUND):
            raise refused(self.name, answer)
        return answer


def _index(answer: Answer) -> int:
    """At least 1, as Consul's documentation asks: with 0 a query would not wait."""
    found = answer.headers.get("X-Consul-Index", "")
    return max(1, int(found)) if found.isdigit() else 1
