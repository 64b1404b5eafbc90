"""What sources of live values said last, on this machine's disk: it holds while they are away."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from orbweb.config.resolve import StoreDocument
from orbweb.config.source import Document
from orbweb.config.values import LiveValues
from orbweb.log import get_logger

FOLDER = "config"

log = get_logger("orbweb.config")


class _Kept(msgspec.Struct):
    """A document as it stands in its file."""

    version: str
    origin: str
    values: dict[str, Any] = {}
    live: LiveValues | None = None
    at_ms: int = 0


class LastGood:
    """One file a source in a folder; processes that share it write the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    def load(self, name: str) -> Document | None:
        """What the source said last here; None when nothing is known or it cannot be read."""
        try:
            kept = msgspec.json.decode(self._path(name).read_bytes(), type=_Kept)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            log.warning("what %s said last cannot be read here: %s", name, error)
            return None
        if kept.live is not None:  # nobody can say what the store's clock shows by now
            at_ms = max(kept.at_ms, int(time.time() * 1000))
            return StoreDocument({}, kept.version, kept.origin, kept.live, at_ms)
        return Document(kept.values, kept.version, kept.origin)

    def save(self, name: str, document: Document) -> None:
        """Keep it. That the disk is full or read-only is no reason not to crawl."""
        kept = _Kept(document.version, document.origin, dict(document.values))
        if isinstance(document, StoreDocument):
            kept.live, kept.at_ms = document.live, document.at_ms
        path = self._path(name)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            draft.touch(mode=0o600)  # there may be passwords of proxies in it
            draft.write_bytes(msgspec.json.encode(kept))
            draft.replace(path)
        except (OSError, TypeError) as error:
            log.warning("what %s says cannot be kept here: %s", name, error)

    def _path(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode()).hexdigest()[:12]
        word = "".join(letter for letter in name.split(" ")[0].split(":")[0] if letter.isalnum())
        return self._folder / f"{word[:20]}-{digest}.json"
