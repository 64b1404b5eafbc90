"""A source of live values: the seam between what follows them and the store, a file, etcd …"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from orbweb.errors import SourceUnavailable

__all__ = ["ConfigSource", "Document", "SourceUnavailable"]


@dataclass(frozen=True, slots=True)
class Document:
    """All values of a source at one instant.

    Keys are the texts of `Place`. Values are of the setting's kind, or text that is read as in the
    environment. Nobody has judged them yet: who follows a source refuses a wrong one by itself,
    keeps what held before for that key, and says so.
    """

    values: Mapping[str, Any]
    version: str
    """Differs between two documents that differ: a revision, an index, a hash."""
    origin: str
    """Where it came from, for people, without passwords: `file live.toml`, `etcd …/orbweb/`."""


class ConfigSource(Protocol):
    """Where live values come from. It has no memory: who follows it keeps what it said last."""

    name: str
    """What people call it, without passwords: stands in errors and logs."""

    def watch(self) -> AsyncIterator[Document]:
        """The document as it is now, then one after each change, without end.

        A change is seen within two seconds: by a push where the source has one, and by a look from
        time to time beside it. An empty document is one; that there is none is `SourceUnavailable`,
        which is raised whenever the source cannot be asked. The follower then calls `watch` again
        after a pause, for ever. Raises `ConfigError` for what no waiting would mend, such as
        refused credentials.
        """

    def wake(self) -> None:
        """Look now: an operator asked for it (SIGHUP). May be called at any time on the loop."""

    async def aclose(self) -> None:
        """Leave connections."""
