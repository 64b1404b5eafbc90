"""The judge of a simulated run: reads the history, knows the site, trusts nobody else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from orbweb.testing.simulator.history import (
    POISON,
    SILENT,
    Event,
    Exit,
    Record,
    Start,
    Stored,
    Told,
)
from orbweb.testing.simulator.site import SiteMap

STOP_SECONDS = 6.0
"""A node that is told to stop and can run must be gone within this time."""

EXIT_CODES = {0, 3, 75}


class Violation(NamedTuple):
    """A promise that was broken, and where."""

    name: str
    text: str


def check(record: Record) -> list[Violation]:
    """All broken promises of a run, each name with its first finding."""
    found: dict[str, Violation] = {}
    for rule in RULES:
        for violation in rule(record):
            found.setdefault(violation.name, violation)
    return list(found.values())


def _silent(record: Record) -> set[str]:
    """Pages that died without an answer: what was on them is unknown."""
    return {name for name, dead in record.dead.items() if dead.reason in SILENT}


def _expected(record: Record) -> Counter[str]:
    return _started(record).expected(_silent(record), record.plan.config.max_retries)


def _started(record: Record) -> SiteMap:
    """The site without the seeds whose tasks are dead letters themselves."""
    dead = {_row(id) for id in record.dead_errands if id.endswith(".task")}
    if not dead:
        return record.site
    kept = [row for row in range(len(record.site.seeds)) if row not in dead]
    return replace(
        record.site,
        seeds=[record.site.seeds[row] for row in kept],
        twin_seeds={place for place, row in enumerate(kept) if row in record.site.twin_seeds},
    )


def _row(id: str) -> int:
    """The row of a task, from the id of one of its errands."""
    digits = re.match(r"[rs](\d+)", id)
    assert digits, id
    return int(digits[1])


def _ends(record: Record) -> Iterator[Violation]:
    """The run ends, and nothing in the engine breaks on the way."""
    if not record.ended:
        seconds = record.plan.bound_ms // 1000
        text = f"not ended after {seconds} s; {record.pending} pending, run {record.state}"
        yield Violation("not_ended", text)
    elif record.state != "done" and not record.plan.rolls_back:
        yield Violation("not_done", f"all nodes have gone, the run is {record.state}")
    for event in record.of_kind("livelock"):
        yield Violation("livelock", str(event.detail))
    for event in record.of_kind("loop_error"):
        yield Violation("loop_error", f"{event.node}: {event.detail}")


def _nothing_lost(record: Record) -> Iterator[Violation]:
    """Every page that can be reached was fetched, every item stored, once."""
    fetched = {event.subject for event in record.of_kind("end")}
    expected = _expected(record)
    if record.ended:
        for page in expected:
            if page not in fetched and page not in record.dead:
                yield Violation("lost_url", page)
    reachable = record.site.expected(set(), record.plan.config.max_retries)
    for page in fetched - set(reachable):
        yield Violation("unknown_url", page)
    yield from _items(record, expected, reachable)


def _items(record: Record, expected: Counter[str], reachable: Counter[str]) -> Iterator[Violation]:
    """`expected` is the least; `reachable` the most, since a page may have been done before the
    server forgot it and it died.
    """
    stored = _stored(record.events)
    silent = _silent(record)
    most = record.plan.config.max_retries
    for name, requests in expected.items():
        page = record.site.pages[name]
        wanted = 0 if page.flaky > most else page.items
        for number in range(wanted):
            copies = len(stored.get((name, number), ()))
            if copies > reachable[name] + record.site.redirects_to(name):
                yield Violation(
                    "duplicate_item", f"{name} #{number}: {copies} of {reachable[name]}"
                )
            if copies < requests and name not in silent and record.ended:
                yield Violation("lost_item", f"{name} #{number}: {copies} of {requests}")
    for event in record.of_kind("key_conflict"):
        yield Violation("key_conflict", f"{event.subject}: {event.detail}")


def _stored(events: list[Event]) -> dict[tuple[str, int], set[str]]:
    stored: dict[tuple[str, int], set[str]] = {}
    for event in events:
        if event.kind == "stored":
            row: Stored = event.detail
            stored.setdefault((event.subject, row.number), set()).add(row.key)
    return stored


def _no_early_exit(record: Record) -> Iterator[Violation]:
    """A node says that the run is done only when everything is fetched and stored."""
    expected, silent = _expected(record), _silent(record)
    most = record.plan.config.max_retries
    for index, event in enumerate(record.events):
        if event.kind != "exit" or event.detail.code != 0 or event.detail.state == "stopped":
            continue
        facts: Exit = event.detail
        if facts.pending:
            yield Violation("early_exit", f"{event.node}: {facts.pending} pending")
        before = record.events[:index]
        fetched = {each.subject for each in before if each.kind == "end"}
        stored = _stored(before)
        for name, requests in expected.items():
            if name in record.dead:
                continue
            if name not in fetched:
                yield Violation("early_exit", f"{event.node}: {name} was not fetched")
            page = record.site.pages[name]
            for number in range(0 if page.flaky > most or name in silent else page.items):
                if len(stored.get((name, number), ())) < requests:
                    yield Violation("early_exit", f"{event.node}: {name} #{number} not stored")
        return  # what holds at the first exit holds at the later ones


def _exits(record: Record) -> Iterator[Violation]:
    """Exit codes say what happened, and a node that is told to stop goes soon."""
    for event in record.of_kind("exit"):
        facts: Exit = event.detail
        if facts.state == "aborted" and _terminations(record, event) > 1:
            continue
        if facts.code not in EXIT_CODES:
            yield Violation("wrong_exit", f"{event.node}: {facts.code}, {event.subject}")
        if facts.code == 3 and facts.state != "joined_finished":
            yield Violation("wrong_exit", f"{event.node}: 3, {event.subject}")
        if facts.state == "joined_finished" and not _was_done(record, event):
            yield Violation("wrong_exit", f"{event.node} joined a run that nobody had finished")
        stopped = facts.code == 75 or facts.state == "stopped"
        if stopped and not _was_stopped(record, event):
            yield Violation(
                "wrong_exit", f"{event.node}: {facts.code}, nobody asked; {event.subject}"
            )
    for event in record.of_kind("stop_took"):
        if event.detail > STOP_SECONDS * 1000:
            yield Violation("slow_stop", f"{event.node}: {event.detail} ms")


def _was_done(record: Record, exit: Event) -> bool:
    """Nothing was fetched after this node had looked."""
    return record.plan.rolls_back or not any(
        event.kind == "end" and event.at_ms > exit.at_ms for event in record.events
    )


def _terminations(record: Record, exit: Event) -> int:
    return sum(event.node == exit.node for event in record.of_kind("terminate"))


def _was_stopped(record: Record, exit: Event) -> bool:
    return _terminations(record, exit) > 0 or any(
        event.at_ms <= exit.at_ms and event.kind in ("operator_stop", "operator_end")
        for event in record.events
    )


def _owners(record: Record) -> Iterator[Violation]:
    """A fetch starts only under a current lease; hosts get no more fetches than allowed."""
    if record.plan.rolls_back:
        return
    slots = record.plan.config.host_concurrency
    for event in record.of_kind("start"):
        facts: Start = event.detail
        if not facts.current:
            yield Violation("zombie_start", f"{event.subject} with {facts.token} at {event.at_ms}")
        elif slots and facts.overlap > slots:
            text = f"{facts.overlap} fetches at once with {event.subject} at {event.at_ms}"
            yield Violation("slots", text)
    acked = Counter(event.subject for event in record.of_kind("acked"))
    again = [id for id, count in acked.items() if count > 1]
    if again and not any(page.twins for page in record.site.pages.values()):
        yield Violation("acked_twice", again[0])


def _dead_letters(record: Record) -> Iterator[Violation]:
    """Only pages that cannot be had are dead, each with its reason; poison is stopped in time."""
    most = record.plan.config.max_retries
    overdue = Counter(event.subject for event in record.of_kind("overdue"))
    for name, dead in record.dead.items():
        page = record.site.pages[name]
        if not dead.reason or not dead.error:
            yield Violation("dead_without_reason", f"{name}: {dead}")
        fits = {
            "connection": page.flaky > 0 and page.flaky + overdue[name] > most,
            "callback_error": page.raises,
            "item_rejected": page.bad_item,
            "timeout": overdue[name] > 0 and (page.stuck or not record.plan.calm),
            POISON: page.poison or not record.plan.calm,
        }
        if not fits.get(dead.reason, False):
            yield Violation("wrong_dead", f"{name}: {dead.reason}: {dead.error}")
    expected = _expected(record)
    for name in expected:
        page = record.site.pages[name]
        doomed = page.flaky > most or page.raises or page.bad_item or page.poison
        if doomed and name not in record.dead and record.ended:
            yield Violation("missing_dead", f"{name} cannot have succeeded")
    reachable = record.site.expected(set(), most)
    kills = Counter(
        event.subject for event in record.of_kind("crash") if event.subject in record.site.pages
    )
    for name, count in kills.items():
        # One that was held too long, by a stopped node, begins again.
        lives = reachable[name] + overdue[name]
        if count > record.plan.config.max_deliveries * lives and not record.plan.rolls_back:
            yield Violation("poison_loop", f"{name} killed {count} nodes")


def _calm(record: Record) -> Iterator[Violation]:
    """In a healthy fleet nothing is fetched twice and no lease is lost."""
    if not record.plan.calm or not record.ended:
        return
    if record.reaped:
        yield Violation("reaped_in_calm", f"{record.reaped} leases")
    starts = Counter(event.subject for event in record.of_kind("start"))
    most = record.plan.config.max_retries
    for name, requests in _expected(record).items():
        page = record.site.pages[name]
        retries = most if page.raises else min(page.flaky, most)
        always = page.raises or page.flaky > most
        planned = requests * (1 + retries) if always else requests + retries + page.stuck
        redirects = record.site.redirects_to(name)
        if not planned <= starts[name] <= planned + redirects:
            yield Violation("fetched_in_calm", f"{name}: {starts[name]}, planned {planned}")


def _counts(record: Record) -> Iterator[Violation]:
    """The store's count of items is that of the sink."""
    if not record.ended or record.plan.rolls_back:
        return
    silent, most = _silent(record), record.plan.config.max_retries
    site = record.site
    if site.twin_seeds or any(page.twins or page.leads_to for page in site.pages.values()):
        return
    if site.apart and silent:  # which tasks came to them is not known
        return
    wanted = sum(
        requests * record.site.pages[name].items
        for name, requests in _expected(record).items()
        if name not in silent and record.site.pages[name].flaky <= most
    )
    if record.items != wanted:
        yield Violation("wrong_count", f"the store counts {record.items} items, not {wanted}")


def _tasks(record: Record) -> Iterator[Violation]:
    """A task is told to have ended when nothing of it is left, as it has ended, and never not."""
    if record.plan.tasks is None:
        return
    for event in record.of_kind("told"):
        told: Told = event.detail
        if told.left:
            yield Violation("early_task", f"{event.subject}: {told.left} left, {told.reason}")
        if bool(told.reason) != bool(told.dead):
            yield Violation("wrong_task", f"{event.subject}: {told.dead} dead, {told.reason!r}")
    if not record.ended or record.state != "done":
        return
    excused = {_row(id) for id in record.dead_errands if id.endswith("@end")}
    for row, state in enumerate(record.rows):
        if state not in ("done", "failed") and row not in excused:
            yield Violation("lost_task", f"row {row} is {state}")


RULES = (
    _ends,
    _nothing_lost,
    _no_early_exit,
    _exits,
    _owners,
    _dead_letters,
    _calm,
    _counts,
    _tasks,
)
