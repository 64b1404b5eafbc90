"""What `items failed|drop|quality` do with items that the store knows of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orbweb.cli import show
from orbweb.cli.store import ask
from orbweb.cli.watch import run_name
from orbweb.errors import ConfigError, OrbwebError
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.frontier.items import FailedItem
from orbweb.kafka.envelope import UnreadableMessage, decode
from orbweb.log import mask_secrets
from orbweb.model.reasons import Reason
from orbweb.monitor import quality
from orbweb.monitor.quality import Tally
from orbweb.settings import Settings

LONGEST_ERROR = 160
"""Characters of an error that a list shows; `--json` shows all."""


def list_failed(
    settings: Settings, job: str, run: str | None, limit: int, *, as_json: bool
) -> None:
    """Print failed items, the oldest first."""
    info, failed = ask(settings, lambda admin: find_failed(admin, job, run, ()))
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
    refuse_unclear(keys, everything)
    info, failed = ask(settings, lambda admin: find_failed(admin, job, run, keys))
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
    tally = _readable(told)
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


def _readable(told: Mapping[str, bytes]) -> Tally:
    """The sum of what nodes have told of items; a note names those that another version wrote."""
    tally = Tally()
    for node, counts in told.items():
        try:
            tally.add(quality.decode(counts))
        except OrbwebError as error:
            show.note(f"what node {node} has counted is left out: {error}")
    return tally


def _types(kinds: Any) -> str:
    return ", ".join(f"{kind} {show.number(count)}" for kind, count in kinds.items())


def refuse_unclear(keys: Sequence[str], everything: bool) -> None:
    """Raise `ConfigError` unless either keys or all are asked for."""
    if not keys and not everything:
        raise ConfigError("which ones? Give keys (see `orbweb items failed JOB`) or --all")
    if keys and everything:
        raise ConfigError("--all and keys exclude each other")
    if not all(keys):
        raise ConfigError("a key is empty, which would mean all: --all says so")


async def find_failed(
    admin: Admin, job: str, run: str | None, keys: Sequence[str]
) -> tuple[RunInfo, list[FailedItem]]:
    """The failed items of a run whose keys begin with one of these; all when none are given."""
    info = await admin.find(job, run)
    failed = await admin.items(info).failed()
    for key in keys:
        if not any(one.key.startswith(key) for one in failed):
            raise ConfigError(f"no failed item of {job} has a key that begins with {key}")
    return info, [one for one in failed if not keys or one.key.startswith(tuple(keys))]


def _record(one: FailedItem) -> dict[str, Any]:
    return {
        "key": one.key,
        "table": one.table,
        "pipeline": one.pipeline,
        "error": mask_secrets(one.error),
        "at": one.at_ms,
        "url": mask_secrets(one.url),
        "request": one.request_id,
        "item": _row(one),
    }


def _row(one: FailedItem) -> dict[str, Any] | None:
    """The item; None when it cannot travel, or another version wrote it."""
    if not one.envelope:
        return None
    try:
        return dict(decode(one.envelope).row)
    except UnreadableMessage as error:
        show.note(f"the item {one.key} cannot be read: {error}")
        return None
