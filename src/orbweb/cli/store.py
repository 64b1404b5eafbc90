"""The store of a command: which one it is, and a look into it that starts nothing needlessly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin
from orbweb.frontier.embedded import FOLDER, EmbeddedStore
from orbweb.frontier.servers import reach
from orbweb.settings import Settings

T = TypeVar("T")


def ask(settings: Settings, question: Callable[[Admin], Awaitable[T]]) -> T:
    """Answer a question from the store of these settings.

    Raises `ConfigError` when there is no store here, `StoreUnavailable` when it does not answer.
    """
    with existing_store(settings, Path.cwd()) as url:
        return asyncio.run(question_at(url, settings, question))


@contextmanager
def existing_store(settings: Settings, directory: Path) -> Iterator[str]:
    """URL of the store. An embedded one runs as long as the context; none is made where none is."""
    url: str = settings["REDIS_URL"]
    if url:
        yield url
        return
    if not has_data(directory):
        raise ConfigError(
            f"there is no store here: {directory / FOLDER} does not exist and REDIS_URL "
            "(ORBWEB_REDIS_URL in the environment) is not set. Go to the directory where the "
            "spider ran, or name the store with --store URL"
        )
    with EmbeddedStore(directory) as embedded_url:
        yield embedded_url


def has_data(directory: Path) -> bool:
    """Whether an embedded store was ever used in the directory."""
    data = directory / FOLDER / "data"
    return data.is_dir() and any(data.iterdir())


async def question_at(url: str, settings: Settings, question: Callable[[Admin], Awaitable[T]]) -> T:
    """Answer a question from the store at a URL. Raises as `ask` does."""
    prefix = settings["REDIS_KEY_PREFIX"]
    servers = await reach(url, prefix, settings["STORE_TIMEOUT"])
    try:
        return await question(Admin(servers, prefix, shards=settings["FRONTIER_SHARDS"]))
    finally:
        await servers.aclose()
