"""What is shown of a spider's file that cannot be loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbweb.cli.crash import show_crash
from orbweb.cli.target import load_spider


def shown(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    file = folder / "shop_broken.py"
    file.write_text(text)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever the file raises
        load_spider(str(file))
    show_crash(caught.value)  # type: ignore[arg-type]
    return capsys.readouterr().err


def test_only_lines_of_the_file_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown("def f():\n    1 / 0\nf()\n", tmp_path, capsys)
    assert text.count("  File ") == text.count('shop_broken.py"') == 2
    assert text.endswith("ZeroDivisionError: division by zero\n")


def test_a_syntax_error_is_shown_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown("def f(:\n", tmp_path, capsys)
    assert text.startswith("  File ")
    assert "SyntaxError" in text


def test_an_error_of_our_own_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise KeyError("ours")
    except KeyError as error:
        show_crash(error)
    assert "test_cli_crash.py" in capsys.readouterr().err
