"""The rules on virtual time, with the thresholds that a fleet has by default."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orbweb.alarms.conditions import CONDITIONS
from orbweb.alarms.facts import (
    ConsumerFacts,
    Facts,
    IdleFacts,
    LostFacts,
    NodeFacts,
    RunFacts,
    ScheduleFacts,
)
from orbweb.alarms.judge import Docket, decode, encode, judge
from orbweb.alarms.notices import Policy
from orbweb.alarms.rules import RULES, Limits, limits_of
from orbweb.alarms.states import Alarm, State
from orbweb.alarms.texts import TEXTS
from orbweb.alarms.wording import end_line, line
from orbweb.frontier.admin import read_beat
from orbweb.settings import load_settings

SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
START = 1_800_000_000_000
LOOK = 5 * SECOND

WELL = NodeFacts(
    "0123456789abcdef",
    1500,
    {
        "host": "web1", "pid": 4242, "elapsed": 3600.0, "started": START // 1000 - 3600,
        "limited_by": "hosts", "attempts": 0, "dns": 0, "refused": {}, "sinks": {}, "lost": 0,
        "vitals": {"cpu": 40.0, "disk_free": 60, "disk_total": 100},
    },
)  # fmt: skip


def said(**words: object) -> NodeFacts:
    """A node that is well but for this."""
    return replace(WELL, said={**WELL.said, **words})


def run_of(*nodes: NodeFacts, **words: object) -> RunFacts:
    return RunFacts("books", "r1", "e1", nodes=nodes or (WELL,), started_at_ms=START, **words)  # type: ignore[arg-type]


def defaults(**changes: object) -> Limits:
    settings = load_settings(directory=Path("/nowhere"), environ={}, overrides=changes)
    return limits_of(settings)


class Fleet:
    """Looks at a fleet every five seconds of a clock that the test turns."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.at_ms = START
        self.docket = Docket()
        self.limits = limits or defaults()
        self.letters: list[tuple[int, bool, str]] = []
        """When (ms since the start), whether it is an end, rule."""
        self.policy = Policy(("hook",))

    def look(self, **words: object) -> None:
        """Once; the docket goes through the store in between."""
        self.docket = decode(encode(self.docket))
        facts = Facts(self.at_ms, **words)  # type: ignore[arg-type]
        judge(self.docket, facts, self.limits, self.policy)
        for letter in self.docket.letters:
            self.letters += [
                (self.at_ms - START, letter.ended, alarm.rule) for alarm in letter.alarms
            ]
        self.docket.letters = []

    def go(self, span_ms: int, facts: Callable[[int], dict[str, object]]) -> None:
        """Time passes; `facts` gives what is seen so many ms after the beginning of this span."""
        began = self.at_ms
        while self.at_ms < began + span_ms:
            self.look(**facts(self.at_ms - began))
            self.at_ms += LOOK

    def told(self, rule: str) -> list[tuple[int, bool]]:
        return [(at, ended) for at, ended, name in self.letters if name == rule]


def always(run: RunFacts, **more: object) -> Callable[[int], dict[str, object]]:
    return lambda _: {"runs": (run,), **more}


def test_each_rule_has_a_condition_and_words_in_two_languages() -> None:
    assert set(CONDITIONS) == set(RULES) - {"store_unreachable"}
    assert set(TEXTS) == set(RULES)
    for rule in RULES.values():
        assert set(rule.hidden_by) <= set(RULES)
        alarm = Alarm(rule.name, "books", "r1", "web1", START, State.FIRING, 1.0, "detail")
        english, chinese = line(alarm, defaults()), line(alarm, defaults(), "zh")
        for text, words in (
            (english, ("do: orbweb ", "undo: ")),
            (chinese, ("先做: orbweb ", "撤销: ")),
        ):
            assert all(word in text for word in words), text
            assert "{" not in text
        assert "[RESOLVED]" in end_line(alarm, defaults())


