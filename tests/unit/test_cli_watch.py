"""What `orbweb nodes` calls the state of a node."""

from __future__ import annotations

import json

import pytest

from orbweb.cli.watch import node_word
from orbweb.frontier.admin import NodeInfo
from orbweb.frontier.base import RunState, Status


@pytest.mark.parametrize(
    ("state", "silent_ms", "said", "word"),
    [
        (RunState.RUNNING, 2_000, {}, "working"),
        (RunState.RUNNING, 2_000, {"stopping": True}, "stopping"),
        (RunState.RUNNING, 30_000, {"stopping": True}, "silent"),
        (RunState.RUNNING, 2_000, {"stopping": True, "ended": True}, "ended"),
        (RunState.RUNNING, 30_000, {"ended": True}, "ended"),
        (RunState.DONE, 30_000, {}, "ended"),
    ],
)
def test_a_node_works_stops_is_silent_or_has_ended(
    state: RunState, silent_ms: int, said: dict[str, bool], word: str
) -> None:
    assert node_word(Status(state), NodeInfo("n", silent_ms, json.dumps(said).encode())) == word


def test_what_cannot_be_read_says_nothing() -> None:
    for beat in (b"", b"{", b"[1]"):
        assert node_word(Status(RunState.RUNNING), NodeInfo("n", 0, beat)) == "working"
