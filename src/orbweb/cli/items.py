"""What `items failed|replay|drop|quality` do with items that the store knows of."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orbweb.cli import show
from orbweb.cli.options import overrides
from orbweb.cli.store import ask, existing_store, question_at
from orbweb.cli.target import load_spider, make_spider
from orbweb.cli.watch import run_name
from orbweb.engine.shutdown import ExitCode
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.frontier.items import FailedItem
from orbweb.kafka.envelope import decode
from orbweb.log import mask_secrets
from orbweb.model.item import ItemRecord, Origin
from orbweb.model.reasons import Reason
from orbweb.monitor.quality import total
from orbweb.pipelines.buffer import ItemBuffer, Rejected
from orbweb.settings import Settings
from orbweb.settings.log import configure_log
from orbweb.spiders.build import Start, settings_of
from orbweb.spiders.distributed import Spider
from orbweb.spiders.load import load_pipelines

LONGEST_ERROR = 160
"""Characters of an error that a list shows; `--json` shows all."""

REPLAY_SECONDS = 60.0
"""How long pipelines may take to answer for what is replayed."""


def list_failed(
    settings: Settings, job: str, run: str | None, limit: int, *, as_json: bool
) -> None:
    """Print failed items, the oldest first."""
    info, failed = ask(settings, lambda admin: _find(admin, job, run, ()))
    shown = failed[: limit or None]
    if as_json:
        show.as_json({"job": info.job, "run": info.run, "items": [_record(one) for one in shown]})
        return
    if not failed:
        print(f"no failed items in {job} · run {run_name(info.run)}")
        if info.status.dead and Reason.ITEM_REJECTED in info.status.reasons:
            show.note(
                "pages that failed because of an item: "
                f"orbweb failed list {job} --reason {Reason.ITEM_REJECTED}"
            )
        return
    print(f"{show.counted(len(failed), 'failed item')} in {job} · run {run_name(info.run)}")
    for one in shown:
        error = (mask_secrets(one.error).splitlines() or [""])[0][:LONGEST_ERROR]
        pipeline = one.pipeline.rpartition(".")[2]
        print(f"  {one.key}  {show.moment(one.at_ms)}  {one.table}  {pipeline}  {error}")
    if len(failed) > len(shown):
        print(f"  … and {show.number(len(failed) - len(shown))} more (--limit 0 shows all)")
    show.note("next: correct the cause, then orbweb items replay SPIDER --all")


def replay(
    target: str,
    run: str | None,
    keys: Sequence[str],
    changes: Sequence[str] | None,
    store: str | None,
    everything: bool,
) -> int:
    """Send failed items to the pipelines that refused them; exit code 1 when some fail again."""
    _refuse_unclear(keys, everything)
    spider = make_spider(load_spider(target), {})
    if not isinstance(spider, Spider):
        raise ConfigError(f"{spider.name} keeps nothing in a store, so it has no failed items")
    settings = settings_of(spider, Start(overrides(changes, store)))
    configure_log(settings)
    pipelines = load_pipelines(spider, settings)
    run = run if run is not None else settings["RUN_ID"] or None

    async def act(admin: Admin) -> int:
        info, failed = await _find(admin, spider.redis_key, run, keys)
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


def drop_failed(
    settings: Settings,
    job: str,
    run: str | None,
    keys: Sequence[str],
    *,
    everything: bool,
    yes: bool,
) -> None:
    """Forget failed items."""
    _refuse_unclear(keys, everything)
    info, failed = ask(settings, lambda admin: _find(admin, job, run, keys))
    if not failed:
        print(f"no such failed items in {job} · run {run_name(info.run)}")
        return
    if not show.agree(f"forget {show.counted(len(failed), 'failed item')}?", yes):
        return
    ids = [one.id for one in failed]
    ask(settings, lambda admin: admin.items(info).drop_failed(ids))
    print(f"{show.counted(len(ids), 'failed item')} forgotten")


def show_quality(settings: Settings, job: str, run: str | None, *, as_json: bool) -> None:
    """Print what the items of a run look like, field by field."""

    async def look(admin: Admin) -> tuple[RunInfo, dict[str, bytes]]:
        info = await admin.find(job, run)
        return info, await admin.items(info).told()

    info, told = ask(settings, look)
    tally = total(told.values())
    fields = [
        {
            "table": table,
            "field": field,
            "missing": round(tally.missing_rate(table, field), 6),
            "types": dict(sorted(found.kinds.items(), key=lambda kind: -kind[1])),
        }
        for table, count in sorted(tally.tables.items())
        for field, found in sorted(count.fields.items())
    ]
    if as_json:
        counts = {"items": tally.items, "duplicates": round(tally.duplicate_rate, 6)}
        show.as_json({"job": info.job, "run": info.run, **counts, "fields": fields})
        return
    print(
        f"{show.counted(tally.items, 'item')}, {tally.duplicate_rate:.2%} duplicates"
        f" · {job} · run {run_name(info.run)}"
    )
    if fields:
        show.as_table(
            ("table", "field", "missing", "types"),
            [
                (one["table"], one["field"], f"{one['missing']:.2%}", _types(one["types"]))
                for one in fields
            ],
        )


def _types(kinds: Any) -> str:
    return ", ".join(f"{kind} {show.number(count)}" for kind, count in kinds.items())


def _refuse_unclear(keys: Sequence[str], everything: bool) -> None:
    if not keys and not everything:
        raise ConfigError("which ones? Give keys (see `orbweb items failed JOB`) or --all")
    if keys and everything:
        raise ConfigError("--all and keys exclude each other")


async def _find(
    admin: Admin, job: str, run: str | None, keys: Sequence[str]
) -> tuple[RunInfo, list[FailedItem]]:
    """The failed items of a run whose keys begin with one of these; all when none are given."""
    info = await admin.find(job, run)
    failed = await admin.items(info).failed()
    for key in keys:
        if not any(one.key.startswith(key) for one in failed):
            raise ConfigError(f"no failed item of {job} has a key that begins with {key}")
    return info, [one for one in failed if not keys or one.key.startswith(tuple(keys))]


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
        await buffer.wait_for_room()
        origin = Origin(
            epoch,
            one.request_id,
            "replay",
            decode(one.envelope).version,
            one.part,
            complete=False,
        )
        waiting[one.id] = buffer.submit([_as_record(one)], origin)
    if waiting:
        await asyncio.wait(waiting.values(), timeout=REPLAY_SECONDS)
    for id, answer in waiting.items():
        if not answer.done():
            again[id] = f"no answer in {REPLAY_SECONDS:.0f} s: {buffer.troubles}"
        elif rejected := answer.result():
            again[id] = str(rejected[0].error)
    return again


def _as_record(one: FailedItem) -> ItemRecord:
    envelope = decode(one.envelope)
    return ItemRecord(
        one.key,
        one.table,
        dict(envelope.row),
        envelope.update_keys,
        (one.pipeline,),
        one.unique,
    )


def _record(one: FailedItem) -> dict[str, Any]:
    row = dict(decode(one.envelope).row) if one.envelope else None
    return {
        "key": one.key,
        "table": one.table,
        "pipeline": one.pipeline,
        "error": mask_secrets(one.error),
        "at": one.at_ms,
        "url": mask_secrets(one.url),
        "request": one.request_id,
        "item": row,
    }
