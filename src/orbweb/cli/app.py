"""All commands and their options. What a command needs is imported when it runs, not before."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orbweb.cli import (
    alerting,
    asking,
    configuring,
    failing,
    making,
    polite,
    running,
    tasking,
    trying,
)
from orbweb.cli.options import AsJson, Job, RunId, Set, Store, Yes
from orbweb.cli.sections import SectionedGroup

app = typer.Typer(
    name="orbweb",
    cls=SectionedGroup,
    help="Orbweb: crawl on one machine or many, and lose nothing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
items = typer.Typer(
    help="Items: files with them, failed ones, what they look like.", no_args_is_help=True
)
dedup = typer.Typer(help="Which URLs count as seen.", no_args_is_help=True)
store = typer.Typer(help="The embedded store of this directory.", no_args_is_help=True)
moving = typer.Typer(help="Take over the crawl of another framework.", no_args_is_help=True)
ledger = typer.Typer(help="What consumers remember in a database.", no_args_is_help=True)
metrics = typer.Typer(help="Metrics for Prometheus and Grafana.", no_args_is_help=True)
app.add_typer(items, name="items")
app.add_typer(dedup, name="dedup")
app.add_typer(store, name="store")
app.add_typer(ledger, name="ledger")
app.add_typer(moving, name="migrate")
app.add_typer(metrics, name="metrics")

Urls = Annotated[list[str], typer.Argument(metavar="URL", help="Addresses of pages.")]
MadeBy = Annotated[
    str | None,
    typer.Option(
        "--fingerprint", metavar="KIND", help="Of a job of Scrapy: scrapy or scrapy-redis."
    ),
]
Snapshot = Annotated[
    Path, typer.Argument(metavar="FILE", help="Lines of JSON; packed when it ends in .gz.")
]
All = Annotated[bool, typer.Option("--all", help="All of the run.")]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="URL", help="The database; default: SQL_URL."),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        from orbweb.cli.about import version

        version(as_json=False)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("-V", "--version", callback=_show_version, is_eager=True, help="The version."),
    ] = False,
) -> None:
    """Orbweb: crawl on one machine or many, and lose nothing."""


@app.command()
def run(
    target: Annotated[
        str,
        typer.Argument(metavar="SPIDER", help="FILE[:Class], module:Class or its name."),
    ],
    workers: Annotated[
        int, typer.Option("-w", "--workers", metavar="N", min=1, help="Processes on this machine.")
    ] = 1,
    argument: Annotated[
        list[str] | None,
        typer.Option("-a", metavar="NAME=VALUE", help="Argument of the spider (repeatable)."),
    ] = None,
    change: Set = None,
    store_url: Store = None,
    append: Annotated[
        str | None,
        typer.Option(
            "-o",
            metavar="FILE",
            help="Append all items to FILE: .jsonl, .csv, .parquet (a folder); or a URL (s3://…).",
        ),
    ] = None,
    overwrite: Annotated[
        str | None,
        typer.Option("-O", metavar="FILE", help="The same; a new run first empties FILE."),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "-j", "--concurrency", metavar="N", min=1, help="Requests at once in each process."
        ),
    ] = None,
    stop_after: Annotated[
        int,
        typer.Option(
            "--stop-after", metavar="N", min=0, help="Each process stops after N pages; 0: never."
        ),
    ] = 0,
    gate: Annotated[
        list[str] | None,
        typer.Option(
            "--gate",
            metavar="CONDITION",
            help="The finished run must meet it, else exit code 4: "
            "items>=100, missing(price)<2%, duplicates<1%, baseline (repeatable).",
        ),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--run-id", metavar="ID", help="Make or join this run.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="A new run, with an id of its own.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the latest run that has not ended.")
    ] = False,
    log_level: Annotated[
        str | None, typer.Option("-L", "--loglevel", metavar="LEVEL", help="DEBUG, INFO, WARNING…")
    ] = None,
    log_file: Annotated[
        Path | None, typer.Option("--logfile", metavar="FILE", help="Log lines also go to FILE.")
    ] = None,
    progress: Annotated[
        bool | None,
        typer.Option("--progress/--no-progress", help="A live line; default: on a terminal."),
    ] = None,
    monitor: Annotated[
        bool, typer.Option("--monitor", help="Also open the batches of a BatchSpider.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="With --monitor: one batch, if one is due.")
    ] = False,
    summary_fd: Annotated[int | None, typer.Option("--summary-fd", hidden=True)] = None,
) -> None:
    """Run a spider. Several of this command, on any machines with one store, share the work.

    Example: orbweb run shop.py -w 4 -o shop.jsonl
    """
    from orbweb.cli.run import RunPlan, run_spider

    raise typer.Exit(
        run_spider(
            RunPlan(
                target=target,
                workers=workers,
                arguments=tuple(argument or ()),
                changes=tuple(change or ()),
                store=store_url,
                append=append,
                overwrite=overwrite,
                concurrency=concurrency,
                stop_after=stop_after,
                gates=tuple(gate or ()),
                run_id=run_id,
                fresh=fresh,
                resume=resume,
                log_level=log_level,
                log_file=log_file,
                progress=progress,
                monitor=monitor,
                once=once,
                summary_fd=summary_fd,
            )
        )
    )


app.command("crawl", hidden=True)(run)
app.command("runspider", hidden=True)(run)


@app.command()
def demo() -> None:
    """Crawl a small shop that this command serves itself. Nothing leaves the machine.

    Example: orbweb demo
    """
    from orbweb.cli.demo import run_demo

    raise typer.Exit(run_demo())


making.add_to(app)


@app.command()
def batches(
    target: Annotated[
        str, typer.Argument(metavar="SPIDER", help="FILE[:Class] or module:Class, as for run.")
    ],
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="So many, the latest first.")
    ] = 10,
    change: Set = None,
    as_json: AsJson = False,
) -> None:
    """The batches of a BatchSpider: counts, times, speed and expected end.

    Example: orbweb batches shop.py
    """
    from orbweb.cli.batches import list_batches

    list_batches(target, limit, change, as_json=as_json)


@app.command()
def jobs(change: Set = None, store_url: Store = None, as_json: AsJson = False) -> None:
    """All runs in the store.

    Example: orbweb jobs
    """
    from orbweb.cli import watch
    from orbweb.cli.options import project_settings

    watch.jobs(project_settings(change, store_url), as_json=as_json)


@app.command()
def status(
    job: Job,
    run_id: RunId = None,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """Counts of a run: waiting, done, skipped by reason, failed.

    Example: orbweb status Shop
    """
    from orbweb.cli import watch
    from orbweb.cli.options import project_settings

    watch.status(project_settings(change, store_url), job, run_id, as_json=as_json)


@app.command()
def nodes(
    job: Job,
    run_id: RunId = None,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """The processes that work on a run.

    Example: orbweb nodes Shop
    """
    from orbweb.cli import watch
    from orbweb.cli.options import project_settings

    watch.nodes(project_settings(change, store_url), job, run_id, as_json=as_json)


@app.command()
def stop(job: Job, run_id: RunId = None, change: Set = None, store_url: Store = None) -> None:
    """Ask all processes of a run to stop. What waits is kept.

    Example: orbweb stop Shop
    """
    from orbweb.cli import steer
    from orbweb.cli.options import project_settings

    steer.stop(project_settings(change, store_url), job, run_id)


@app.command()
def reset(
    job: Job,
    run_id: RunId = None,
    seen: Annotated[
        bool, typer.Option("--seen", help="Also which URLs the job has ever seen.")
    ] = False,
    yes: Yes = False,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Forget a run, so that the next start begins anew.

    Example: orbweb reset Shop --run-id 20261130-0210
    """
    from orbweb.cli import steer
    from orbweb.cli.options import project_settings

    steer.reset(project_settings(change, store_url), job, run_id, seen=seen, yes=yes)


