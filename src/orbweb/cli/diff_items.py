"""What differs between two files of items: new, gone and changed rows, told apart by a key."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orbweb.errors import ConfigError
from orbweb.monitor.run_diff import Kind, Row

MOST_ROWS = 1_000_000
"""Of a file: all of them are held in memory."""

EXAMPLES = 3
LIKELY = ("_key", "url", "id", "link", "sku")
"""Fields that may tell rows apart, when nobody says which."""

Rows = dict[tuple[str, ...], Mapping[str, Any]]


@dataclass(slots=True)
class ItemDiff:
    """What was found. `missing` says why nothing could be compared."""

    key: tuple[str, ...] = ()
    new: list[tuple[str, ...]] = field(default_factory=list)
    gone: list[tuple[str, ...]] = field(default_factory=list)
    changed: list[tuple[str, ...]] = field(default_factory=list)
    fields: Counter[str] = field(default_factory=Counter)
    """How many rows differ in each field."""
    total: tuple[int, int] = (0, 0)
    missing: str = ""

    @property
    def rows(self) -> list[Row]:
        """As rows of the comparison, for people and for limits."""
        if self.missing:
            return [Row("rows", "new, gone, changed", Kind.COUNT, None, None, self.missing)]
        counts = {"new": self.new, "gone": self.gone, "changed": self.changed}
        return [Row("rows", name, Kind.COUNT, 0, len(keys)) for name, keys in counts.items()]

    def record(self) -> dict[str, Any]:
        """As JSON."""
        if self.missing:
            return {"missing": self.missing}
        return {
            "key": list(self.key),
            "new": len(self.new),
            "gone": len(self.gone),
            "changed": len(self.changed),
            "fields": dict(self.fields.most_common()),
            "examples": {
                name: [dict(zip(self.key, key, strict=True)) for key in keys[:EXAMPLES]]
                for name, keys in (
                    ("new", self.new),
                    ("gone", self.gone),
                    ("changed", self.changed),
                )
            },
        }


def files_of(outputs: Sequence[Sequence[str]]) -> tuple[tuple[Path, Path] | None, str]:
    """The files with the items of two runs; or why they cannot be compared."""
    found = []
    for names in outputs:
        files = [Path(name) for name in names if name.endswith((".jsonl", ".csv"))]
        there = [file for file in files if file.is_file()]
        if not there:
            why = f"{files[0]} is not here" if files else "it wrote no .jsonl or .csv file"
            return (
                None,
                f"items of a run are not at hand: {why}; name both: --items OLD --items NEW",
            )
        if len(there) > 1:
            return None, "a run has several files of items; name two: --items OLD --items NEW"
        found.append(there[0])
    if found[0] == found[1]:
        return None, (
            f"both runs wrote to {found[0].name}, where rows do not tell their run; give each run "
            "a file of its own (-o), or name two: --items OLD --items NEW"
        )
    return (found[0], found[1]), ""


def diff_items(files: tuple[Path, Path], key: Sequence[str]) -> ItemDiff:
    """Compare two files. Raises `ConfigError` for a file or a key that is not there."""
    before, after = (list(_read(file)) for file in files)
    key = tuple(key) or _likely(before, after)
    if not key:
        return ItemDiff(missing="no field tells the rows of both apart; name some: --key FIELD")
    old, new = (_keyed(rows, key, file) for rows, file in zip((before, after), files, strict=True))
    found = ItemDiff(key, total=(len(old), len(new)))
    found.new = [each for each in new if each not in old]
    found.gone = [each for each in old if each not in new]
    for each, row in new.items():
        was = old.get(each)
        if was is None:
            continue
        names = [
            name
            for name in {**was, **row}
            if name[:1] != "_" and _text(was.get(name)) != _text(row.get(name))
        ]
        if names:
            found.changed.append(each)
            found.fields.update(names)
    return found


def _read(file: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            rows = csv.DictReader(lines) if file.suffix == ".csv" else map(_line, lines)
            for number, row in enumerate(rows, 1):
                if number > MOST_ROWS:
                    raise ConfigError(f"{file} has more than {MOST_ROWS} rows: too many to compare")
                if row:
                    yield row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error


def _line(text: str) -> dict[str, Any]:
    """Empty for half a line, which a crash can leave."""
    try:
        row = json.loads(text)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def _likely(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Any:
    for name in LIKELY:
        old, new = ({_text(row.get(name)) for row in rows} for rows in (before, after))
        if len(old) == len(before) and len(new) == len(after) and "" not in old | new and old & new:
            return (name,)
    return ()


def _keyed(rows: Sequence[Mapping[str, Any]], key: Sequence[str], file: Path) -> Rows:
    found: Rows = {}
    for row in rows:
        if any(name not in row for name in key):
            raise ConfigError(f"{file}: a row has no field {', '.join(key)} ({_text(row)[:80]})")
        found.setdefault(tuple(_text(row[name]) for name in key), row)
    return found


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
