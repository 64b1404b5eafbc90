"""What every command owes to whoever types it: an example, and JSON for programs."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from tests.commands import flags, leaves

ACTS = {
    *("run", "crawl", "runspider", "demo", "consume"),
    *("record", "new", "startproject", "genspider", "genitem", "create"),
    *("stop", "reset", "limit", "pause", "resume"),
    *("failed retry", "failed drop", "failed export", "items replay", "items drop"),
    *("dedup forget", "dedup export", "dedup import", "store start", "store stop"),
    *("rates request", "rates approve", "rates revoke", "rates export"),
    *("shell", "view", "bundle", "ledger trim", "tasks push", "metrics serve"),
    *("alerts silence", "alerts unsilence", "alerts watch"),
}
"""Commands that act, whose output is a file, or that are for people alone: all others read."""

COMMANDS = {" ".join(words): command for words, command in leaves()}


def example(command: Any) -> str:
    """The example of a command's help."""
    lines = [line.strip() for line in (command.help or "").splitlines()]
    found = [line.removeprefix("Example: ") for line in lines if line.startswith("Example: ")]
    return found[0] if found else ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_with_an_example(name: str) -> None:
    command = COMMANDS[name]
    words = shlex.split(re.split(r" [|>] ", example(command))[0])
    assert words[:1] == ["orbweb"], f"orbweb {name} --help has no line `Example: orbweb …`"
    own = name.split()
    if not command.hidden:
        assert words[1 : 1 + len(own)] == own
        command.make_context(name, words[1 + len(own) :])


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - ACTS))
def test_every_command_that_reads_can_print_json(name: str) -> None:
    assert "--json" in flags(COMMANDS[name]), f"orbweb {name} reads, so it needs --json"


def test_every_command_that_acts_is_one() -> None:
    assert COMMANDS.keys() >= ACTS


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_does(name: str) -> None:
    short = COMMANDS[name].get_short_help_str(200)
    assert short
    assert "Example" not in short
