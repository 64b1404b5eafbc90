"""A project as people have it: in a directory, run by `scrapy crawl`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.scrapy.processes import ROOT, tree
from tests.scrapy.site import Site
from tests.servers import Server

from orbweb.frontier.embedded import EmbeddedStore

SPIDER = """
import scrapy

class Tree(scrapy.Spider):
    name = "tree"
    start_urls = ["SITE/0"]

    def parse(self, response):
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    (tmp_path / "shop" / "spiders").mkdir(parents=True)
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "spiders" / "__init__.py").touch()
    return tmp_path


def write(project: Path, site: Site, **settings: object) -> None:
    (project / "shop" / "spiders" / "tree.py").write_text(SPIDER.replace("SITE", site.url))
    settings = {
        "BOT_NAME": "shop",
        "SPIDER_MODULES": ["shop.spiders"],
        "ADDONS": {"orbweb.adapters.scrapy.Addon": 1},
        "COMMANDS_MODULE": "orbweb.adapters.scrapy.commands",
        "TELNETCONSOLE_ENABLED": False,
        "REMOTE_CONTROL_ENABLED": False,
        **settings,
    }
    lines = [f"{name} = {value!r}\n" for name, value in settings.items()]
    (project / "shop" / "settings.py").write_text("".join(lines))


def scrapy(project: Path, *words: str) -> str:
    """Run a command of the project; returns its log."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "scrapy", *words],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout + done.stderr


def test_stop_after_is_an_option_of_scrapy_crawl(project: Path, store: Server) -> None:
    with Site(tree(40)) as site:
        write(project, site, REDIS_URL=store.url)
        log = scrapy(project, "crawl", "tree", "--stop-after", "7")
        assert len(site.hits) == 7
        assert "'finish_reason': 'stop_after'" in log
        log = scrapy(project, "crawl", "tree")
    assert "Resuming crawl (" in log
    assert len(site.hits) == len(site.counts()) == 40


def test_a_project_needs_no_server_of_its_own(project: Path) -> None:
    with Site(tree(20)) as site:
        write(project, site, ORBWEB_EMBEDDED_STORE=True)
        log = scrapy(project, "crawl", "tree")
    assert "'finish_reason': 'finished'" in log
    assert len(site.hits) == 20
    assert not EmbeddedStore(project).status().running
