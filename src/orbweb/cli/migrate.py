"""What `migrate scrapy-redis` does."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from orbweb.cli import show
from orbweb.cli.options import pairs
from orbweb.errors import ConfigError
from orbweb.frontier.seen_admin import SeenAdmin
from orbweb.frontier.server import answer_of, connect
from orbweb.frontier.servers import reach
from orbweb.frontier.spread import shared_frontier
from orbweb.log import mask_secrets

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from scrapy.settings import Settings

    from orbweb.adapters.scrapy.config import RoomConfig
    from orbweb.adapters.scrapy.migrate import OldCrawl, Report

LEFT_OUT = 4
"""Exit code when something could not be moved."""
SHOWN = 20


@dataclass(frozen=True, slots=True)
class MigratePlan:
    """The options of the command, as they were typed."""

    spider: str
    url: str | None = None
    store: str | None = None
    run_id: str | None = None
    queue_key: str | None = None
    seen_key: str | None = None
    start_key: str | None = None
    order: str | None = None
    dry_run: bool = False
    delete: bool = False
    as_json: bool = False
    changes: tuple[str, ...] = ()


def migrate(plan: MigratePlan) -> int:
    """Move what scrapy-redis has of a spider; returns the exit code."""
    return asyncio.run(_migrate(plan, _project_settings(plan)))


def _project_settings(plan: MigratePlan) -> Settings:
    """Of the Scrapy project around the working directory, or Scrapy's own defaults."""
    try:
        from scrapy.utils.project import get_project_settings
    except ImportError as error:
        raise ConfigError("this needs Scrapy: pip install 'orbweb[scrapy]'") from error
    settings = get_project_settings()
    settings.setdict(pairs(plan.changes, "-s"), priority="cmdline")
    if plan.run_id is not None:
        settings.set("ORBWEB_RUN_ID", plan.run_id, priority="cmdline")
    if settings.getlist("SPIDER_MODULES"):
        from scrapy.spiderloader import SpiderLoader

        loader = SpiderLoader.from_settings(settings)
        if plan.spider not in loader.list():
            known = ", ".join(sorted(loader.list())) or "none"
            raise ConfigError(f"the project has no spider {plan.spider!r}; it has: {known}")
        spider = loader.load(plan.spider)
        spider.update_settings(settings)
        key = getattr(spider, "redis_key", None)
        if isinstance(key, str):
            settings.set("REDIS_START_URLS_KEY", key, priority="spider")
    return settings


async def _migrate(plan: MigratePlan, settings: Settings) -> int:
    from scrapy import Spider

    from orbweb.adapters.scrapy.config import room_config
    from orbweb.adapters.scrapy.connection import store_url
    from orbweb.adapters.scrapy.migrate import OldCounts, OldCrawl

    old_url = plan.url or store_url(settings)
    named = settings.get("REDIS_URL") or settings.get("REDIS_HOST")
    new_url = plan.store or (store_url(settings) if named else old_url)
    config = room_config(settings, Spider(plan.spider))
    client = connect(old_url, config.store_timeout)
    try:
        old = OldCrawl(client, _keys(plan, settings), _order(plan, settings))
        counts = await old.counts()
        begun = await OldCrawl(client, old.keys.apart, old.order).counts()
        begun = replace(begun, starts=0)
        if begun != OldCounts() and not plan.delete:
            raise ConfigError(
                f"{' and '.join(old.keys.apart.moved)} are there: a migration with --delete was "
                "not finished. Right would be the same command with --delete"
            )
        if plan.dry_run:
            return await _dry_run(plan, old, config)
        if counts == begun == OldCounts():
            raise ConfigError(
                f"{mask_secrets(old_url)} has none of {', '.join(asdict(old.keys).values())}: "
                "name the keys with --queue-key, --dupefilter-key and --start-key"
            )
        return await _move(plan, old, new_url, config)
    finally:
        await client.aclose()


def _keys(plan: MigratePlan, settings: Settings) -> Any:
    from orbweb.adapters.scrapy import defaults
    from orbweb.adapters.scrapy.migrate import OldKeys

    queue = settings.get("SCHEDULER_QUEUE_KEY", defaults.SCHEDULER_QUEUE_KEY)
    seen = settings.get("SCHEDULER_DUPEFILTER_KEY", defaults.SCHEDULER_DUPEFILTER_KEY)
    starts = settings.get("REDIS_START_URLS_KEY", defaults.START_URLS_KEY)
    names = {"spider": plan.spider, "name": plan.spider}
    return OldKeys(
        (plan.queue_key or queue) % names,
        (plan.seen_key or seen) % names,
        (plan.start_key or starts) % names,
    )


