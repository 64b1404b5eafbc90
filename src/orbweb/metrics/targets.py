"""Which nodes have a scrape target of their own, in the form in which Prometheus discovers them."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from orbweb.frontier.overview import StoreView
from orbweb.metrics.fleet import ALIVE_MS

FILE = "orbweb_nodes.json"

LOOPBACK = ("127.", "localhost", "::1")


class Target(TypedDict):
    """A group of targets, as in `file_sd_configs` and `http_sd_configs`."""

    targets: list[str]
    labels: dict[str, str]


def address(host: str, port: int) -> str:
    """What a node tells of its target: the name of its machine, where it can be reached by that."""
    if not host.startswith(LOOPBACK):
        host = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def targets_of(view: StoreView) -> list[Target]:
    """Targets of the nodes that spoke within the last minute.

    Without labels: the nodes' metrics carry those, and Prometheus would have to rename one of two.
    """
    found = sorted(
        str(told)
        for run in view.runs
        for node in run.nodes
        if node.silent_ms < ALIVE_MS and (told := node.said.get("metrics"))
    )
    return [Target(targets=found, labels={})] if found else []


def write_targets(folder: Path, targets: Sequence[Target]) -> Path:
    """Write the file that `file_sd_configs` names; it is replaced as a whole."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    part = path.with_suffix(".json.part")
    part.write_text(json.dumps(targets, indent=2) + "\n", encoding="utf-8")
    os.replace(part, path)
    return path