def test_a_node_that_talks_nonsense_blinds_nobody() -> None:
    nonsense = {
        "host": ["x"], "started": "zz", "elapsed": "q", "lost": "many", "stuck": math.inf,
        "sinks": {"A": ["soon", None], "B": 3, "C": [math.nan, "x"]}, "dns": "x",
        "refused": {"a.example": "x", "b.example": ["x", math.inf]}, "config": "new",
        "vitals": {"cpu": "x", "disk_total": "a"}, "limited_by": 7,
    }  # fmt: skip
    run = run_of(WELL, NodeFacts("odd", 1500, nonsense), waiting=200_000)
    fleet = Fleet()
    fleet.go(400 * SECOND, lambda ms: {"runs": (replace(run, waiting=200_000 + ms),)})
    assert fleet.told("backlog")
    assert {rule for _, _, rule in fleet.letters} == {"backlog"}


def test_half_a_character_in_an_error_blinds_nobody() -> None:
    beat = json.dumps({"sinks": {"Files": [40.0, "no file \udc80"]}}).encode()
    node = NodeFacts("0123456789abcdef", 1500, read_beat(beat))
    fleet = Fleet()
    fleet.go(MINUTE, always(run_of(node)))
    assert fleet.told("sink_down")


def test_a_run_with_nothing_done_is_told_with_its_pages() -> None:
    alarm = Alarm("nothing_done", "books", "", "", START, State.FIRING)
    assert "(0 pages)" in line(alarm, defaults())
    assert "（0 页）" in line(alarm, defaults(), "zh")


def test_a_calm_hour_raises_nothing() -> None:
    fleet = Fleet()

    def calm(ms: int) -> dict[str, object]:
        pages = ms // 50
        node = said(
            attempts=pages, dns=pages // 50, refused={"shop.example": [pages // 40, pages]},
            sinks={"CsvPipeline": [1.5, ""]}, lost=3, config=7,
        )  # fmt: skip
        run = run_of(
            node, replace(node, node="fedcba", silent_ms=2900), waiting=150_000 - ms // 40,
            pages=pages, dead=pages // 100, retried=pages // 30, leased=20,
            fill=0.5, duplicates=0.004, checked=pages,
        )  # fmt: skip
        return {
            "runs": (run,), "used_memory": 50, "max_memory": 100, "config_version": 7,
            "consumers": (ConsumerFacts("c1", 2000, {"busy": 2.0}),),
            "schedules": (ScheduleFacts("books", START + 2 * HOUR, START + ms),),
        }  # fmt: skip

    fleet.go(HOUR, calm)
    assert fleet.letters == []
    assert not [each for each in fleet.docket.alarms.values() if each.state is State.FIRING]