asking.add_to(app)
polite.add_to(app)
configuring.add_to(app)
tasking.add_to(app)
failing.add_to(app)
trying.add_to(app)
running.add_to(app)
alerting.add_to(app)


@items.command("dedup")
def items_dedup(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help=".jsonl or .csv files, folders or URLs of parts."),
    ],
    as_json: AsJson = False,
) -> None:
    """Fold rows that a crash left twice. The first row of each `_key` stays.

    Example: orbweb items dedup shop.jsonl
    """
    from orbweb.cli.files import dedup

    dedup(files, as_json=as_json)


@app.command()
def consume(
    to: To = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="T", help="Read this Kafka topic.")
    ] = None,
    brokers: Annotated[
        str | None,
        typer.Option("--brokers", metavar="HOST:PORT,…", help="Default: KAFKA_BOOTSTRAP_SERVERS."),
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(
            "--stream", metavar="S", help="Read this stream of the store; default: ITEM_STREAM."
        ),
    ] = None,
    group: Annotated[
        str, typer.Option("--group", metavar="G", help="Consumers of one group share the items.")
    ] = "orbweb",
    workers: Annotated[
        int, typer.Option("-w", "--workers", metavar="N", min=1, help="Processes on this machine.")
    ] = 1,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Read again all that is still there.")
    ] = False,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when nothing is left to read.")
    ] = False,
    retry_dead: Annotated[
        bool, typer.Option("--retry-dead", help="Try the dead letters of the database once more.")
    ] = False,
    create_tables: Annotated[
        bool, typer.Option("--create-tables", help="Make tables that are missing.")
    ] = False,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=1, help="Most messages in one transaction.")
    ] = 500,
    change: Set = None,
    store_url: Store = None,
    progress: Annotated[
        bool | None,
        typer.Option("--progress/--no-progress", help="A live line; default: on a terminal."),
    ] = None,
    summary_fd: Annotated[int | None, typer.Option("--summary-fd", hidden=True)] = None,
) -> None:
    """Move items from a Kafka topic or a stream into a database, each of them once.

    Example: orbweb consume --topic items --to postgresql://crawler@db/shop
    """
    from orbweb.cli.consume import ConsumePlan
    from orbweb.cli.consume import consume as consume_here

    raise typer.Exit(
        consume_here(
            ConsumePlan(
                to=to,
                topic=topic,
                brokers=brokers,
                stream=stream,
                group=group,
                workers=workers,
                from_beginning=from_beginning,
                until_empty=until_empty,
                retry_dead=retry_dead,
                create_tables=create_tables,
                batch_messages=batch,
                changes=tuple(change or ()),
                store=store_url,
                progress=progress,
                summary_fd=summary_fd,
            )
        )
    )


