"""Limits on what may differ between two runs: `items<-10%`, `missing(price)>2%`, `gone>0`."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orbweb.errors import ConfigError
from orbweb.model.reasons import Reason
from orbweb.monitor.run_diff import Kind, Row

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {"<": operator.lt, ">": operator.gt}
_LIMIT = re.compile(
    r"\s*(?P<name>[\w.-]+(?:\([^()]+\))?)\s*(?P<op>[<>])\s*"
    r"(?P<value>[+-]?\d+(?:\.\d+)?)\s*(?P<percent>%?)\s*"
)

_COUNTS = ("pages", "items", "failed", "retried", "seconds", "duplicates", "new", "gone", "changed")
_REASONS = frozenset(Reason)
_NAME = re.compile(r"\dxx|missing\([^()]+\)")


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit on the change of a row from the run before to the run after."""

    text: str
    name: str
    op: str
    value: float
    percent: bool

    def failure(self, rows: Sequence[Row]) -> str | None:
        """How the runs pass the limit; None when they keep it.

        What cannot be compared passes no limit unseen: it fails. A reason, a status class or a
        field that neither run has did not change.
        """
        found = [row for row in rows if _names(row, self.name)]
        if not found:
            group = _group(self.name)
            gaps = [row.missing for row in rows if row.missing and row.group == group]
            return f"limit {self.text}: {gaps[0]}" if gaps else None
        failures = [each for row in found if (each := self._failure(row))]
        return "; ".join(failures) or None

    def _failure(self, row: Row) -> str | None:
        if row.change is None:
            return f"limit {self.text}: {row.missing or 'there is nothing to compare'}"
        change = row.change
        if row.kind is Kind.RATE:
            change *= 100
        elif self.percent:
            assert isinstance(row.before, int | float)
            if not row.before:
                change = 0.0 if not row.after else float("inf")
            else:
                change = change / row.before * 100
        if not _OPERATORS[self.op](change, self.value):
            return None
        unit = " points" if row.kind is Kind.RATE else "%" if self.percent else ""
        return f"limit {self.text}: {row.name} changed by {change:+.6g}{unit}"


def parse_limit(text: str) -> Limit:
    """Raises `ConfigError` for what is no limit."""
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"--fail-on {text!r}: a limit is a name, < or >, and by how much it may change, such "
            "as items<-10%, failed>5, missing(price)>2%, 5xx>0, gone>0"
        )
    name, percent = found["name"], bool(found["percent"])
    if not (name in _COUNTS or name in _REASONS or _NAME.fullmatch(name)):
        close = difflib.get_close_matches(name, [*_COUNTS, *_REASONS], n=1)
        right = f"{', '.join(_COUNTS)}, missing(FIELD), 5xx or a reason such as timeout"
        hint = f"did you mean {close[0]}?" if close else f"right would be {right}"
        raise ConfigError(f"--fail-on {text!r}: no row is named {name!r}; {hint}")
    return Limit(text.strip(), name, found["op"], float(found["value"]), percent)


def _group(name: str) -> str:
    """Among which rows a name would stand."""
    if name == "duplicates" or name.startswith("missing("):
        return "items"
    if name in ("new", "gone", "changed"):
        return "rows"
    return "answers" if re.fullmatch(r"\dxx", name) else "run"


def _names(row: Row, name: str) -> bool:
    """Whether the limit means this row; a field may be named without its table."""
    if row.name == name:
        return True
    kind, _, rest = name.partition("(")
    return bool(rest) and row.name.startswith(f"{kind}(") and row.name.endswith(f".{rest}")
