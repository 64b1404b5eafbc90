"""Lists of proxies as people write them: in a setting, and in a file that may change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from orbweb.errors import ConfigError
from orbweb.log import event, get_logger
from orbweb.model.proxy import SOCKS_HINT, BadProxyError, Proxy, has_socks

log = get_logger("orbweb.proxies")


class ProxyFile:
    """A text file with a proxy a line; empty lines and those that begin with # do not count."""

    def __init__(self, path: Path) -> None:
        """Raises `ConfigError` when it cannot be read, or a line is no proxy."""
        self.path = path
        self._mark: tuple[int, int, int] | None = None
        self._refused: str = ""
        try:
            self._read()
        except OSError as error:
            raise ConfigError(f"PROXY_FILE {path} cannot be read: {error.strerror}") from error

    proxies: tuple[Proxy, ...] = ()
    """Those of the last reading that was good as a whole."""

    def look(self) -> bool:
        """Read it if it has changed; True when it gave other proxies.

        One that cannot be read, or has a line that is no proxy, is told in the log, once.
        """
        before = self.proxies
        try:
            self._read()
        except (OSError, ConfigError) as error:
            if str(error) != self._refused:
                self._refused = str(error)
                log.warning("PROXY_FILE is not read, the proxies from before stay: %s", error)
            return False
        self._refused = ""
        if self.proxies == before:
            return False
        event(log, "proxies_read", file=str(self.path), proxies=len(self.proxies))
        return True

    def _read(self) -> None:
        found = self.path.stat()
        mark = (found.st_mtime_ns, found.st_size, found.st_ino)
        if mark == self._mark:
            return
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        self._mark = mark
        numbered = [
            (f"{self.path}, line {number}", line)
            for number, line in enumerate(lines, 1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        self.proxies = _parsed(numbered)


def parse_proxies(addresses: Sequence[str], origin: str) -> tuple[Proxy, ...]:
    """The proxies of a list. Raises `ConfigError` that names the entry."""
    return _parsed((f"{origin}, entry {n}", text) for n, text in enumerate(addresses, 1))


def _parsed(entries: Iterable[tuple[str, str]]) -> tuple[Proxy, ...]:
    found = []
    for where, text in entries:
        try:
            proxy = Proxy.parse(text)
        except BadProxyError as error:
            raise ConfigError(f"{where}: {error}") from None
        if proxy.is_socks and not has_socks():
            raise ConfigError(f"{where}: {SOCKS_HINT}")
        found.append(proxy)
    return tuple(found)
