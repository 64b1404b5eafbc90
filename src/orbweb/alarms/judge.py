"""The judge: what outlives a process of alarms, and one look that moves it on. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from orbweb.alarms.conditions import findings
from orbweb.alarms.facts import Facts
from orbweb.alarms.notices import Letter, Policy, Silence, Told, bounded, new_letters
from orbweb.alarms.past import Past
from orbweb.alarms.rules import Limits
from orbweb.alarms.states import CALM_MS, Alarms, State, step
from orbweb.errors import OrbwebError


class Docket(msgspec.Struct):
    """The alarms of a fleet, what is on its way to people, and what rates are measured from."""

    alarms: Alarms = {}
    letters: list[Letter] = []
    told: Told = msgspec.field(default_factory=Told)
    past: Past = msgspec.field(default_factory=Past)
    judged_ms: int = 0
    judged_by: str = ""
    in_force: dict[str, float] = {}
    """Settings that the rules went by at the last look."""


def encode(docket: Docket) -> bytes:
    """The docket as it is kept in the store."""
    return msgspec.msgpack.encode(docket)


def decode(kept: bytes) -> Docket:
    """Raises `OrbwebError` for anything that `encode` did not write."""
    try:
        return msgspec.msgpack.decode(kept, type=Docket)
    except msgspec.MsgspecError as error:
        raise OrbwebError(f"these are no alarms: {error}") from error


def judge(
    docket: Docket,
    facts: Facts,
    limits: Limits,
    policy: Policy,
    silences: Iterable[Silence] = (),
    *,
    calm_ms: int = CALM_MS,
) -> list[str]:
    """Look at the fleet once: new states, new letters. Returns the keys of alarms that changed."""
    before = {key: alarm.state for key, alarm in docket.alarms.items()}
    found = findings(facts, docket.past, limits)
    docket.alarms = step(docket.alarms, found, facts.at_ms, limits.holds, calm_ms)
    new = new_letters(docket.alarms, docket.told, policy, silences, facts.at_ms)
    docket.letters, _ = bounded([*docket.letters, *new])
    docket.judged_ms = facts.at_ms
    docket.in_force = dict(limits.in_force)
    return [
        key
        for key, alarm in docket.alarms.items()
        if alarm.state is not State.PENDING and before.get(key) is not alarm.state
    ]