def _order(plan: MigratePlan, settings: Settings) -> str:
    """Of a queue that is a list: as the project's class of queues says, by whichever path."""
    from orbweb.adapters.scrapy import queue
    from orbweb.adapters.scrapy.entry import ORDERS

    name = str(settings.get("SCHEDULER_QUEUE_CLASS") or "PriorityQueue").rpartition(".")[2]
    order = plan.order or getattr(getattr(queue, name, None), "order", "priority")
    if order not in ORDERS:
        raise ConfigError(f"--order {order}: it is one of {', '.join(ORDERS)}")
    return str(order)


async def _dry_run(plan: MigratePlan, old: OldCrawl, config: RoomConfig) -> int:
    from orbweb.adapters.scrapy.migrate import Reader, Report, read_marks, read_page

    report, reader = Report(), Reader(old.keys.queue, old.order)
    async for page in old.requests():
        report.requests += len(page)
        report.entered += len(list(read_page(reader, page, report.refused)))
    async for marks in old.marks():
        report.seen += len(marks)
        report.learned += len(list(read_marks(marks, report.refused)))
    report.starts = await old.count(old.keys.starts)
    _print(plan, old, config, report, "would move")
    return LEFT_OUT if report.refused else 0


async def _move(plan: MigratePlan, old: OldCrawl, new_url: str, config: RoomConfig) -> int:
    from orbweb.adapters.scrapy.migrate import Mover, Reader, copy_starts, forget_starts

    servers = await reach(new_url, config.prefix, config.store_timeout)
    try:
        frontier = shared_frontier(
            servers, prefix=config.prefix, job=config.job, run=config.run_id, shards=1
        )
        await frontier.open(config.run)
        seen = SeenAdmin(servers, config.prefix)
        place = await seen.make(config.job, config.run_id, config.run)
        mover = Mover(old, Reader(old.keys.queue, old.order), frontier, seen, place)
        report = mover.report
        await (mover.empty() if plan.delete else mover.copy())
        target = servers.of_shard(0)
        report.starts_stay = await _same_place(old.client, target)
        if report.starts_stay:
            report.starts = await old.count(old.keys.starts)
        else:
            report.starts = await copy_starts(old, target, old.keys.starts)
        if plan.delete and not report.starts_stay and report.starts:
            await forget_starts(old, target, old.keys.starts, report.starts)
        _print(plan, old, config, report, "moved")
        return LEFT_OUT if report.refused or report.left else 0
    finally:
        await servers.aclose()


async def _same_place(one: Redis, other: Redis) -> bool:
    """Whether two clients speak of the same database of the same server."""
    ids = [(await answer_of(client.info("server")))["run_id"] for client in (one, other)]
    databases = [client.connection_pool.connection_kwargs.get("db") or 0 for client in (one, other)]
    return ids[0] == ids[1] and databases[0] == databases[1]


def _print(plan: MigratePlan, old: OldCrawl, config: RoomConfig, report: Report, verb: str) -> None:
    if plan.as_json:
        show.as_json({"job": config.job, "run": config.run_id, **asdict(report)})
        return
    print(f"{plan.spider} → job {config.job}: {verb}")
    for what, count, new, key in (
        ("request", report.requests, report.entered, old.keys.queue),
        ("seen mark", report.seen, report.learned, old.keys.seen),
    ):
        print(f"  {show.counted(count, what)} of {key}, {show.number(new)} of them new")
    where = ", which the spider reads where they are" if report.starts_stay else ""
    print(f"  {show.counted(report.starts, 'start URL')}{where}")
    most = sorted(report.refused.items(), key=lambda pair: -pair[1])
    for reason, count in most[:SHOWN]:
        print(f"  {show.number(count)} could not be read: {reason}")
    if report.seen:
        show.note("the marks are scrapy-redis's: keep ORBWEB_FINGERPRINT = 'scrapy-redis' set")
    if report.left:
        show.note(
            f"warning: a worker of scrapy-redis has written {show.counted(report.left, 'request')} "
            "or marks meanwhile, which are still there: stop it, then give the same command again"
        )
    if verb == "moved" and not plan.delete:
        show.note("the old keys are still there; the same command with --delete removes them")
