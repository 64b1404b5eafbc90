"""One proxy: its address, how people may see it, and what its address must look like."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from importlib.util import find_spec
from urllib.parse import quote, unquote, urlsplit

from orbweb.log import mask_address

SCHEMES = ("http", "https", "socks5")
EXAMPLE = "http://user:password@proxy.example:8000"
_SOCKS_NAMES = {"socks5h": "socks5", "socks": "socks5"}


class BadProxyError(ValueError):
    """This is no address of a proxy; the text says what would be, without the password."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that requests can be sent through. Two with the same address are equal."""

    address: str = field(repr=False)
    """With user and password: for the client alone."""
    id: str = field(compare=False)
    """`host:port`, for logs and people; of one with a user, `#` and a digest of its name follow.

    Services give thousands of proxies one host and port, and tell them apart by the user.
    """

    @classmethod
    def parse(cls, text: str) -> Proxy:
        """`http://host:port`, `https://…` or `socks5://…`, with `user:password@` before the host.

        Without a scheme it is http. Raises `BadProxyError`.
        """
        given = text.strip()
        scheme, separator, rest = given.partition("://")
        if not separator:
            scheme, rest = "http", given
        scheme = _SOCKS_NAMES.get(scheme.lower(), scheme.lower())
        credentials, at, place = rest.rpartition("@")
        host, port = _place(given, scheme, place)
        user, _, password = credentials.partition(":")
        login = f"{_quoted(user)}:{_quoted(password)}@" if at else ""
        named = f"{host}:{port}"
        return cls(f"{scheme}://{login}{named}", f"{named}#{_digest(user)}" if at else named)

    @property
    def is_socks(self) -> bool:
        """Whether the extra `socks` is needed."""
        return self.address.startswith("socks5:")

    def __str__(self) -> str:
        return self.id


def has_socks() -> bool:
    """Whether the extra `socks` is installed."""
    return find_spec("aiohttp_socks") is not None


SOCKS_HINT = "socks5 proxies need an extra: pip install 'orbweb[socks]'"


def _place(given: str, scheme: str, place: str) -> tuple[str, int]:
    if scheme not in SCHEMES:
        raise _bad(given, f"the scheme is one of {', '.join(SCHEMES)}")
    try:
        parts = urlsplit(f"//{place.rstrip('/')}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _bad(given, "the port is a number up to 65535") from None
    if not host or parts.path or parts.query or parts.fragment or any(c.isspace() for c in place):
        raise _bad(given, "a host and a port are wanted, and nothing behind them")
    if port is None:
        raise _bad(given, "the port is missing")
    return (f"[{host}]" if ":" in host else host), port


def _bad(given: str, why: str) -> BadProxyError:
    return BadProxyError(f"{mask_address(given)!r} is no proxy: {why}, for example {EXAMPLE}")


def _quoted(part: str) -> str:
    return quote(unquote(part), safe="")


def _digest(user: str) -> str:
    return blake2b(user.encode(), digest_size=2, person=b"orbweb proxy").hexdigest()
