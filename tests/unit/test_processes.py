"""What the test suite's own runner makes of tests that fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.processes import REAL_TIME, SLOW_FIRST

ROOT = Path(__file__).parents[2]

FAILS_ONCE = """
from pathlib import Path

def test_it():
    before = Path("before")
    assert before.exists() or before.touch()
"""
FAILS = "def test_it():\n    assert not 'at all'\n"
PASSES = "def test_it():\n    pass\n"


def run(directory: Path, **modules: str) -> subprocess.CompletedProcess[str]:
    """Run a suite of one module a folder."""
    (directory / "pytest.ini").touch()
    for folder, text in modules.items():
        path = directory / "tests" / folder / f"test_{folder}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    environment.pop("ORBWEB_TEST_SHARED_RUN", None)
    return subprocess.run(
        [sys.executable, "-m", "tests.processes"],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_suite_that_passes(tmp_path: Path) -> None:
    done = run(tmp_path, unit=PASSES, live=PASSES)
    assert done.returncode == 0, done.stdout
    assert "2 passed, 0 failed, 0 error, 0 skipped" in done.stdout


def test_what_failed_beside_others_may_pass_alone_and_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, unit=PASSES, live=FAILS_ONCE)
    assert done.returncode == 0, done.stdout
    assert "failed beside other tests and passed alone:\n  tests/live/test_live.py" in done.stdout


def test_what_fails_alone_too_has_failed(tmp_path: Path) -> None:
    done = run(tmp_path, unit=PASSES, live=FAILS)
    assert done.returncode == 1
    assert "once more" in done.stdout
    assert "passed alone" not in done.stdout


def test_what_needs_no_clock_has_no_second_chance(tmp_path: Path) -> None:
    done = run(tmp_path, unit=FAILS_ONCE, live=PASSES)
    assert done.returncode == 1
    assert "once more" not in done.stdout


def test_many_failures_are_no_chance(tmp_path: Path) -> None:
    done = run(tmp_path, live=FAILS_ONCE + "\n".join(f"def test_{n}(): assert 0" for n in range(3)))
    assert done.returncode == 1
    assert "once more" not in done.stdout


def test_folders_are_there() -> None:
    folders = {path.name for path in ROOT.joinpath("tests").iterdir()}
    assert folders.issuperset({*REAL_TIME, *SLOW_FIRST})
