"""What `orbweb alerts list|rules|silence|unsilence` do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from orbweb.alarms.desk import ROLE, silence_of
from orbweb.alarms.judge import Docket, decode
from orbweb.alarms.notices import Letter, Silence
from orbweb.alarms.post import letter_data
from orbweb.alarms.rules import RULES, Limits, limits_of
from orbweb.alarms.states import Alarm, State
from orbweb.alarms.texts import TEXTS, Language
from orbweb.alarms.wording import end_line, line
from orbweb.cli import show
from orbweb.cli.acts import Asked, near, say_undo, unknown
from orbweb.cli.store import ask, existing_store
from orbweb.errors import ConfigError, OrbwebError
from orbweb.frontier.notes import NoteBook, NoteKind
from orbweb.frontier.roles import Role
from orbweb.frontier.servers import reach
from orbweb.model.rate import span_text
from orbweb.settings import Settings

LANGUAGES = ("en", "zh")
STALE_MS = 60_000
"""When the fleet was judged longer ago, nobody watches it."""

LONGEST_SILENCE_MS = 30 * 86_400_000


def list_alarms(settings: Settings, language: str, *, everything: bool, as_json: bool) -> None:
    """The alarms as the watch has put them down last."""
    if language not in LANGUAGES:
        raise ConfigError(f"--lang {language}: right would be en or zh")
    lang = cast(Language, language)
    docket, silences, now_ms = _ask(settings, _read)
    limits = limits_of({**settings, **docket.in_force})
    states = set(State) if everything else {State.FIRING}
    found = sorted(
        (alarm for alarm in docket.alarms.values() if alarm.state in states),
        key=lambda alarm: (alarm.state is State.RESOLVED, -alarm.severity.rank, alarm.since_ms),
    )
    live = [silence for silence in silences if silence.until_ms > now_ms]
    if as_json:
        show.as_json(
            {
                "judged_ms": docket.judged_ms,
                "watched": now_ms - docket.judged_ms < STALE_MS,
                "in_force": docket.in_force,
                "alarms": [_record(alarm, live, limits, lang, now_ms) for alarm in found],
                "silences": [_silence_record(silence) for silence in live],
                "undelivered": [
                    {"channel": letter.channel, "tries": letter.tries, "error": letter.error}
                    for letter in docket.letters
                    if letter.tries
                ],
            }
        )
        return
    if not found:
        print("no alarm" if everything else "no alarm fires")
    for alarm in found:
        silent = next((each for each in live if each.covers(alarm, now_ms)), None)
        said = end_line if alarm.state is State.RESOLVED else line
        pending = "(pending) " if alarm.state is State.PENDING else ""
        print(f"{pending}{said(alarm, limits, lang)}{' · silenced' if silent else ''}")
    for silence in live:
        left = show.duration((silence.until_ms - now_ms) / 1000)
        why = f": {silence.reason}" if silence.reason else ""
        show.note(f"silence: {silence.pattern} for another {left}, by {silence.by}{why}")
    for letter in docket.letters:
        if letter.tries:
            show.note(f"not delivered to {letter.channel}, {letter.tries} tries: {letter.error}")
    _say_who_watches(docket, now_ms)


def _say_who_watches(docket: Docket, now_ms: int) -> None:
    if not docket.judged_ms:
        show.note("nobody has judged this fleet yet; a node does, or: orbweb alerts watch")
    elif now_ms - docket.judged_ms >= STALE_MS:
        ago = show.duration((now_ms - docket.judged_ms) / 1000)
        show.note(f"as of {ago} ago: nobody watches now; a node does, or: orbweb alerts watch")


def rules(settings: Settings, *, as_json: bool) -> None:
    """All rules with their thresholds."""
    limits = limits_of(settings)
    if as_json:
        show.as_json(
            [
                {
                    "rule": rule.name,
                    "severity": str(rule.severity),
                    "setting": rule.setting,
                    "threshold": limits.of(rule.name),
                    "for_seconds": limits.holds[rule.name],
                    "on": limits.of(rule.name) > 0,
                    "hidden_by": list(rule.hidden_by),
                    "act": TEXTS[rule.name].act,
                    "undo": TEXTS[rule.name].undo,
                }
                for rule in RULES.values()
            ]
        )
        return
    show.as_table(
        ("RULE", "SEVERITY", "THRESHOLD", "FOR", "SETTING"),
        [
            (
                rule.name,
                str(rule.severity),
                _threshold(limits.of(rule.name), rule.unit),
                f"{limits.holds[rule.name]:g} s" if limits.holds[rule.name] else "",
                rule.setting,
            )
            for rule in RULES.values()
        ],
    )


def _threshold(value: float, unit: str) -> str:
    if value <= 0:
        return "off"
    return f"{value:.3g} of 1" if unit == "%" else f"{value:g} {unit}".rstrip()


def silence(settings: Settings, pattern: str, asked: Asked) -> None:
    """Tell nobody of some alarms for a time."""
    pattern = _pattern(pattern)
    if not 0 < asked.for_ms <= LONGEST_SILENCE_MS:
        raise ConfigError(f"--for {asked.span}: a silence lasts up to 30d")
    if not asked.reason.strip():
        raise ConfigError("--reason must say something")

    async def act(notes: NoteBook, _: Role) -> int:
        until_ms = await notes.now_ms() + asked.for_ms
        said = {"until_ms": until_ms, "by": asked.author.by, "reason": asked.reason}
        await notes.leave(NoteKind.SILENCE, pattern, said)
        return until_ms

    until_ms = _ask(settings, act)
    print(f"{pattern}: nobody is told for {span_text(asked.for_ms)}, until {show.moment(until_ms)}")
    _, _, job = pattern.partition("/")
    job = job.partition("/")[0]
    jobs = {info.job for info in ask(settings, lambda admin: admin.runs())}
    if job not in ("", "*") and job not in jobs:
        unknown(f"job {job}", job, jobs)
    say_undo(asked, ["alerts", "unsilence", pattern])


def unsilence(settings: Settings, pattern: str, asked: Asked) -> None:
    """End a silence before its time."""
    pattern = _pattern(pattern)

    async def act(notes: NoteBook, _: Role) -> tuple[Silence | None, int]:
        now_ms = await notes.now_ms()
        known = {note.name: silence_of(note) for note in await notes.read(NoteKind.SILENCE)}
        await notes.take_back(NoteKind.SILENCE, pattern)
        return known.get(pattern), now_ms

    was, now_ms = _ask(settings, act)
    if was is None or was.until_ms <= now_ms:
        print(f"{pattern} was not silenced: nothing was done")
        return
    print(f"{pattern}: people are told again")
    left = f"{max(1, (was.until_ms - now_ms) // 1000)}s"
    say_undo(
        asked,
        ["alerts", "silence", pattern, "--for", left, "--reason", was.reason or "again"],
    )


def _pattern(text: str) -> str:
    """`all` or the beginning of an alarm's key. Raises `ConfigError` for a rule that is none."""
    if text in ("all", "*"):
        return "*"
    rule = text.partition("/")[0]
    if rule != "*" and rule not in RULES:
        hint = near(rule, RULES) or f"; there are: {', '.join(RULES)}, or all"
        raise ConfigError(f"there is no rule {rule}{hint}")
    return text


