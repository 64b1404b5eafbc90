"""The commands that take over the crawl of another framework, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from orbweb.cli.options import AsJson, Set

moving = typer.Typer(help="Take over the crawl of another framework.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.add_typer(moving, name="migrate")


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
