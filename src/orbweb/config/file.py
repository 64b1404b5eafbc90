"""Live values from a file of this machine, such as `orbweb.live.toml`."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from pathlib import Path

from orbweb.config.documents import BadDocument, read_document
from orbweb.config.source import Document
from orbweb.config.watching import Watching
from orbweb.errors import ConfigError, SourceUnavailable

STEP_SECONDS = 0.25
"""A file is read when it has looked the same twice, so that nobody reads half of it."""

KINDS = {".toml": "toml", ".json": "json"}

Mark = tuple[int, int, int]


class FileSource(Watching):
    """See `ConfigSource`. Looks at the file's time and size; a bad file is refused as a whole."""

    def __init__(self, path: Path) -> None:
        """Raises `ConfigError` for a file that is neither `.toml` nor `.json` by its name."""
        super().__init__()
        kind = KINDS.get(path.suffix.lower())
        if kind is None:
            raise ConfigError(f"CONFIG_SOURCE: {path} must end with .toml or .json")
        self.name = f"file {path}"
        self._path = path
        self._kind = kind
        self._read: Mark | None = None

    async def read(self) -> Document:
        """See `Watching`."""
        self._read = self._mark()
        try:
            text = self._path.read_bytes()
            values = read_document(text.decode("utf-8-sig"), self._kind)
        except OSError as error:
            raise SourceUnavailable(f"{self.name} cannot be read: {error.strerror}") from error
        except (UnicodeDecodeError, BadDocument) as error:
            raise SourceUnavailable(f"{self.name} is refused as a whole: {error}") from error
        return Document(values, blake2b(text, digest_size=8).hexdigest(), self.name)

    async def changed(self) -> None:
        """See `Watching`."""
        seen = self._read
        while True:
            await asyncio.sleep(STEP_SECONDS)
            now = self._mark()
            if now != self._read and now == seen:
                return
            seen = now

    async def aclose(self) -> None:
        """See `ConfigSource`. Nothing is open."""

    def _mark(self) -> Mark:
        try:
            found = self._path.stat()
        except OSError as error:
            raise SourceUnavailable(f"{self.name} cannot be read: {error.strerror}") from error
        return found.st_mtime_ns, found.st_size, found.st_ino
