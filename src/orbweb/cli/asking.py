"""The commands that ask what became of URLs, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from orbweb.cli.options import AsJson, RunId, Set, Store


def add_to(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.command()(explain)
    app.command("log")(log)


def explain(
    url: Annotated[str, typer.Argument(metavar="URL", help="The address, in any spelling.")],
    job: Annotated[
        str | None, typer.Option("--job", metavar="JOB", help="Of this job; default: of all.")
    ] = None,
    run_id: RunId = None,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """Why a URL was or was not crawled, where it is now, and what to do. Changes nothing.

    Example: orbweb explain 'https://shop.example/p/42?utm_source=x' --job Shop
    """
    from orbweb.cli import explain as act
    from orbweb.cli.acts import Asked
    from orbweb.cli.options import project_settings

    repeated = Asked(changes=tuple(change or ()), store=store_url).same_store
    act.explain(
        project_settings(change, store_url),
        act.Question(url, job, run_id, tuple(repeated)),
        as_json=as_json,
    )


def log(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="Only of this job.", show_default=False)
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with lines as they come.")
    ] = False,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="TEXT", help="A part of the URL; * stands for any text."),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="This host, or a domain above it.")
    ] = None,
    status: Annotated[
        str | None, typer.Option("--status", metavar="CODE", help="404, or 5xx.")
    ] = None,
    reason: Annotated[
        list[str] | None,
        typer.Option(
            "--reason",
            metavar="REASON",
            help="A reason, or done, redirected, retry, failed, dropped, skipped (repeatable).",
        ),
    ] = None,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NODE", help="Beginning of a node's name.")
    ] = None,
    run_id: RunId = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="30m, 2h, 1d ago, or 2026-11-30T22:00."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="WHEN", help="The same, for the end.")
    ] = None,
    most: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=0, help="The latest N; 0: all.")
    ] = 20,
    count: Annotated[
        bool, typer.Option("--count", help="Only count them, by kind and reason.")
    ] = False,
    in_store: Annotated[
        bool,
        typer.Option("--in-store", help="What the store keeps of all machines (CRAWL_LOG_STREAM)."),
    ] = False,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """The crawl log: one line for each outcome. Reads packed files too.

    Example: orbweb log Shop --since 1h --status 5xx
    """
    from orbweb.cli import log as act
    from orbweb.cli.options import project_settings
    from orbweb.monitor.log_reader import LineFilter

    lines = LineFilter(
        job=job,
        run=run_id,
        node=node,
        url=url,
        host=host,
        status=act.read_status(status),
        reasons=act.read_reasons(reason),
        since=act.read_moment(since, "--since"),
        until=act.read_moment(until, "--until"),
    )
    act.query(
        project_settings(change, store_url),
        act.LogQuery(lines, most, follow, count, in_store, as_json),
    )
