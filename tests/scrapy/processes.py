"""Workers of `tests.scrapy.worker`, and the tree of pages that they crawl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.scrapy.site import Hit, Page, links

ROOT = Path(__file__).parents[2]


def tree(pages: int, delay: float = 0.0, fan: int = 3) -> Any:
    """A site of pages 0 to `pages` - 1, each linked by one other."""

    def answer(hit: Hit) -> Page:
        number = int(hit.path.strip("/") or 0)
        children = range(number * fan + 1, min(number * fan + fan + 1, pages))
        return links(*(f"/{child}" for child in children))._replace(delay=delay)

    return answer


def start_worker(kind: str, site: str, settings: dict[str, Any]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.scrapy.worker", kind, site, json.dumps(settings)]
    return subprocess.Popen(
        command,
        env=environment,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
