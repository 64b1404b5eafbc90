"""What `orbweb batches` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from orbweb.batch.forecast import Forecast, Outlook
from orbweb.cli import show
from orbweb.cli.options import overrides
from orbweb.cli.target import load_spider, make_spider
from orbweb.errors import ConfigError
from orbweb.settings import Settings
from orbweb.sources.base import BatchRecord, BatchState
from orbweb.spiders.batch import BatchSpider
from orbweb.spiders.build_batch import batch_store, parse_schedule_of
from orbweb.spiders.start import Start, settings_of


def list_batches(target: str, limit: int, changes: Sequence[str] | None, *, as_json: bool) -> None:
    """The latest batches of a spider. Raises `ConfigError` and `StoreUnavailable`."""
    spider = make_spider(load_spider(target), {})
    if not isinstance(spider, BatchSpider):
        raise ConfigError(f"{target} has no batches: {spider.name} is no BatchSpider")
    settings = settings_of(spider, Start(overrides(changes, None)))
    store = batch_store(spider, settings)
    try:
        records = store.records(spider.redis_key)
        found = records.recent(limit) if store.prepare(make=False) else []
        now = records.now_ms()
        looks = [_look(batch, now, store.tasks.count) for batch in found]
    finally:
        store.close()
    if as_json:
        show.as_json([_record(batch, look) for batch, look in zip(found, looks, strict=True)])
        return
    _print(spider, settings, found, looks, now)


def _look(batch: BatchRecord, now: int, count: Any) -> Outlook:
    """How far it is: the table knows it of one that goes on, the record of one that has ended."""
    if batch.state.ended:
        return Forecast(batch.opened_ms).look(batch.ended_ms, batch.counts)
    return Forecast(batch.opened_ms).look(now, count(batch.number))


def _print(
    spider: BatchSpider,
    settings: Settings,
    found: Sequence[BatchRecord],
    looks: Sequence[Outlook],
    now: int,
) -> None:
    schedule = parse_schedule_of(settings)
    if not found:
        print(f"no batch of {spider.redis_key} was opened; they come {schedule}")
        return
    show.as_table(
        ("BATCH", "STATE", "OPENED", "TOOK", "TASKS", "DONE", "FAILED", "RATE", "ENDS", "MISSED"),
        [
            (
                str(batch.number),
                str(batch.state),
                show.moment(batch.opened_ms),
                show.duration(((batch.ended_ms or now) - batch.opened_ms) / 1000),
                look.counts.total,
                look.counts.done,
                look.counts.failed,
                f"{look.per_second:.1f}/s",
                show.moment(batch.ended_ms or look.ends_ms or 0),
                batch.missed,
            )
            for batch, look in zip(found, looks, strict=True)
        ],
    )
    due = schedule.following(found[0].due_ms, now).at_ms
    when = "now" if due <= now else show.moment(due)
    print(f"they come {schedule}; the next is due {when}")


def _record(batch: BatchRecord, look: Outlook) -> dict[str, Any]:
    ends = batch.ended_ms if batch.state is not BatchState.OPEN else look.ends_ms
    counts = asdict(look.counts)
    return {**asdict(batch), "counts": counts, "per_second": look.per_second, "ends_ms": ends}
