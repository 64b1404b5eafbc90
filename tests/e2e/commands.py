"""Commands of `orbweb` in the process of the test: what they print, and how they end."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orbweb.cli import main


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The lines, each of them JSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def undo(self) -> list[list[str]]:
        """The words of the commands that the last remark says."""
        (line,) = (line for line in self.err.splitlines() if line.startswith("undo: "))
        commands = [shlex.split(text) for text in line.removeprefix("undo: ").split(" && ")]
        assert all(words[0] == "orbweb" for words in commands)
        return [words[1:] for words in commands]


Call = Callable[..., Answer]


@contextmanager
def commands(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]
) -> Iterator[Call]:
    """Call commands by their words, in a folder, without settings from outside and a terminal."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    for name in list(os.environ):
        if name.startswith(("ORBWEB_", "NETSPY_")) or name == "REDIS_URL":
            monkeypatch.delenv(name)

    def call(*words: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["orbweb", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capture.readouterr()
        code = ended.value.code
        return Answer(code if isinstance(code, int) else 0, out, err)

    yield call
