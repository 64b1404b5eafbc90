"""scrapy-redis's own source archive: its tests and its example project. Never copied into here."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

import pytest

HEAD = "d34e9af0b2e479327519f5f2b53dbc282e6ec5a8"
RELEASE = "0.9.1"


class NoArchiveError(Exception):
    """Neither the head nor the release can be had."""


def source(config: pytest.Config) -> Path:
    """Folder with an unpacked archive: the head, or else the latest release.

    `ORBWEB_SCRAPY_REDIS` names one that is there. Downloads are kept beside pytest's cache. Raises
    `NoArchiveError`.
    """
    if named := os.environ.get("ORBWEB_SCRAPY_REDIS"):
        return Path(named)
    cache = config.rootpath / ".pytest_cache" / "scrapy-redis"
    cache.mkdir(parents=True, exist_ok=True)
    if found := _unpacked(cache):
        return found
    try:
        archive = _head(cache)
    except (urllib.error.URLError, OSError):
        archive = _release(cache)
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(cache / "source")
    found = _unpacked(cache)
    assert found is not None
    return found


def _unpacked(cache: Path) -> Path | None:
    return next((path.parent.parent for path in cache.glob("source/*/tests/test_queue.py")), None)


def _head(cache: Path) -> Path:
    url = f"https://codeload.github.com/rmax/scrapy-redis/tar.gz/{HEAD}"
    archive = cache / "head.tar.gz"
    with urllib.request.urlopen(url, timeout=5) as answer:
        archive.write_bytes(answer.read())
    return archive


def _release(cache: Path) -> Path:
    words = ("download", "--no-deps", "--no-binary", ":all:", "--dest", str(cache))
    command = [sys.executable, "-m", "pip", *words, f"scrapy-redis=={RELEASE}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    archives = list(cache.glob("scrapy*redis-*.tar.gz"))
    if not archives:
        raise NoArchiveError(f"{' '.join(command)}: {done.stderr[-300:]}")
    return archives[0]