def _record(
    alarm: Alarm, silences: list[Silence], limits: Limits, lang: Language, now_ms: int
) -> dict[str, Any]:
    letter = Letter("", "", alarm.state is State.RESOLVED, [alarm])
    (data,) = cast(list[dict[str, Any]], letter_data(letter, limits, lang)["alarms"])
    silenced = any(silence.covers(alarm, now_ms) for silence in silences)
    return {**data, "told": alarm.told, "silenced": silenced}


def _silence_record(silence: Silence) -> dict[str, Any]:
    return {
        "pattern": silence.pattern,
        "until_ms": silence.until_ms,
        "by": silence.by,
        "reason": silence.reason,
    }


async def _read(notes: NoteBook, role: Role) -> tuple[Docket, list[Silence], int]:
    kept = await role.recorded()
    silences = [silence_of(note) for note in await notes.read(NoteKind.SILENCE)]
    return _docket(kept), silences, await notes.now_ms()


def _docket(kept: bytes | None) -> Docket:
    """What the judge has put down; a note says when another version did, with which alarms begin
    anew as soon as this one judges."""
    if kept is None:
        return Docket()
    try:
        return decode(kept)
    except OrbwebError as error:
        show.note(f"what the last judge has put down cannot be read: {error}")
        return Docket()


def _ask(settings: Settings, question: Any) -> Any:
    """Ask the store of these settings; nothing is made where none is."""

    async def asked(url: str) -> Any:
        prefix = settings["REDIS_KEY_PREFIX"]
        servers = await reach(url, prefix, settings["STORE_TIMEOUT"])
        try:
            client = servers.of_shard(0)
            return await question(NoteBook(client, prefix), Role(client, prefix, ROLE))
        finally:
            await servers.aclose()

    with existing_store(settings, Path.cwd()) as url:
        return asyncio.run(asked(url))
