"""Where a live value holds: for all, for one job, one run, one host or one node."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from orbweb.errors import ConfigError
from orbweb.settings.names import SYNONYMS


class Scope(IntEnum):
    """For whom a value holds. The greater one is the more specific, and wins."""

    GLOBAL = 0
    JOB = 1
    RUN = 2
    HOST = 3
    NODE = 4

    @property
    def word(self) -> str:
        return self.name.lower()


WORDS = {scope.word: scope for scope in Scope}


class Place(NamedTuple):
    """A setting, and for whom. Its text is the key of a value in a `Document`.

    `DOWNLOAD_DELAY` and `global/DOWNLOAD_DELAY` hold for all, `job:books/DOWNLOAD_DELAY`,
    `run:books:2026-12/DOWNLOAD_DELAY` (job, then run id), `host:shop.example/DOWNLOAD_DELAY` and
    `node:3f2a/CONCURRENT_REQUESTS` (the beginning of a node's name, or its machine) for some.
    """

    scope: Scope
    whose: str
    """The job, `job:run`, the host or the node; empty for all."""
    key: str
    """The setting; names of other frameworks count as ours."""

    @classmethod
    def read(cls, text: str) -> Place:
        """Raises `ConfigError` when the text names no place."""
        head, slash, key = text.rpartition("/")
        word, _, whose = head.partition(":")
        scope = WORDS.get(word) if slash else Scope.GLOBAL
        if scope is None or not key or (scope is not Scope.GLOBAL) != bool(whose):
            raise ConfigError(
                f"{text!r} does not say where a value holds: right would be KEY, job:JOB/KEY, "
                "run:JOB:RUN/KEY, host:HOST/KEY or node:NODE/KEY"
            )
        if scope is Scope.RUN and ":" not in whose:
            raise ConfigError(f"{text!r}: a run is named by job and run id, as in run:books:7/KEY")
        return cls(scope, whose, SYNONYMS.get(key, key))

    @property
    def holder(self) -> str:
        """For whom it holds: `global`, `host:shop.example`."""
        return f"{self.scope.word}:{self.whose}" if self.whose else self.scope.word

    def __str__(self) -> str:
        return f"{self.holder}/{self.key}" if self.whose else self.key
