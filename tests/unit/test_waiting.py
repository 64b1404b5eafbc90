"""Why a host waits: which reason wins, and how it is said."""

from __future__ import annotations

from dataclasses import replace

from orbweb.frontier.hosts import Host, Limit, Pause, RunRules, decayed_rate
from orbweb.frontier.hosttable import Best
from orbweb.frontier.waiting import WaitReason, gap_of, why_waits

NOW, CLOCK = 1_700_000_000_000, 50_000
HOST = Host(
    "h",
    NOW,
    CLOCK,
    limit=None,
    pause=None,
    crawl_delay_ms=0,
    ceiling_ms=None,
    ceiling_until_ms=0,
    clamped=0,
    taken=0,
    rate=0,
    good=0,
    bad=0,
    streak=0,
    opens=0,
    open_until=0,
    throttle_ms=None,
    held_until=0,
    next_at=0,
    slots=0,
    queued=(1,),
)
RUN = RunRules("job", "", "base", concurrency=2)


def reason(host: Host, *runs: RunRules) -> WaitReason:
    return why_waits(host, runs or (RUN,)).reason


def test_of_several_reasons_an_operators_word_comes_first() -> None:
    host = replace(
        HOST,
        pause=Pause(),
        opens=1,
        open_until=CLOCK + 5000,
        held_until=CLOCK + 4000,
        next_at=CLOCK + 4000,
        slots=2,
    )
    paused = replace(RUN, pause=Pause(NOW + 1))
    assert reason(host, paused) is WaitReason.HOST_PAUSED
    host = replace(host, pause=None)
    assert reason(host, paused) is WaitReason.RUN_PAUSED
    assert reason(host) is WaitReason.CIRCUIT_OPEN
    host = replace(host, opens=0)
    assert reason(host) is WaitReason.HELD_OFF
    assert reason(replace(host, held_until=0)) is WaitReason.DELAY
    assert reason(replace(host, next_at=CLOCK)) is WaitReason.SLOTS
    assert reason(replace(host, next_at=CLOCK, slots=1)) is WaitReason.READY


def test_a_run_that_may_go_on_decides_over_paused_and_silent_ones() -> None:
    host = replace(HOST, queued=(1, 1), slots=3)
    paused, silent = replace(RUN, pause=Pause(), concurrency=1), replace(RUN, alive=False)
    free = replace(RUN, concurrency=0)
    assert reason(host, paused, free) is WaitReason.READY
    assert reason(host, silent, free) is WaitReason.READY
    assert reason(host, silent, paused) is WaitReason.NO_NODE
    assert reason(replace(host, queued=(0, 1)), free, paused) is WaitReason.RUN_PAUSED


def test_the_longest_gap_is_the_one_that_is_told() -> None:
    run = replace(RUN, delay_ms=100, autothrottle_start_ms=300, unapproved_delay_ms=2000)
    assert gap_of(HOST, [run]).reason is WaitReason.UNAPPROVED
    host = replace(HOST, ceiling_ms=250)
    assert gap_of(host, [run])[:2] == (300, WaitReason.THROTTLE)
    host = replace(host, throttle_ms=50)
    assert gap_of(host, [run])[:2] == (250, WaitReason.CEILING)
    host = replace(host, crawl_delay_ms=1000)
    assert gap_of(host, [run])[:2] == (1000, WaitReason.CRAWL_DELAY)
    host = replace(host, limit=Limit(4000, 0, "ann"))
    gap = gap_of(host, [run, replace(RUN, delay_ms=3000)])
    assert (gap.reason, gap.rate, gap.text) == (WaitReason.LIMIT, "15/m", "limit by ann")
    assert gap_of(HOST, []).ms == 0


def test_times_are_told_on_the_servers_clock() -> None:
    host = replace(HOST, next_at=CLOCK + 700)
    assert why_waits(host, [replace(RUN, delay_ms=800)]).until_ms == NOW + 700


def test_a_circuit_that_opened_again_says_how_often() -> None:
    texts = [
        why_waits(replace(HOST, opens=opens, open_until=CLOCK + 1), [RUN]).text
        for opens in (2, 3, 11, 21)
    ]
    assert texts == [f"circuit open for the {nth} time" for nth in ("2nd", "3rd", "11th", "21st")]


def test_a_rate_fades_with_its_half_life() -> None:
    steady = 1000 * 30 / 0.6931471805599453
    assert round(decayed_rate(steady, 0, 0), 6) == 1
    assert round(decayed_rate(steady, 0, 30_000), 6) == 0.5
    assert decayed_rate(steady, 10, 0) == decayed_rate(steady, 0, 0)


def test_the_best_are_kept_among_many() -> None:
    best = Best(3)
    for n in range(1000):
        best.offer(f"h{n}", n * 7 % 1000)
    assert best.names() == ["h857", "h714", "h571"]
    assert best.floor > 900
    everything = Best(0)
    for n in range(1000):
        everything.offer(f"h{n}", n)
    assert len(everything.names()) == 1000
    assert everything.floor < 0
