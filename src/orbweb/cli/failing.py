"""The commands on failed requests, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbweb.cli.options import All, AsJson, Job, RunId, Set, Store, Yes

if TYPE_CHECKING:
    from orbweb.cli.failed_find import Filter

failed = typer.Typer(help="Requests that were given up.", no_args_is_help=True)

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids, or their beginnings.")]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="REASON", help="Only of this reason.")
]
Host = Annotated[
    str | None,
    typer.Option("--host", metavar="HOST", help="Only of this host (host[:port])."),
]
Group = Annotated[
    str | None,
    typer.Option("--group", metavar="GROUP", help="Only of this cause, as `failed list` names it."),
]
Node = Annotated[
    str | None,
    typer.Option("--node", metavar="NODE", help="Only those that this node held last."),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="WHEN", help="30m, 2h, 1d ago, or 2026-11-30T22:00."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say which and how many.")]


def add_to(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.add_typer(failed, name="failed")


def _filter(
    ids: list[str] | None,
    reason: str | None,
    host: str | None,
    group: str | None,
    node: str | None,
    since: str | None,
) -> Filter:
    from orbweb.cli.failed_find import Filter
    from orbweb.cli.log import read_moment
    from orbweb.monitor.crawl_line import time_ms

    since_ms = time_ms(read_moment(since, "--since")) if since is not None else 0
    return Filter(tuple(ids or ()), reason, host, node, group, since_ms)


@failed.command("list")
def list_(
    job: Job,
    run_id: RunId = None,
    reason: Reason = None,
    host: Host = None,
    group: Group = None,
    node: Node = None,
    since: Since = None,
    limit: Annotated[
        int,
        typer.Option("--limit", metavar="N", min=0, help="Show this many of each reason; 0: all."),
    ] = 20,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """Show them, grouped by cause: reason, error, line of the spider, host.

    Example: orbweb failed list Shop --since 1h
    """
    from orbweb.cli.failed import list_letters
    from orbweb.cli.options import project_settings

    settings = project_settings(change, store_url)
    which = _filter(None, reason, host, group, node, since)
    list_letters(settings, job, run_id, which, limit, as_json=as_json)


@failed.command("show")
def show(
    job: Job,
    id: Annotated[str, typer.Argument(metavar="ID", help="Its id, or the beginning of it.")],
    run_id: RunId = None,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """Show all that is known of one, what was answered last among it.

    Example: orbweb failed show Shop 8f3a
    """
    from orbweb.cli.failed import show_letter
    from orbweb.cli.options import project_settings

    show_letter(project_settings(change, store_url), job, run_id, id, as_json=as_json)


@failed.command("retry")
def retry(
    job: Job,
    ids: Ids = None,
    run_id: RunId = None,
    reason: Reason = None,
    host: Host = None,
    group: Group = None,
    node: Node = None,
    since: Since = None,
    all_of_them: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Put them back into the queue.

    Example: orbweb failed retry Shop --reason timeout --since 2h --dry-run
    """
    from orbweb.cli import failed_acts as act
    from orbweb.cli.failed_find import chosen
    from orbweb.cli.options import project_settings

    which = _filter(ids, reason, host, group, node, since)
    which = chosen(which, everything=all_of_them)
    consent = act.Consent(yes, dry_run)
    act.retry(project_settings(change, store_url), job, run_id, which, consent)


@failed.command("drop")
def drop(
    job: Job,
    ids: Ids = None,
    run_id: RunId = None,
    reason: Reason = None,
    host: Host = None,
    group: Group = None,
    node: Node = None,
    since: Since = None,
    all_of_them: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Forget them for good, and what was answered. `failed export` keeps a copy.

    Example: orbweb failed drop Shop --host old.shop.example
    """
    from orbweb.cli import failed_acts as act
    from orbweb.cli.failed_find import chosen
    from orbweb.cli.options import project_settings

    which = _filter(ids, reason, host, group, node, since)
    which = chosen(which, everything=all_of_them)
    consent = act.Consent(yes, dry_run)
    act.drop(project_settings(change, store_url), job, run_id, which, consent)


@failed.command("export")
def export(
    job: Job,
    file: Annotated[
        Path | None, typer.Option("-o", metavar="FILE", help="A new file; default: stdout.")
    ] = None,
    run_id: RunId = None,
    reason: Reason = None,
    host: Host = None,
    group: Group = None,
    node: Node = None,
    since: Since = None,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Write them as lines of JSON, secrets masked.

    Example: orbweb failed export Shop --reason antibot -o blocked.jsonl
    """
    from orbweb.cli.failed_acts import export as export_here
    from orbweb.cli.options import project_settings

    which = _filter(None, reason, host, group, node, since)
    export_here(project_settings(change, store_url), job, run_id, which, file)