def test_a_backlog_counts_after_five_minutes_and_only_while_it_grows() -> None:
    fleet = Fleet()
    fleet.go(4 * MINUTE, lambda ms: always(run_of(waiting=100_001 + ms // 100))(ms))
    assert fleet.told("backlog") == []
    fleet.go(3 * MINUTE, lambda ms: always(run_of(waiting=103_000 + ms // 100))(ms))
    ((at, ended),) = fleet.told("backlog")
    assert not ended
    assert 5 * MINUTE <= at <= 5 * MINUTE + 20 * SECOND
    fleet.go(10 * MINUTE, lambda ms: always(run_of(waiting=104_800 - ms // 100))(ms))
    assert [ended for _, ended in fleet.told("backlog")] == [False, True]


def test_people_know_of_a_silent_node_within_sixty_seconds_and_a_new_one_takes_its_place() -> None:
    fleet = Fleet()
    fleet.go(2 * MINUTE, always(run_of()))
    silent = lambda ms: replace(WELL, silent_ms=ms + 1500)  # noqa: E731
    fleet.go(90 * SECOND, lambda ms: always(run_of(silent(ms), waiting=5))(ms))
    ((at, _),) = fleet.told("node_silent")
    assert 50 * SECOND <= at - 2 * MINUTE <= 60 * SECOND

    def with_other(ms: int) -> Facts:
        other = replace(said(elapsed=ms / 1000), node="fedcba9876543210")
        return always(run_of(silent(ms + 90 * SECOND), other, waiting=5))(ms)

    fleet.go(MINUTE, with_other)
    assert [ended for _, ended in fleet.told("node_silent")] == [False, True]


def test_nodes_that_were_started_together_do_not_replace_each_other() -> None:
    """One that dies a second after its start is missed, although another has just begun."""
    fleet = Fleet()
    fleet.go(2 * MINUTE, always(run_of()))
    began = 3 * SECOND

    def facts(ms: int) -> Facts:
        lives = replace(said(elapsed=(began + ms) / 1000), node="fedcba9876543210", silent_ms=0)
        dead = replace(said(elapsed=(began - 1900) / 1000), silent_ms=ms + 1900)
        return always(run_of(dead, lives, waiting=5))(ms)

    fleet.go(90 * SECOND, facts)
    assert len(fleet.told("node_silent")) == 1


def test_a_node_that_said_good_bye_is_not_missed() -> None:
    fleet = Fleet()
    gone = lambda ms: replace(said(ended=True), silent_ms=ms)  # noqa: E731
    fleet.go(10 * MINUTE, lambda ms: always(run_of(gone(ms), waiting=5))(ms))
    assert fleet.letters == []


def test_a_new_judge_listens_for_a_minute_before_it_calls_a_node_silent() -> None:
    """After an outage of the store every node has been silent for as long as that lasted."""
    fleet = Fleet()
    fleet.go(30 * SECOND, lambda ms: always(run_of(replace(WELL, silent_ms=300_000 + ms)))(ms))
    fleet.go(5 * MINUTE, always(run_of()))
    assert fleet.letters == []


def test_a_silent_node_is_told_once_although_the_store_was_away() -> None:
    fleet = Fleet()
    fleet.go(2 * MINUTE, lambda ms: always(run_of(replace(WELL, silent_ms=ms)))(ms))
    fleet.at_ms += 10 * MINUTE
    fleet.go(20 * MINUTE, lambda ms: always(run_of(replace(WELL, silent_ms=ms + 720_000)))(ms))
    assert len(fleet.told("node_silent")) == 1


def test_cpu_counts_after_ten_minutes() -> None:
    fleet = Fleet()
    busy = run_of(said(vitals={"cpu": 92.0}))
    fleet.go(9 * MINUTE, always(busy))
    fleet.go(15 * SECOND, always(run_of()))
    fleet.go(9 * MINUTE, always(busy))
    assert fleet.letters == []
    fleet.go(2 * MINUTE, always(busy))
    assert fleet.told("cpu")


def test_a_run_that_the_store_has_lost_is_told_until_it_begins_again() -> None:
    fleet = Fleet()
    lost = (LostFacts("books", "r1", START), LostFacts("shop", "", START))
    fleet.go(10 * MINUTE, lambda _: {"lost": lost})
    assert len(fleet.told("run_lost")) == 2
    again = replace(run_of(), started_at_ms=fleet.at_ms)
    fleet.go(5 * MINUTE, lambda _: {"lost": lost, "runs": (again,)})
    assert [ended for _, ended in fleet.told("run_lost")] == [False, False, True]


FAULTS = {
    "zombie": run_of(said(stuck=31.0)),
    "nothing_done": run_of(done=True, finished_at_ms=START),
    "failed_requests": run_of(dead=1000, pages=10_000_000),
    "duplicates": run_of(duplicates=0.011, checked=100),
    "field_missing": run_of(missing=("missing(books.price): 38.7%, where 0.1% is usual",)),
    "dedup_fill": run_of(fill=0.8),
    "sink_down": run_of(said(sinks={"SqlPipeline": [31.0, "OperationalError: gone"]})),
    "disk_full": run_of(said(vitals={"disk_free": 9, "disk_total": 100})),
}


@pytest.mark.parametrize("rule", FAULTS)
def test_what_is_wrong_at_once_is_told_once_and_ends(rule: str) -> None:
    fleet = Fleet()
    fleet.go(MINUTE, always(run_of(pages=9)))
    fleet.go(10 * MINUTE, always(FAULTS[rule]))
    ((at, _),) = fleet.told(rule)
    assert at - MINUTE <= MINUTE
    fleet.go(5 * MINUTE, always(run_of(pages=9)))
    assert [ended for _, ended in fleet.told(rule)] == [False, True]
    assert {name for _, _, name in fleet.letters} == {rule}


def test_a_write_that_finds_no_room_is_a_full_disk_and_not_a_sink_of_its_own() -> None:
    fleet = Fleet()
    error = "OSError: [Errno 28] No space left on device"
    fleet.go(5 * MINUTE, always(run_of(said(sinks={"CsvPipeline": [200.0, error]}))))
    assert fleet.told("disk_full")
    assert not fleet.told("sink_down")


def test_a_storm_of_429_is_told_within_a_minute_and_hides_the_failures_that_follow() -> None:
    fleet = Fleet()

    def storm(ms: int) -> dict[str, object]:
        refused = ms // 2000
        node = said(refused={"shop.example": [refused, refused + 1]}, attempts=refused)
        return always(run_of(node, waiting=900, pages=50, retried=refused))(ms)

    fleet.go(MINUTE, always(run_of(waiting=900, pages=50)))
    fleet.go(20 * MINUTE, storm)
    ((at, _),) = fleet.told("blocked")
    assert at - MINUTE <= MINUTE
    assert {name for _, _, name in fleet.letters} == {"blocked"}
    (alarm,) = (each for each in fleet.docket.alarms.values() if each.rule == "blocked")
    assert alarm.subject == "shop.example"
    assert "orbweb limit shop.example 1/10s" in line(alarm, fleet.limits)


def test_a_failing_name_server_is_told_within_a_minute() -> None:
    fleet = Fleet()
    fleet.go(MINUTE, always(run_of(waiting=900, pages=50)))
    failing = lambda ms: said(attempts=ms // 1000, dns=ms // 1500, dns_host="shop.example")  # noqa: E731
    fleet.go(3 * MINUTE, lambda ms: always(run_of(failing(ms), waiting=900))(ms))
    ((at, _),) = fleet.told("dns_failure")
    assert at - MINUTE <= MINUTE


def test_failures_count_by_the_last_minutes_and_not_by_the_whole_run() -> None:
    """A hundred thousand good pages must not hide that nothing works now."""
    fleet = Fleet()
    fleet.go(MINUTE, always(run_of(pages=100_000, waiting=900)))
    fleet.go(
        5 * MINUTE,
        lambda ms: always(run_of(pages=100_000, dead=ms // 1000, waiting=900))(ms),
    )
    assert fleet.told("failure_rate")


def test_no_page_for_ten_minutes_is_told_with_what_limits_the_nodes() -> None:
    fleet = Fleet()
    fleet.go(9 * MINUTE, always(run_of(pages=5, waiting=10)))
    assert fleet.letters == []
    fleet.go(2 * MINUTE, always(run_of(pages=5, waiting=10)))
    assert len(fleet.told("no_progress")) == 1
    (alarm,) = fleet.docket.alarms.values()
    assert "limited by: hosts" in line(alarm, fleet.limits)


@pytest.mark.parametrize("words", [{"paused": True}, {"stopping": True}, {"waiting": 0}])
def test_a_run_that_is_not_to_progress_is_left_alone(words: dict[str, object]) -> None:
    fleet = Fleet()
    fleet.go(30 * MINUTE, always(run_of(**{"pages": 5, "waiting": 10, **words})))
    assert fleet.letters == []


def test_a_start_that_finds_its_run_finished_is_told_until_a_later_run_gives_pages() -> None:
    fleet = Fleet()
    done = run_of(done=True, pages=90, finished_at_ms=START - HOUR)
    idle = (IdleFacts("books", "r1", START + 1),)
    fleet.go(MINUTE, always(done, idle=idle))
    assert len(fleet.told("nothing_done")) == 1
    (alarm,) = fleet.docket.alarms.values()
    assert "(0 pages)" in line(alarm, fleet.limits)
    later = RunFacts("books", "r2", "e2", pages=3, waiting=1, started_at_ms=START + MINUTE)
    fleet.go(MINUTE, lambda _: {"runs": (done, later), "idle": idle})
    assert [ended for _, ended in fleet.told("nothing_done")] == [False, True]


def test_a_batch_that_does_not_come_says_why() -> None:
    fleet = Fleet()
    late = ScheduleFacts("books", START - MINUTE, START + HOUR, "batch 7 still runs")
    fleet.go(MINUTE, lambda _: {"schedules": (late,)})
    assert len(fleet.told("schedule_missed")) == 1
    (alarm,) = fleet.docket.alarms.values()
    assert "batch 7 still runs" in line(alarm, fleet.limits)
    fleet.go(2 * HOUR, lambda _: {"schedules": (replace(late, told_ms=START),)})
    (alarm,) = fleet.docket.alarms.values()
    assert "no master" in line(alarm, fleet.limits)


def test_a_consumer_that_stands_still_is_told_whether_it_speaks_or_not() -> None:
    for stuck in (
        lambda ms: ConsumerFacts("c1", 1000, {"busy": ms / 1000, "error": "gone"}),
        lambda ms: ConsumerFacts("c1", ms, {}),
    ):
        fleet = Fleet()
        fleet.go(MINUTE, lambda _: {"consumers": (ConsumerFacts("c1", 1000, {}),)})
        fleet.go(2 * MINUTE, lambda ms, stuck=stuck: {"consumers": (stuck(ms),)})  # type: ignore[misc]
        ((at, _),) = fleet.told("consumer_stuck")
        assert at - MINUTE <= MINUTE


def test_a_consumer_that_said_good_bye_is_not_missed() -> None:
    fleet = Fleet()
    fleet.go(HOUR, lambda ms: {"consumers": (ConsumerFacts("c1", ms, {"ended": True}),)})
    assert fleet.letters == []


def test_a_node_behind_the_newest_configuration_is_told_after_a_minute() -> None:
    fleet = Fleet()
    fleet.go(55 * SECOND, always(run_of(said(config=6)), config_version=7))
    assert fleet.letters == []
    fleet.go(30 * SECOND, always(run_of(said(config=6)), config_version=7))
    assert len(fleet.told("config_drift")) == 1


@pytest.mark.parametrize("what", ["config", "tasks"])
def test_a_source_that_does_not_answer_is_told_within_a_minute(what: str) -> None:
    fleet = Fleet()
    fleet.go(MINUTE, always(run_of(said(**{f"{what}_error": "no route to host"}))))
    assert len(fleet.told("source_unreachable")) == 1
    fleet.go(MINUTE, always(run_of()))
    assert [ended for _, ended in fleet.told("source_unreachable")] == [False, True]


def test_leases_lost_again_and_again_make_a_zombie_and_one_stop_does_not() -> None:
    fleet = Fleet()
    fleet.go(MINUTE, always(run_of()))
    fleet.go(10 * MINUTE, always(run_of(said(lost=64))))
    assert fleet.letters == []
    fleet.go(3 * MINUTE, lambda ms: always(run_of(said(lost=64 + ms // 5000)))(ms))
    assert len(fleet.told("zombie")) == 1


def test_memory_of_the_store_is_told_before_it_is_full() -> None:
    fleet = Fleet()
    fleet.go(MINUTE, lambda _: {"used_memory": 86, "max_memory": 100})
    assert len(fleet.told("store_memory")) == 1


def test_a_threshold_of_zero_switches_a_rule_off() -> None:
    fleet = Fleet(defaults(ALERTS_SINK_DOWN="0"))
    fleet.go(HOUR, always(FAULTS["sink_down"]))
    assert fleet.letters == []
