"""Who is told what, and when; on virtual time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orbweb.alarms.finding import Finding
from orbweb.alarms.notices import Letter, Policy, Quiet, Route, Silence, Told, new_letters
from orbweb.alarms.policy import policy_of
from orbweb.alarms.rules import Severity
from orbweb.alarms.states import MOST_ALARMS, Alarm, Alarms, State, step
from orbweb.errors import ConfigError
from orbweb.settings import load_settings
from orbweb.spiders.watching import say_without_store

START = 1_800_000_000_000
MINUTE = 60_000
AT_ONCE = Policy(("ops", "mail"), group_wait_ms=0)


def firing(rule: str, subject: str = "", job: str = "books", **words: Any) -> Alarm:
    return Alarm(rule, job, "r1", subject, START, State.FIRING, fired_ms=START, **words)


def over(alarm: Alarm) -> Alarm:
    alarm.state, alarm.resolved_ms = State.RESOLVED, START + MINUTE
    return alarm


def table(*alarms: Alarm) -> Alarms:
    return {alarm.key: alarm for alarm in alarms}


def summary(letters: list[Letter]) -> list[tuple[str, bool, list[str]]]:
    return [
        (each.channel, each.ended, [a.subject or a.rule for a in each.alarms]) for each in letters
    ]


def test_alarms_of_one_run_come_as_one_letter_the_worst_first() -> None:
    alarms = table(
        firing("cpu", "n1"), firing("node_silent", "n2"), firing("node_silent", "n3"),
        firing("backlog", job="shop"),
    )  # fmt: skip
    letters = new_letters(alarms, Told(), Policy(("ops",), group_wait_ms=0), [], START)
    assert summary(letters) == [("ops", False, ["n2", "n3", "n1"]), ("ops", False, ["backlog"])]


def test_the_first_alarm_of_a_run_waits_a_little_for_others() -> None:
    alarms, told, policy = table(firing("node_silent", "n1")), Told(), Policy(("ops",))
    assert new_letters(alarms, told, policy, [], START + 4999) == []
    assert len(new_letters(alarms, told, policy, [], START + 5000)) == 1
    assert new_letters(alarms, told, policy, [], START + 5001) == []


def test_what_comes_again_and_again_is_told_again_only_after_the_cool_down() -> None:
    told = Told()
    assert new_letters(table(firing("node_silent", "n1")), told, AT_ONCE, [], START)
    again = table(firing("node_silent", "n1"))
    assert new_letters(again, told, AT_ONCE, [], START + 4 * MINUTE) == []
    assert new_letters(again, told, AT_ONCE, [], START + 5 * MINUTE)


def test_a_second_node_that_dies_is_told_at_once() -> None:
    told = Told()
    alarms = table(firing("node_silent", "n1"))
    assert new_letters(alarms, told, AT_ONCE, [], START)
    alarms |= table(firing("node_silent", "n2"), firing("node_silent", "n3"))
    letters = new_letters(alarms, told, AT_ONCE, [], START + MINUTE)
    assert summary(letters) == [("ops", False, ["n2", "n3"]), ("mail", False, ["n2", "n3"])]


def test_hosts_that_refuse_one_after_the_other_are_no_letter_each() -> None:
    told, alarms, policy, told_at = Told(), table(), Policy(("ops",), group_wait_ms=0), []
    for n in range(60):
        alarms |= table(firing("blocked", f"h{n}"))
        if new_letters(alarms, told, policy, [], START + n * 10_000):
            told_at.append(n * 10_000)
    assert told_at == [0, 10_000, 20_000, 300_000, 310_000, 320_000]
    assert sum(alarm.told for alarm in alarms.values()) == 33


def test_a_run_that_ends_with_nothing_done_is_one_letter_not_two() -> None:
    failing = firing("failure_rate", well_ms=START + 2000)
    policy = Policy(("ops",), group_wait_ms=0)

    def told(failures: Alarm) -> list[str]:
        end = Alarm("nothing_done", "books", "", "", START + 2000, State.FIRING)
        end.fired_ms = START + 2000
        letters = new_letters(table(failures, end), Told(), policy, [], START + 2000)
        return [alarm.rule for letter in letters for alarm in letter.alarms]

    assert told(failing) == ["nothing_done"]
    assert sorted(told(firing("failure_rate"))) == ["failure_rate", "nothing_done"], "it goes on"


def test_an_end_is_told_once_and_only_of_what_was_told() -> None:
    told = Told()
    alarms = table(firing("node_silent", "n1"), firing("cpu", "n2"))
    new_letters(table(alarms["node_silent/books/r1/n1"]), told, AT_ONCE, [], START)
    for alarm in alarms.values():
        over(alarm)
    letters = new_letters(alarms, told, AT_ONCE, [], START + MINUTE)
    assert summary(letters) == [("ops", True, ["n1"]), ("mail", True, ["n1"])]
    assert new_letters(alarms, told, AT_ONCE, [], START + 2 * MINUTE) == []


def test_what_fires_again_within_the_cool_down_and_is_over_before_its_end_is_not_told() -> None:
    told = Told()
    first = firing("sink_down", "csv")
    new_letters(table(first), told, AT_ONCE, [], START)
    new_letters(table(over(first)), told, AT_ONCE, [], START + MINUTE)
    again = firing("sink_down", "csv")
    assert new_letters(table(again), told, AT_ONCE, [], START + 2 * MINUTE) == []
    assert new_letters(table(over(again)), told, AT_ONCE, [], START + 3 * MINUTE) == []


@pytest.mark.parametrize(
    ("pattern", "silent"),
    [
        ("*", True),
        ("node_silent", True),
        ("node_silent/books", True),
        ("node_silent/books/r1/n1", True),
        ("*/books", True),
        ("node_silent/shop", False),
        ("node", False),
        ("node_silent/books/r1/n2", False),
    ],
)
def test_a_silence_covers_a_rule_a_job_or_one_alarm_until_its_end(
    pattern: str, silent: bool
) -> None:
    silences = [Silence(pattern, START + MINUTE)]
    alarms = table(firing("node_silent", "n1"))
    assert bool(new_letters(alarms, Told(), AT_ONCE, silences, START)) is not silent
    if silent:
        assert new_letters(alarms, Told(), AT_ONCE, silences, START + MINUTE)


def test_in_quiet_hours_only_the_worst_is_told_and_the_rest_in_the_morning() -> None:
    quiet = Quiet(23 * 60, 7 * 60, Severity.MID, UTC)
    policy = Policy(("ops",), quiet=quiet, group_wait_ms=0)
    told, alarms = Told(), table(firing("node_silent", "n1"), firing("cpu", "n2"))
    night = int(datetime(2027, 2, 2, 3, 0, tzinfo=UTC).timestamp() * 1000)
    morning = int(datetime(2027, 2, 2, 7, 0, tzinfo=UTC).timestamp() * 1000)
    assert summary(new_letters(alarms, told, policy, [], night)) == [("ops", False, ["n1"])]
    assert new_letters(alarms, told, policy, [], morning - 1) == []
    assert summary(new_letters(alarms, told, policy, [], morning)) == [("ops", False, ["n2"])]


def test_routes_go_by_owner_severity_job_and_rule_and_nothing_falls_through() -> None:
    policy = Policy(
        ("ops", "mail", "chat"),
        routes=(Route(("ops",), severity=Severity.HIGH), Route(("chat",), owner="li")),
        group_wait_ms=0,
    )
    assert policy.channels_of(firing("node_silent")) == ["ops"]
    assert policy.channels_of(firing("node_silent", owner="li")) == ["ops", "chat"]
    assert policy.channels_of(firing("cpu", owner="li")) == ["chat"]
    assert policy.channels_of(firing("cpu")) == ["ops", "mail", "chat"]


def settings(**changes: str) -> Any:
    return load_settings(directory=Path("/nowhere"), environ={}, overrides=changes)


def test_a_policy_is_read_from_settings() -> None:
    chosen = settings(
        ALERTS_ROUTES='["severity=high owner=li: ops mail", "*: mail"]',
        ALERTS_QUIET_HOURS="23:00-07:30", ALERTS_TIME_ZONE="Asia/Shanghai",
    )  # fmt: skip
    policy = policy_of(chosen, ["ops", "mail"])
    assert policy.routes == (Route(("ops", "mail"), Severity.HIGH, "li"), Route(("mail",)))
    assert policy.quiet is not None
    assert (policy.quiet.from_minute, policy.quiet.to_minute) == (1380, 450)
    assert policy.cooldown_ms == 300_000


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ALERTS_ROUTES", "severity=high", "is no route"),
        ("ALERTS_ROUTES", "colour=red: ops", "colour"),
        ("ALERTS_ROUTES", "job=books: nobody", "names a channel nobody; there are: ops"),
        ("ALERTS_ROUTES", "rule=sink: ops", "a rule that does not exist"),
        ("ALERTS_ROUTES", "severity=worst: ops", "info, mid or high"),
        ("ALERTS_QUIET_HOURS", "at night", "23:00-07:00"),
        ("ALERTS_QUIET_HOURS", "25:00-07:00", "23:00-07:00"),
    ],
)
def test_a_wrong_policy_says_what_would_be_right(name: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        policy_of(settings(**{name: value}), ["ops"])


def test_a_crawl_without_a_store_says_that_nobody_will_be_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    say_without_store(settings())
    assert caplog.text == ""
    say_without_store(settings(ALERTS_CHANNELS="ops=https://hooks.example/a-secret"))
    assert "ALERTS_CHANNELS: an AirSpider has no store" in caplog.text
    assert "a-secret" not in caplog.text


def test_an_alarm_is_pending_fires_and_is_resolved_after_a_calm_while() -> None:
    holds = {"cpu": 10.0}
    found = [Finding("cpu", "books", "r1", "n1", 0.9)]
    alarms = step({}, found, START, holds)
    (alarm,) = alarms.values()
    assert (alarm.state, alarm.since_ms) == (State.PENDING, START)
    assert step(alarms, [], START + 5000, holds) == {}
    alarms = step(alarms, found, START + 10_000, holds)
    (alarm,) = alarms.values()
    assert (alarm.state, alarm.fired_ms) == (State.FIRING, START + 10_000)
    alarms = step(alarms, [], START + 15_000, holds)
    alarms = step(alarms, found, START + 20_000, holds)
    alarms = step(alarms, [], START + 25_000, holds)
    (alarm,) = step(alarms, [], START + 34_999, holds).values()
    assert alarm.state is State.FIRING
    (alarm,) = step(alarms, [], START + 35_000, holds).values()
    assert (alarm.state, alarm.resolved_ms) == (State.RESOLVED, START + 35_000)


def test_however_much_is_wrong_the_worst_alarms_are_kept() -> None:
    holds = {"cpu": 0.0, "node_silent": 0.0}
    found = [Finding("cpu", "books", "r1", str(n)) for n in range(MOST_ALARMS)]
    found += [Finding("node_silent", "books", "r1", str(n)) for n in range(20)]
    alarms = step({}, found, START, holds)
    assert len(alarms) == MOST_ALARMS
    assert sum(alarm.rule == "node_silent" for alarm in alarms.values()) == 20
