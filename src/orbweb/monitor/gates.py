"""Conditions that a finished run must meet: `items>=100`, `missing(price)<2%`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orbweb.errors import ConfigError
from orbweb.monitor.quality import Tally

COUNTS = ("items", "pages", "failed")
RATES = ("duplicates", "failures")
FIELD_RATES = ("missing", "drift")
BASELINE = "baseline"

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_GATE = re.compile(
    r"\s*(?P<name>\w+)\s*(?:\(\s*(?P<field>[^()]+?)\s*\))?\s*(?P<op>>=|<=|==|>|<)\s*"
    r"(?P<value>\d+(?:\.\d+)?)\s*(?P<percent>%?)\s*"
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What gates look at: numbers of the whole run."""

    items: int
    pages: int
    failed: int
    """Requests that were given up."""
    tally: Tally
    unusual: Sequence[str] = ()
    """What differs from earlier runs (see `orbweb.monitor.baseline`)."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition."""

    text: str
    name: str
    field: str = ""
    op: str = ""
    value: float = 0.0
    """Rates lie between 0 and 1."""

    def failure(self, facts: Facts) -> str | None:
        """How the run fails the condition, and by how much; None when it meets it."""
        if self.name == BASELINE:
            return f"gate {self.text}: {'; '.join(facts.unusual)}" if facts.unusual else None
        found, shown = self._measure(facts)
        if _COMPARE[self.op](found, self.value):
            return None
        gap = abs(found - self.value)
        by = f"{gap:.0f}" if self.name in COUNTS else f"{gap * 100:.2g} points"
        return f"gate {self.text} failed by {by}: {shown}"

    def _measure(self, facts: Facts) -> tuple[float, str]:
        """The number that counts, and what a person is told of it."""
        tally = facts.tally
        if self.name in COUNTS:
            count = int(getattr(facts, self.name))
            return count, f"{self.name} is {count}"
        if self.name == "duplicates":
            rate, of = tally.duplicate_rate, f"{tally.items} items"
        elif self.name == "failures":
            ended = facts.pages + facts.failed
            rate, of = facts.failed / ended if ended else 0.0, f"{ended} requests"
        else:
            return self._measure_field(tally)
        return rate, f"{self.name} is {rate:.2%} of {of}"

    def _measure_field(self, tally: Tally) -> tuple[float, str]:
        """The worst rate of the tables that the gate means."""
        table, _, field = self.field.rpartition(".")
        tables = [table] if table else [name for name in tally.tables if _has(tally, name, field)]
        measure = tally.missing_rate if self.name == "missing" else tally.drift_rate
        worst = max(tables, key=lambda name: measure(name, field), default="")
        if not worst or worst not in tally.tables:
            return 1.0, f"no item has a field {field!r}" if tally.items else "there are no items"
        rate, items = measure(worst, field), tally.tables[worst].items
        kind = f", most are {tally.kind(worst, field)}" if self.name == "drift" else ""
        return rate, f"it is {rate:.2%} of {items} items in {worst}{kind}"


def parse_gate(text: str) -> Gate:
    """Raises `ConfigError` that says what would be right."""
    if text.strip() == BASELINE:
        return Gate(BASELINE, BASELINE)
    match = _GATE.fullmatch(text)
    wanted = (
        "items>=100, pages>=1, failed<=5, failures<1%, duplicates<1%, missing(price)<2%, "
        "missing(table.field)<2%, drift(price)<1% or baseline"
    )
    if match is None:
        raise ConfigError(f"gate {text!r} cannot be read; right would be {wanted}")
    name, field, percent = match["name"], match["field"] or "", bool(match["percent"])
    value = float(match["value"])
    if name not in (*COUNTS, *RATES, *FIELD_RATES):
        raise ConfigError(f"gate {text!r}: {name} is not known; right would be {wanted}")
    if (name in FIELD_RATES) != bool(field):
        what = "a field in brackets" if name in FIELD_RATES else "no field"
        raise ConfigError(f"gate {text!r}: {name} takes {what}")
    if name in COUNTS and percent:
        raise ConfigError(f"gate {text!r}: {name} is a number, not a percentage")
    if name not in COUNTS and not percent and value > 1:
        raise ConfigError(f"gate {text!r}: {name} is a rate; write {match['value']}%")
    return Gate(text.strip(), name, field, match["op"], value / 100 if percent else value)


def judge_gates(gates: Sequence[Gate], facts: Facts) -> list[str]:
    """The failures of a run, in the order of the gates."""
    return [failure for gate in gates if (failure := gate.failure(facts)) is not None]


def _has(tally: Tally, table: str, field: str) -> bool:
    return field in tally.tables[table].fields
