"""What a command loads before it works: every start pays for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import typer
from tests.commands import flags, leaves, wanted
from typer.main import get_command

from orbweb.cli.app import app
from orbweb.cli.program import program
from orbweb.cli.values import READERS, Plain

HEAVY = (
    "aiohttp",
    "lxml",
    "orbweb.engine.engine",
    "orbweb.spiders.build",
    "parsel",
    "pydantic",
    "rich",
    "sqlalchemy",
    "uvloop",
)
"""What no command needs that only reads."""
STORE = ("asyncio", "msgspec", "redis")
"""What a command needs only to ask a store."""
RUNS = """
import contextlib, io, json, sys
from orbweb.cli import main

lines, watched = json.loads(sys.stdin.read())
loaded = {}
for line in lines:
    before = {name for name in watched if name in sys.modules}
    sys.argv = ["orbweb", *line]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit):
            main()
    loaded[" ".join(line)] = [n for n in watched if n in sys.modules and n not in before]
json.dump(loaded, sys.stdout)
"""
NEED_MORE = {
    *("alerts test", "batches", "check", "doctor", "fetch", "ledger", "migrate", "parse"),
}
"""Commands with `--json` that load a spider, fetch, open a database, or look if all is there."""


def loaded(directory: Path, lines: Sequence[Sequence[str]], watched: Sequence[str]) -> list[str]:
    """Which of these modules came with which of these command lines, run one after another."""
    done = subprocess.run(
        [sys.executable, "-c", RUNS],
        input=json.dumps([list(map(list, lines)), list(watched)]),
        capture_output=True,
        text=True,
        check=True,
        cwd=directory,
    )
    found: Mapping[str, list[str]] = json.loads(done.stdout)
    assert len(found) == len({tuple(line) for line in lines})
    return [f"orbweb {line}: {name}" for line, names in found.items() for name in names]


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    lines = [("--help",), ("--version",), *((*words, "--help") for words, _ in leaves())]
    assert len(lines) > 40
    assert loaded(tmp_path, lines, [*HEAVY, *STORE]) == []


def test_commands_that_read_load_only_what_they_read_with(tmp_path: Path) -> None:
    lines = [
        (*words, *wanted(command), "--json")
        for words, command in leaves()
        if "--json" in flags(command) and not {words[0], " ".join(words)} & NEED_MORE
    ]
    assert len(lines) > 15
    assert loaded(tmp_path, lines, HEAVY) == []


def test_what_needs_no_store_loads_no_client_of_it(tmp_path: Path) -> None:
    lines = [("settings",), ("version",), ("log",)]
    assert loaded(tmp_path, lines, ("redis", "asyncio")) == []


def test_a_command_line_makes_only_its_own_command() -> None:
    assert list(program(app, ["explain", "http://a.example/"]).commands) == ["explain"]
    assert list(program(app, ["items", "list"]).commands) == ["items"]


@pytest.mark.parametrize("line", [[], ["--help"], ["explian"]])
def test_without_a_command_all_are_listed(line: list[str]) -> None:
    whole = get_command(app).commands  # type: ignore[attr-defined]
    listed = program(app, line).commands
    assert list(listed) == list(whole)
    assert [one.get_short_help_str() for one in listed.values()] == [
        one.get_short_help_str() for one in whole.values()
    ]


def test_the_list_of_commands_has_sections_and_each_command_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        program(app, ["--help"])(["--help"], prog_name="orbweb")
    lines = capsys.readouterr().out.splitlines()
    listed = [line.split()[0] for line in lines[lines.index("Write:") :] if line.startswith("  ")]
    visible = [name for name, each in get_command(app).commands.items() if not each.hidden]  # type: ignore[attr-defined]
    assert sorted(listed) == sorted(visible)
    assert lines.index("Write:") < lines.index("Run:") < lines.index("Care:")


class Declared:
    """A parameter with one value, between 1 and 5."""

    min, max, multiple, nargs = 1, 5, False, 1


@pytest.mark.parametrize(
    ("text", "said"),
    [("x", "not a whole number"), ("0", "less than 1"), ("6", "more than 5"), ("1.5", "whole")],
)
def test_a_value_that_does_not_fit_is_refused(text: str, said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        Plain(READERS[int], Declared).coerce(text, Declared, None)
    assert Plain(READERS[int], Declared).coerce("5", Declared, None) == 5
