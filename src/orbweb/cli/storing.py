"""The commands on items that are stored, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from orbweb.cli.options import All, AsJson, Job, RunId, Set, Store, To, Yes

items = typer.Typer(
    help="Items: files with them, failed ones, what they look like.", no_args_is_help=True
)
ledger = typer.Typer(help="What consumers remember in a database.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.add_typer(items, name="items")
    app.add_typer(ledger, name="ledger")


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
