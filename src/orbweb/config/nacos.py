"""Live values from Nacos (1.x to 3.1), by the long poll of its open API, version 1.

One configuration (data id) holds the document as TOML or JSON.
https://nacos.io/en/docs/v2/guide/user/open-api/
"""

from __future__ import annotations

from hashlib import md5

from orbweb.config.address import Address
from orbweb.config.documents import BadDocument, read_document
from orbweb.config.source import Document
from orbweb.config.watching import LOOK_SECONDS, Watching
from orbweb.config.web import Answer, Web, refused
from orbweb.errors import ConfigError, SourceUnavailable

NOT_FOUND, GONE = 404, 410
NO_SUCH = "config data not exist"
"""What Nacos says when it is asked for a configuration that it does not have."""

REFUSED = (401, 403)
WORD, LINE = "\x02", "\x01"
"""What stands between the words of a listened configuration, and at its end."""


class NacosSource(Watching):
    """See `ConfigSource`. The document is refused as a whole when it cannot be read."""

    def __init__(self, address: Address) -> None:
        """Raises `ConfigError` when the data id does not say what it is written in."""
        super().__init__()
        data_id = address.path.strip("/")
        kind = data_id.rpartition(".")[2].lower()
        if kind not in ("toml", "json"):
            raise ConfigError(
                f"CONFIG_SOURCE: the data id {data_id!r} must end with .toml or .json"
            )
        self.name = f"nacos {address.place}"
        self._web = Web(address.base, self.name)
        self._login = address.user, address.password
        self._kind = kind
        self._what = {"dataId": data_id, "group": address.query.get("group", "DEFAULT_GROUP")}
        if namespace := address.query.get("namespace"):
            self._what["tenant"] = namespace
        self._token = ""
        self._md5 = ""

    async def read(self) -> Document:
        """See `Watching`."""
        answer = await self._ask("GET", "/nacos/v1/cs/configs", params=self._what)
        if answer.status == NOT_FOUND:
            self._md5 = ""
            raise SourceUnavailable(f"{self.name}: there is no such configuration")
        self._md5 = answer.headers.get("Content-MD5") or _md5(answer.text)
        try:
            values = read_document(answer.text, self._kind)
        except BadDocument as error:
            raise SourceUnavailable(f"{self.name} is refused as a whole: {error}") from error
        return Document(values, self._md5, self.name)

    async def changed(self) -> None:
        """See `Watching`."""
        words = [self._what["dataId"], self._what["group"], self._md5]
        words += [self._what["tenant"]] if "tenant" in self._what else []
        await self._ask(
            "POST",
            "/nacos/v1/cs/configs/listener",
            LOOK_SECONDS,
            data={"Listening-Configs": WORD.join(words) + LINE},
            headers={"Long-Pulling-Timeout": f"{LOOK_SECONDS * 1000:.0f}"},
        )

    async def aclose(self) -> None:
        """See `ConfigSource`."""
        await self._web.close()

    async def _ask(self, method: str, path: str, seconds: float = 0.0, **kwargs: object) -> Answer:
        if self._login[0] and not self._token:
            await self._log_in()
        answer = await self._send(method, path, seconds, **kwargs)
        if answer.status in REFUSED and self._login[0]:  # a token holds for some hours
            await self._log_in()
            answer = await self._send(method, path, seconds, **kwargs)
        if answer.status not in (200, NOT_FOUND):
            raise refused(self.name, answer)
        return answer

    async def _send(self, method: str, path: str, seconds: float, **kwargs: object) -> Answer:
        params = kwargs.pop("params", {})
        assert isinstance(params, dict)
        token = {"accessToken": self._token} if self._token else {}
        answer = await self._web.ask(method, path, seconds, params={**params, **token}, **kwargs)
        self._check_api(answer)
        return answer

    async def _log_in(self) -> None:
        self._token = ""
        login = {"username": self._login[0], "password": self._login[1]}
        answer = await self._send("POST", "/nacos/v1/auth/login", 0.0, data=login)
        if answer.status in REFUSED:
            raise ConfigError(f"{self.name} refuses user or password of CONFIG_SOURCE")
        if answer.status != 200:
            raise refused(self.name, answer)
        self._token = str(answer.json(self.name).get("accessToken", ""))

    def _check_api(self, answer: Answer) -> None:
        """Raises `ConfigError` when the server does not know what it was asked for at all."""
        if answer.status in (NOT_FOUND, GONE) and NO_SUCH not in answer.text:
            raise ConfigError(
                f"{self.name} answers {answer.status}: it lacks version 1 of Nacos's open API, as "
                "Nacos from 3.2 on does. Orbweb does not speak the API of Nacos 3: add Nacos's "
                "nacos-api-legacy-adapter to the server, or take another CONFIG_SOURCE"
            )


def _md5(text: str) -> str:
    """What Nacos compares a configuration by."""
    return md5(text.encode(), usedforsecurity=False).hexdigest()
