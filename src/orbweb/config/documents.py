"""How a document of live values is written down: TOML or JSON, with a table for each scope."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from orbweb.config.place import WORDS, Scope

TABLES = frozenset(word for word, scope in WORDS.items() if scope is not Scope.GLOBAL)


class BadDocument(ValueError):
    """The text is no document; says where and why."""


def read_document(text: str, kind: str) -> dict[str, Any]:
    """The values of a text by the keys of `Document`; `kind` is `toml` or `json`.

    Tables `job`, `run`, `host` and `node` hold a table for each job and so on; every other key
    holds for all, as a key like `job:books/DEPTH_LIMIT` says for whom itself. What is in
    another table, as PARSE.price in PARSE, has the names of both as its key. Raises `BadDocument`.
    """
    try:
        found = json.loads(text) if kind == "json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadDocument(f"it is no {kind.upper()}: {error}") from None
    if not isinstance(found, dict):
        raise BadDocument(f"it must be an object of values, not {type(found).__name__}")
    values: dict[str, Any] = {}
    for key, value in found.items():
        placed = _of_scope(key, value) if key in TABLES else _flat(key, value)
        for place, each in placed.items():
            if place in values:
                raise BadDocument(f"{place} is there twice")
            values[place] = each
    return values


def _of_scope(scope: str, table: Any) -> Mapping[str, Any]:
    if not isinstance(table, dict) or not all(isinstance(held, dict) for held in table.values()):
        example = "books" if scope == "job" else f"NAME-OF-THE-{scope.upper()}"
        raise BadDocument(
            f"{scope} must be a table of tables, as in [{scope}.{example}]: for whom values hold"
        )
    return {
        f"{scope}:{whose}/{key}": each
        for whose, held in table.items()
        for name, value in held.items()
        for key, each in _flat(name, value).items()
    }


def _flat(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        return {key: value}
    return {
        whole: each
        for name, part in value.items()
        for whole, each in _flat(f"{key}.{name}", part).items()
    }
