"""scrapy-redis's own tests against Orbweb's package, but for those in upstream_differences.toml."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from tests.scrapy import upstream

ROOT = Path(__file__).parents[2]
DIFFERENCES = tomllib.loads(Path(__file__).with_name("upstream_differences.toml").read_text())
TESTS = {"head": 59, upstream.RELEASE: 49}


@pytest.fixture
def archive(request: pytest.FixtureRequest) -> Path:
    try:
        return upstream.source(request.config)
    except upstream.NoArchiveError as error:
        pytest.skip(f"the source archive of scrapy-redis cannot be had: {error}")


def outcomes(archive: Path, report: Path, port: int) -> dict[str, str]:
    """What became of each test, by its name."""
    deprecated = "error::scrapy.exceptions.ScrapyDeprecationWarning"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.scrapy.alias_plugin"]
    command += ["-p", "no:randomly", "-p", "no:cacheprovider", "-c", os.devnull]
    command += ["--rootdir", str(archive), "-W", deprecated, f"--junitxml={report}", "tests"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "REDIS_HOST": "127.0.0.1",
        "REDIS_PORT": str(port),
    }
    done = subprocess.run(
        command, cwd=archive, env=environment, capture_output=True, text=True, timeout=100
    )
    assert report.exists(), done.stdout + done.stderr
    cases = ElementTree.parse(report).iter("testcase")
    return {
        f"{case.get('classname')}::{case.get('name')}": (
            "passed" if len(case) == 0 else f"{case[0].tag}: {case[0].get('message')}"
        )
        for case in cases
    }


def test_every_test_passes_that_is_no_known_difference(
    archive: Path, tmp_path: Path, tcp_store: int
) -> None:
    found = outcomes(archive, tmp_path / "report.xml", tcp_store)
    assert len(found) in TESTS.values()
    failed = {name: why for name, why in found.items() if why != "passed"}
    unknown = {name: why for name, why in failed.items() if name not in DIFFERENCES}
    assert not unknown
    passing = {name for name in DIFFERENCES if found.get(name) == "passed"}
    assert not passing, "no longer a difference"
