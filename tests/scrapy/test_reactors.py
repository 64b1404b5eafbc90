"""Real processes on the asyncio reactor and without one, where deprecations are errors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.scrapy import upstream
from tests.scrapy.crawls import project
from tests.scrapy.processes import ROOT, start_worker, tree
from tests.scrapy.site import Page, Site, links
from tests.servers import Server

MODES = pytest.mark.parametrize("reactor", [True, False], ids=["asyncio", "reactorless"])

CHANGED = """
import warnings

from scrapy.exceptions import ScrapyDeprecationWarning

from orbweb.adapters.scrapy import install_as_scrapy_redis

install_as_scrapy_redis()
warnings.simplefilter("error", ScrapyDeprecationWarning)
warnings.filterwarnings("ignore", message="ExamplePipeline.process_item")  # its own argument
REDIS_URL = {url!r}
TWISTED_REACTOR_ENABLED = {reactor}
TELNETCONSOLE_ENABLED = REMOTE_CONTROL_ENABLED = False
DOWNLOAD_DELAY = 0
ORBWEB_KEEP_ALIVE = False
"""


@MODES
def test_a_worker_crawls_to_the_end_without_a_warning(store: Server, reactor: bool) -> None:
    ours = "orbweb.adapters.scrapy"
    settings = project(
        store,
        TWISTED_REACTOR_ENABLED=reactor,
        ITEM_PIPELINES={f"{ours}.pipelines.RedisPipeline": 1},
        STATS_CLASS=f"{ours}.stats.RedisStatsCollector",
    )
    with Site(tree(60)) as site:
        store.client().rpush("redis_tree:start_urls", f"{site.url}/0", "bad")
        worker = start_worker("redis_tree", "", settings)
        _, log = worker.communicate(timeout=60)
    assert worker.returncode == 0, log
    assert len(site.hits) == len(site.counts()) == 60
    assert store.client().llen("redis_tree:items") == 60
    assert "Deprecat" not in log
    assert log.count("] ERROR: ") == 1  # of the bad entry
    assert "Traceback" not in log
    assert "'finish_reason': 'finished'" in log


@MODES
def test_the_example_project_of_scrapy_redis_runs_with_settings_changed_only(
    request: pytest.FixtureRequest, tmp_path: Path, store: Server, reactor: bool
) -> None:
    try:
        archive = upstream.source(request.config)
    except upstream.NoArchiveError as error:
        pytest.skip(f"the source archive of scrapy-redis cannot be had: {error}")
    example = tmp_path / "example-project"
    shutil.copytree(archive / "example-project", example)
    changed = CHANGED.format(url=store.url, reactor=reactor)
    with (example / "example" / "settings.py").open("a") as settings:
        settings.write(changed)
    pages = {"/": links(*(f"/{n}" for n in range(60)))}
    with Site(lambda hit: pages.get(hit.path, Page())) as site:
        store.client().rpush("mycrawler:start_urls", f"{site.url}/")
        done = subprocess.run(
            [sys.executable, "-m", "scrapy", "crawl", "mycrawler_redis"],
            cwd=example,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    assert len(site.hits) == len(site.counts()) == 61
    items = [json.loads(item) for item in store.client().lrange("mycrawler_redis:items", 0, -1)]
    assert len({item["url"] for item in items}) == len(items) == 60
    assert {item["spider"] for item in items} == {"mycrawler_redis"}
    assert "Traceback" not in done.stderr
