"""What `store start|stop|status` do with the embedded server of the working directory."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from orbweb.cli import show
from orbweb.cli.store import has_data
from orbweb.frontier.embedded import EmbeddedStore


def start() -> None:
    """Start the server and keep it."""
    store = EmbeddedStore(Path.cwd())
    url = store.keep()
    print(f"the store runs (process {store.status().pid}): {url}")
    show.note("undo: orbweb store stop")


def stop(*, yes: bool) -> None:
    """Stop the server; ask first when somebody uses it."""
    store = EmbeddedStore(Path.cwd())
    if store.status().in_use and not show.agree(
        "Running spiders use this store; they will wait until it is back. Stop it?", yes
    ):
        print("nothing was done")
        return
    if not store.stop():
        print("no store runs here")
        return
    print("the store is stopped; its data is on disk")
    show.note("undo: orbweb store start")


def status(*, as_json: bool) -> None:
    """Say whether the server runs."""
    store = EmbeddedStore(Path.cwd())
    found = store.status()
    if as_json:
        show.as_json(
            {**asdict(found), "answer": found.answer.value, "has_data": has_data(Path.cwd())}
        )
    elif found.running:
        users = "in use" if found.in_use else "not in use"
        kept = ", kept until `orbweb store stop`" if found.kept else ""
        memory = f"{found.memory_bytes / 2**20:.1f} MiB"
        print(f"running (process {found.pid}, {found.answer.value}, {users}{kept})")
        print(f"Valkey {found.version}, {memory} of memory, {found.url}")
    elif has_data(Path.cwd()):
        print(f"not running; its data is in {store.folder}")
    else:
        print("there is no store here; the first `orbweb run` makes one")