@ledger.command("list")
def ledger_list(to: To = None, as_json: AsJson = False) -> None:
    """How many keys of stored items there are of each run.

    Example: orbweb ledger list --to postgresql://crawler@db/shop
    """
    from orbweb.cli.ledger import list_runs

    list_runs(to, as_json=as_json)


@ledger.command("trim")
def ledger_trim(
    to: To = None,
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="RUN", help="Forget the keys of these runs.")
    ] = None,
    older_than: Annotated[
        int | None,
        typer.Option(
            "--older-than", metavar="DAYS", min=1, help="Runs without a new key for this long."
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Forget keys whose messages are no longer in the topic or the stream.

    Example: orbweb ledger trim --to postgresql://crawler@db/shop --older-than 30
    """
    from orbweb.cli.ledger import trim

    trim(to, tuple(runs or ()), older_than, yes=yes)


@ledger.command("dead")
def ledger_dead(
    to: To = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Show this many; 0: all.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Messages that could not be stored, and why.

    Example: orbweb ledger dead --to postgresql://crawler@db/shop
    """
    from orbweb.cli.ledger import dead_letters

    dead_letters(to, limit, as_json=as_json)


@items.command("failed")
def items_failed(
    job: Job,
    run_id: RunId = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Show this many; 0: all.")
    ] = 20,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """Items that a pipeline refused, each with its error.

    Example: orbweb items failed Shop
    """
    from orbweb.cli.items import list_failed
    from orbweb.cli.options import project_settings

    list_failed(project_settings(change, store_url), job, run_id, limit, as_json=as_json)


@items.command("replay")
def items_replay(
    target: Annotated[
        str, typer.Argument(metavar="SPIDER", help="FILE[:Class] or module:Class, as for run.")
    ],
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY", help="Keys, or their beginnings.")
    ] = None,
    run_id: RunId = None,
    all_of_them: All = False,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Send failed items to the pipelines that refused them; what is stored leaves the list.

    Example: orbweb items replay shop.py --all
    """
    from orbweb.cli.items_replay import replay

    raise typer.Exit(replay(target, run_id, keys or [], change, store_url, all_of_them))


@items.command("drop")
def items_drop(
    job: Job,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY", help="Keys, or their beginnings.")
    ] = None,
    run_id: RunId = None,
    all_of_them: All = False,
    yes: Yes = False,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Forget failed items for good.

    Example: orbweb items drop Shop --all
    """
    from orbweb.cli.items import drop_failed
    from orbweb.cli.options import project_settings

    settings = project_settings(change, store_url)
    drop_failed(settings, job, run_id, keys or [], everything=all_of_them, yes=yes)


@items.command("quality")
def items_quality(
    job: Job,
    run_id: RunId = None,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """What the items of a run look like: duplicates, missing values, types of each field.

    Example: orbweb items quality Shop
    """
    from orbweb.cli.items import show_quality
    from orbweb.cli.options import project_settings

    show_quality(project_settings(change, store_url), job, run_id, as_json=as_json)


@dedup.command("stats")
def dedup_stats(
    job: Job,
    run_id: RunId = None,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """Show how many were seen, in what kind of filter, and how full it is.

    Example: orbweb dedup stats Shop
    """
    from orbweb.cli.dedup import stats
    from orbweb.cli.options import project_settings

    stats(project_settings(change, store_url), job, run_id, as_json=as_json)


@dedup.command("check")
def dedup_check(
    job: Job,
    urls: Urls,
    run_id: RunId = None,
    made_by: MadeBy = None,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """Say of URLs whether they count as seen. Exit code 3 when one does not.

    Example: orbweb dedup check Shop https://shop.example/p/42
    """
    from orbweb.cli.dedup import check
    from orbweb.cli.options import project_settings

    settings = project_settings(change, store_url)
    if not check(settings, job, run_id, urls, made_by, as_json=as_json):
        raise typer.Exit(3)


@dedup.command("forget")
def dedup_forget(
    job: Job,
    urls: Annotated[list[str] | None, typer.Argument(metavar="URL", help="These.")] = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="All of this host (host[:port]).")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Generations older than this: 30d, 12h."),
    ] = None,
    made_by: MadeBy = None,
    run_id: RunId = None,
    yes: Yes = False,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Let them be crawled again when they are found again.

    Example: orbweb dedup forget Shop --older-than 30d
    """
    from orbweb.cli.dedup import forget
    from orbweb.cli.options import project_settings

    settings = project_settings(change, store_url)
    forget(
        settings,
        job,
        run_id,
        urls or (),
        host=host,
        older_than=older_than,
        yes=yes,
        made_by=made_by,
    )


@dedup.command("export")
def dedup_export(
    job: Job, file: Snapshot, run_id: RunId = None, change: Set = None, store_url: Store = None
) -> None:
    """Write what was seen and what waits into a file. Nodes may go on meanwhile.

    Example: orbweb dedup export Shop shop.seen.gz
    """
    from orbweb.cli.dedup import export
    from orbweb.cli.options import project_settings

    export(project_settings(change, store_url), job, run_id, file)


@dedup.command("import")
def dedup_import(
    job: Job, file: Snapshot, run_id: RunId = None, change: Set = None, store_url: Store = None
) -> None:
    """Put what an export holds into a run: first what waited, then what was seen.

    Example: orbweb dedup import Shop shop.seen.gz
    """
    from orbweb.cli.dedup import import_
    from orbweb.cli.options import project_settings

    import_(project_settings(change, store_url), job, run_id, file)


@store.command("start")
def store_start() -> None:
    """Start it, and keep it running when no spider does.

    Example: orbweb store start
    """
    from orbweb.cli.embedded import start

    start()


@store.command("stop")
def store_stop(yes: Yes = False) -> None:
    """Stop it. Its data stays.

    Example: orbweb store stop
    """
    from orbweb.cli.embedded import stop

    stop(yes=yes)


@store.command("status")
def store_status(as_json: AsJson = False) -> None:
    """Say whether it runs, and where.

    Example: orbweb store status
    """
    from orbweb.cli.embedded import status

    status(as_json=as_json)


@moving.command("scrapy-redis")
def migrate_scrapy_redis(
    spider: Annotated[str, typer.Option("--spider", metavar="NAME", help="Name of the spider.")],
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Its Redis; default: the project's REDIS_URL."),
    ] = None,
    store_url: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="URL", help="Where to; default: the project's REDIS_URL, or --url."
        ),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--run-id", metavar="ID", help="Into this run of the job.")
    ] = None,
    queue_key: Annotated[
        str | None, typer.Option("--queue-key", metavar="KEY", help="Default: %(spider)s:requests.")
    ] = None,
    dupefilter_key: Annotated[
        str | None,
        typer.Option("--dupefilter-key", metavar="KEY", help="Default: %(spider)s:dupefilter."),
    ] = None,
    start_key: Annotated[
        str | None,
        typer.Option("--start-key", metavar="KEY", help="Default: the spider's redis_key."),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option("--order", metavar="ORDER", help="Of a queue that is a list: fifo or lifo."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only read and count; change nothing.")
    ] = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the old keys when all was checked.")
    ] = False,
    change: Set = None,
    as_json: AsJson = False,
) -> None:
    """Move queue, duplicate filter and start entries; again after a crash, it goes on.

    Stop the old workers first. Exit code 4 when something could not be read.

    Example: orbweb migrate scrapy-redis --spider shop --url redis://localhost --dry-run
    """
    from orbweb.cli.migrate import MigratePlan, migrate

    plan = MigratePlan(
        spider=spider,
        url=url,
        store=store_url,
        run_id=run_id,
        queue_key=queue_key,
        seen_key=dupefilter_key,
        start_key=start_key,
        order=order,
        dry_run=dry_run,
        delete=delete,
        as_json=as_json,
        changes=tuple(change or ()),
    )
    raise typer.Exit(migrate(plan))


@metrics.command("show")
def metrics_show(change: Set = None, store_url: Store = None, as_json: AsJson = False) -> None:
    """Print the metrics of the fleet, as Prometheus reads them.

    Example: orbweb metrics show --store redis://store:6379/0
    """
    from orbweb.cli.metrics import show_metrics
    from orbweb.cli.options import project_settings

    show_metrics(project_settings(change, store_url), as_json=as_json)


@metrics.command("serve")
def metrics_serve(
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0: a free one.")
    ] = 9464,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="0.0.0.0: all of this machine.")
    ] = "127.0.0.1",
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Serve the metrics of the fleet at /metrics until it is stopped: one target for all nodes.

    Example: orbweb metrics serve --store redis://store:6379/0 --host 0.0.0.0
    """
    from orbweb.cli.metrics import serve
    from orbweb.cli.options import project_settings

    serve(project_settings(change, store_url), host, port)


@metrics.command("targets")
def metrics_targets(
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write it there, for file_sd.")
    ] = None,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """The nodes with a scrape target of their own (METRICS_PORT).

    Example: orbweb metrics targets --out /etc/prometheus/targets
    """
    from orbweb.cli.metrics import targets
    from orbweb.cli.options import project_settings

    targets(project_settings(change, store_url), out, as_json=as_json)


@metrics.command("grafana")
def metrics_grafana(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write them.")],
    as_json: AsJson = False,
) -> None:
    """Write the three Grafana dashboards: fleet, one spider, data quality.

    Example: orbweb metrics grafana --out dashboards
    """
    from orbweb.cli.metrics import write_shipped

    write_shipped("grafana", out, as_json=as_json)


@metrics.command("rules")
def metrics_rules(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write them.")],
    as_json: AsJson = False,
) -> None:
    """Write the alert rules for Prometheus.

    Example: orbweb metrics rules --out /etc/prometheus/rules
    """
    from orbweb.cli.metrics import write_shipped

    write_shipped("rules", out, as_json=as_json)


@app.command()
def settings(
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="KEY", help="All about this one.")
    ] = None,
    spider: Annotated[
        str | None, typer.Option("--spider", metavar="SPIDER", help="As this spider sees them.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="With the live values of the store (orbweb config).")
    ] = False,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """Every setting: its value here, and where that comes from.

    Example: orbweb settings --explain DOWNLOAD_DELAY --spider shop.py
    """
    from orbweb.cli.about import Asked, explain_setting, list_settings

    asked = Asked(spider, tuple(change or ()), store_url, live=live, as_json=as_json)
    if explain is not None:
        explain_setting(explain, asked)
    else:
        list_settings(asked)


@app.command()
def doctor(change: Set = None, store_url: Store = None, as_json: AsJson = False) -> None:
    """Check this machine, the settings and the store. Exit code 2 when something is wrong.

    Example: orbweb doctor
    """
    from orbweb.cli.doctor import examine
    from orbweb.cli.options import overrides

    raise typer.Exit(examine(overrides(change, store_url), as_json=as_json))


@app.command()
def version(
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Also the packages that are used.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """The version of Orbweb, Python and the platform.

    Example: orbweb version -v
    """
    from orbweb.cli.about import version as show_version

    show_version(as_json=as_json, packages=verbose)
