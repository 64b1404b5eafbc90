"""An alarm in words: is it broken, since when, the smallest safe action, how to undo it."""

from __future__ import annotations

import time
from typing import NamedTuple

from orbweb.alarms.rules import RULES, Limits, Severity
from orbweb.alarms.states import Alarm
from orbweb.alarms.texts import TEXTS, Language
from orbweb.log import mask_secrets

LONGEST_DETAIL = 300

_SEVERITIES = {
    Severity.INFO: ("INFO", "提示"),
    Severity.MID: ("MID", "中"),
    Severity.HIGH: ("HIGH", "高"),
}
_UNITS = ((86_400, "d", "天"), (3600, "h", "小时"), (60, "m", "分"), (1, "s", "秒"))


class Wording(NamedTuple):
    """An alarm as people read it."""

    wrong: str
    act: str
    undo: str
    note: str


def wording(alarm: Alarm, limits: Limits, lang: Language = "en") -> Wording:
    """What is wrong and what to do. Passwords in what was found are masked."""
    text, zh = TEXTS[alarm.rule], lang == "zh"
    unit = RULES[alarm.rule].unit
    fields = {
        "subject": alarm.subject,
        "detail": mask_secrets(alarm.detail)[:LONGEST_DETAIL],
        "value": _measured(alarm.value, unit, lang),
        "count": _measured(alarm.value, "", lang),
        "limit": _measured(limits.of(alarm.rule), unit, lang),
        "job": alarm.job or "JOB",
    }
    undo = text.undo.format(**fields) or ("只读命令，无需撤销" if zh else "it only looks")
    wrong = (text.wrong_zh if zh else text.wrong_en).format(**fields).strip()
    note = (text.note_zh if zh else text.note_en).format(**fields)
    return Wording(wrong, text.act.format(**fields), undo, note)


def line(alarm: Alarm, limits: Limits, lang: Language = "en") -> str:
    """The alarm in one line: `[HIGH] books: … since 02:31 · do: … · undo: …`."""
    words, zh = wording(alarm, limits, lang), lang == "zh"
    severity = _SEVERITIES[alarm.severity][zh]
    since = time.strftime("%H:%M", time.localtime(alarm.since_ms / 1000))
    place = _place(alarm)
    if zh:
        return (
            f"【{severity}】{place}{since} 起 {words.wrong} · 先做: {words.act}"
            f"（{words.note}）· 撤销: {words.undo}"
        )
    note = f" ({words.note})" if words.note else ""
    colon = f"{place.strip()}: " if place else ""
    return (
        f"[{severity}] {colon}{words.wrong}, since {since} · do: {words.act}{note}"
        f" · undo: {words.undo}"
    )


def end_line(alarm: Alarm, limits: Limits, lang: Language = "en") -> str:
    """The line that says that it is over."""
    words, place = wording(alarm, limits, lang), _place(alarm)
    lasted = span((alarm.resolved_ms - alarm.since_ms) / 1000, lang)
    if lang == "zh":
        return f"【已恢复】{place}持续 {lasted} · {words.wrong}"
    colon = f"{place.strip()}: " if place else ""
    return f"[RESOLVED] {colon}after {lasted}: {words.wrong}"


def span(seconds: float, lang: Language = "en") -> str:
    """`62 s`, `8 m 20 s`; `8 分 20 秒`."""
    whole = max(0, round(seconds))
    zh = lang == "zh"
    for place, (size, en, han) in enumerate(_UNITS):
        if whole >= size:
            text = f"{whole // size} {han if zh else en}"
            if size > 1 and whole % size // _UNITS[place + 1][0]:
                smaller = _UNITS[place + 1]
                text += f" {whole % size // smaller[0]} {smaller[2] if zh else smaller[1]}"
            return text
    return "0 秒" if zh else "0 s"


def _place(alarm: Alarm) -> str:
    run = f" ({alarm.run})" if alarm.run else ""
    return f"{alarm.job}{run} " if alarm.job else ""


def _measured(value: float, unit: str, lang: Language) -> str:
    if unit == "%":
        return f"{value:.1%}"
    if unit == "s":
        return span(value, lang)
    return f"{value:,.0f}".replace(",", " ")
