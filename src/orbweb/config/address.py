"""The address of a source of live values, and which source it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from orbweb.errors import ConfigError
from orbweb.log import mask_address

PORTS = {"etcd": 2379, "consul": 8500, "nacos": 8848}
EXAMPLES = (
    "file:orbweb.live.toml, etcd://user:password@host:2379/orbweb/, "
    "consul://:token@host:8500/orbweb/ or nacos://user:password@host:8848/orbweb.toml?group=crawl"
)


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of `kind://user:password@host:port/path?query`; `kind+https` speaks TLS."""

    kind: str
    base: str
    """`http://host:port`."""
    path: str
    user: str = ""
    password: str = field(default="", repr=False)
    query: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> Address:
        """Raises `ConfigError`."""
        try:
            parts = urlsplit(text)
            kind, plus, transport = parts.scheme.partition("+")
            port = parts.port or PORTS.get(kind, 0)
        except ValueError as error:
            raise _bad(text, str(error)) from None
        if kind not in PORTS or transport not in ("", "https") or bool(plus) != bool(transport):
            raise _bad(text, "this is no kind of source")
        if not parts.hostname or not parts.path.strip("/"):
            raise _bad(text, "a host, and the place of the values on it, are wanted")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return cls(
            kind,
            f"{transport or 'http'}://{host}:{port}",
            unquote(parts.path),
            unquote(parts.username or ""),
            unquote(parts.password or ""),
            dict(parse_qsl(parts.query)),
        )

    @property
    def place(self) -> str:
        """Host, port and path: what people may see."""
        return self.base.partition("://")[2] + self.path

    def only(self, *names: str) -> dict[str, str]:
        """These words of the query, where they are given."""
        return {name: self.query[name] for name in names if name in self.query}


def _bad(text: str, why: str) -> ConfigError:
    return ConfigError(f"CONFIG_SOURCE = {mask_address(text)!r}: {why}. Right would be {EXAMPLES}")
