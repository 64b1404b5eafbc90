"""All commands. What a command needs is imported when it runs, not before."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orbweb.cli import (
    alerting,
    asking,
    configuring,
    deduping,
    failing,
    making,
    measuring,
    moving,
    polite,
    running,
    storing,
    tasking,
    trying,
)
from orbweb.cli.options import AsJson, Job, RunId, Set, Store, To, Yes
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
store = typer.Typer(help="The embedded store of this directory.", no_args_is_help=True)
storing.add_to(app)
deduping.add_to(app)
app.add_typer(store, name="store")
moving.add_to(app)
measuring.add_to(app)


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
