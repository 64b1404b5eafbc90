"""Every reason says in both languages what happened and what to do."""

from __future__ import annotations

import pytest

from orbweb.model.reasons import Reason


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_text_and_advice_in_both_languages(reason: Reason) -> None:
    for text in (reason.text(), reason.advice()):
        assert text.isascii()
        assert text
    for text in (reason.text("zh"), reason.advice("zh")):
        assert any("\u4e00" <= mark <= "\u9fff" for mark in text)
    assert reason.advice().endswith(".")
    assert reason.phase in ("not taken", "waiting", "ended")


def test_no_two_reasons_say_the_same() -> None:
    for lang in ("en", "zh"):
        assert len({reason.text(lang) for reason in Reason}) == len(Reason)


def test_a_reason_is_the_word_that_is_stored() -> None:
    assert Reason("robots_disallowed") is Reason.ROBOTS_DISALLOWED
    assert f"{Reason.DONE}" == "done"
    assert all(reason == reason.name.lower() for reason in Reason)


def test_what_may_go_better_by_itself_is_retryable() -> None:
    assert Reason.TIMEOUT.retryable
    assert Reason.ROBOTS_UNREACHABLE.retryable
    assert not Reason.BAD_URL.retryable
    assert not Reason.ROBOTS_DISALLOWED.retryable
    assert not Reason.DONE.retryable
