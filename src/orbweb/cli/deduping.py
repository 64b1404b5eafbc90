"""The commands on which URLs count as seen, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orbweb.cli.options import AsJson, Job, RunId, Set, Store, Yes

dedup = typer.Typer(help="Which URLs count as seen.", no_args_is_help=True)

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


def add_to(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.add_typer(dedup, name="dedup")


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
