"""What `orbweb items replay` does: failed items go to the pipelines that refused them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from orbweb.cli import show
from orbweb.cli.items import LONGEST_ERROR, find_failed, refuse_unclear
from orbweb.cli.options import overrides
from orbweb.cli.store import existing_store, question_at
from orbweb.cli.target import load_spider, make_spider
from orbweb.engine.shutdown import ExitCode
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin
from orbweb.frontier.items import FailedItem
from orbweb.kafka.envelope import Envelope, UnreadableMessage, decode
from orbweb.log import mask_secrets
from orbweb.model.item import ItemRecord, Origin
from orbweb.pipelines.buffer import ItemBuffer, Rejected
from orbweb.settings.log import configure_log
from orbweb.spiders.distributed import Spider
from orbweb.spiders.load import load_pipelines
from orbweb.spiders.start import Start, settings_of

REPLAY_SECONDS = 60.0
"""How long pipelines may take to answer for what is replayed."""


def replay(
    target: str,
    run: str | None,
    keys: Sequence[str],
    changes: Sequence[str] | None,
    store: str | None,
    everything: bool,
) -> int:
    """Send failed items to the pipelines that refused them; exit code 1 when some fail again."""
    refuse_unclear(keys, everything)
    spider = make_spider(load_spider(target), {})
    if not isinstance(spider, Spider):
        raise ConfigError(f"{spider.name} keeps nothing in a store, so it has no failed items")
    settings = settings_of(spider, Start(overrides(changes, store)))
    configure_log(settings)
    pipelines = load_pipelines(spider, settings)
    run = run if run is not None else settings["RUN_ID"] or None

    async def act(admin: Admin) -> int:
        info, failed = await find_failed(admin, spider.redis_key, run, keys)
        buffer = ItemBuffer(pipelines)
        async with asyncio.TaskGroup() as group:
            group.create_task(buffer.run())
            again = await _submit_all(buffer, info.epoch, failed)
            await buffer.close(1.0)
        stored = [one.id for one in failed if one.id not in again]
        await admin.items(info).drop_failed(stored)
        print(f"{show.counted(len(stored), 'item')} stored, {show.number(len(again))} failed again")
        for one in failed:
            if one.id in again:
                show.note(f"  {one.key} {mask_secrets(again[one.id])[:LONGEST_ERROR]}")
        return int(ExitCode.CRASH if again else ExitCode.DONE)

    with existing_store(settings, Path.cwd()) as url:
        return asyncio.run(question_at(url, settings, act))


async def _submit_all(
    buffer: ItemBuffer, epoch: str, failed: Sequence[FailedItem]
) -> dict[str, str]:
    """Send each item where it failed; returns the errors of those that fail again."""
    again: dict[str, str] = {}
    waiting: dict[str, asyncio.Future[list[Rejected]]] = {}
    for one in failed:
        if not one.envelope:
            again[one.id] = f"it cannot be replayed, its values cannot travel: {one.error}"
            continue
        try:
            envelope = decode(one.envelope)
        except UnreadableMessage as error:
            again[one.id] = str(error)
            continue
        await buffer.wait_for_room()
        origin = Origin(epoch, one.request_id, "replay", envelope.version, one.part, complete=False)
        waiting[one.id] = buffer.submit([_as_record(one, envelope)], origin)
    if waiting:
        await asyncio.wait(waiting.values(), timeout=REPLAY_SECONDS)
    for id, answer in waiting.items():
        if not answer.done():
            again[id] = f"no answer in {REPLAY_SECONDS:.0f} s: {buffer.troubles}"
        elif rejected := answer.result():
            again[id] = str(rejected[0].error)
    return again


def _as_record(one: FailedItem, envelope: Envelope) -> ItemRecord:
    return ItemRecord(
        one.key,
        one.table,
        dict(envelope.row),
        envelope.update_keys,
        (one.pipeline,),
        one.unique,
    )
