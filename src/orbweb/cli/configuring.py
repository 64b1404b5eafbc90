"""The commands on live values, and their options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from orbweb.cli.options import AsJson, Set, Store

if TYPE_CHECKING:
    from orbweb.cli.config import Where

config = typer.Typer(
    help="Live values: settings that change in nodes that run.", no_args_is_help=True
)

NEGATIVE = re.compile(r"-\.?\d[\w.]*%?")

Key = Annotated[
    str,
    typer.Argument(metavar="KEY", help="A hot setting, PARSE.NAME of a spider, or X_NAME."),
]
OfJob = Annotated[str | None, typer.Option("--job", metavar="JOB", help="Only for this job.")]
OfRun = Annotated[
    str | None, typer.Option("--run-id", metavar="ID", help="Only for this run of --job.")
]
OfHost = Annotated[str | None, typer.Option("--host", metavar="HOST", help="Only for this host.")]
OfNode = Annotated[
    str | None,
    typer.Option("--node", metavar="NODE", help="Only for this node (or its beginning), machine."),
]
Span = Annotated[
    str | None,
    typer.Option("--for", metavar="TIME", help="It ends after this time: 90s, 30m, 2h, 1d."),
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; needed where the store is shared.")
]
By = Annotated[
    str | None,
    typer.Option("--author", "--by", metavar="NAME", help="Default: who is logged in."),
]
Wait = Annotated[
    float,
    typer.Option("--wait", metavar="SECONDS", min=0, help="For the nodes to acknowledge; 0: no."),
]
Version = Annotated[int | None, typer.Argument(metavar="VERSION", help="A version's number.")]


def add_to(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.add_typer(config, name="config")


def _where(key: str, job: str | None, run: str | None, host: str | None, node: str | None) -> Where:
    from orbweb.cli.config import Where

    return Where(key, job, run, host, node)


@config.command("list")
def config_list(change: Set = None, store_url: Store = None, as_json: AsJson = False) -> None:
    """All live values: for whom each holds, until when, by whom and why.

    Example: orbweb config list
    """
    from orbweb.cli import config_looks as act
    from orbweb.cli.options import project_settings

    act.list_values(project_settings(change, store_url), as_json=as_json)


@config.command("get")
def config_get(
    key: Key,
    job: OfJob = None,
    run_id: OfRun = None,
    host: OfHost = None,
    node: OfNode = None,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """What holds of one key there, and which more general values it covers.

    Example: orbweb config get DOWNLOAD_DELAY --host shop.example
    """
    from orbweb.cli import config_looks as act
    from orbweb.cli.options import project_settings

    where = _where(key, job, run_id, host, node)
    act.get(project_settings(change, store_url), where, as_json=as_json)


class Negative(TyperCommand):
    """A command whose last argument may be a negative number, which else would be an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `click.Command.parse_args`."""
        if "--" not in args:
            numbers = {
                place
                for place in range(1, len(args))
                if NEGATIVE.fullmatch(args[place]) and not args[place - 1].startswith("-")
            }
            others = [word for place, word in enumerate(args) if place not in numbers]
            args = [*others, "--", *(args[place] for place in sorted(numbers))]
        return super().parse_args(ctx, args)


@config.command("set", cls=Negative)
def config_set(
    key: Key,
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="As in the environment: 1.5, true, a,b, 2MiB.")
    ],
    job: OfJob = None,
    run_id: OfRun = None,
    host: OfHost = None,
    node: OfNode = None,
    span: Span = None,
    canary: Annotated[
        str | None,
        typer.Option("--canary", metavar="N", help="Only for N nodes, or 25% of them, at first."),
    ] = None,
    reason: Reason = "",
    by: By = None,
    wait: Wait = 5.0,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """Let a value hold in the nodes that run, and wait until they say so.

    Example: orbweb config set DOWNLOAD_DELAY 1.0 --host shop.example --for 30m --reason 429s
    """
    from orbweb.cli import config as act
    from orbweb.cli.acts import Asked
    from orbweb.cli.options import project_settings

    asked = Asked(span, reason, by, tuple(change or ()), store_url)
    where = _where(key, job, run_id, host, node)
    settings = project_settings(change, store_url)
    raise typer.Exit(act.set_value(settings, where, value, canary, asked, wait, as_json=as_json))


@config.command("unset")
def config_unset(
    key: Key,
    job: OfJob = None,
    run_id: OfRun = None,
    host: OfHost = None,
    node: OfNode = None,
    canary: Annotated[bool, typer.Option("--canary", help="Only end its trial.")] = False,
    reason: Reason = "",
    by: By = None,
    wait: Wait = 5.0,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """Take a live value away: the next more general one holds, or the settings.

    Example: orbweb config unset DOWNLOAD_DELAY --host shop.example
    """
    from orbweb.cli import config as act
    from orbweb.cli.acts import Asked
    from orbweb.cli.options import project_settings

    asked = Asked(None, reason, by, tuple(change or ()), store_url)
    where = _where(key, job, run_id, host, node)
    settings = project_settings(change, store_url)
    raise typer.Exit(act.unset(settings, where, asked, wait, canary=canary, as_json=as_json))


@config.command("promote")
def config_promote(
    key: Key,
    job: OfJob = None,
    run_id: OfRun = None,
    host: OfHost = None,
    reason: Reason = "",
    by: By = None,
    wait: Wait = 5.0,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """Let a value that was tried out on some nodes (--canary) hold for all.

    Example: orbweb config promote CONCURRENT_REQUESTS
    """
    from orbweb.cli import config as act
    from orbweb.cli.acts import Asked
    from orbweb.cli.options import project_settings

    asked = Asked(None, reason, by, tuple(change or ()), store_url)
    where = _where(key, job, run_id, host, None)
    settings = project_settings(change, store_url)
    raise typer.Exit(act.promote(settings, where, asked, wait, as_json=as_json))


@config.command("rollback")
def config_rollback(
    version: Version = None,
    reason: Reason = "",
    by: By = None,
    wait: Wait = 5.0,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """Let all values of an earlier version hold again; by default of the one before.

    Example: orbweb config rollback 17
    """
    from orbweb.cli import config as act
    from orbweb.cli.acts import Asked
    from orbweb.cli.options import project_settings

    asked = Asked(None, reason, by, tuple(change or ()), store_url)
    settings = project_settings(change, store_url)
    raise typer.Exit(act.rollback(settings, version, asked, wait, as_json=as_json))


@config.command("history")
def config_history(
    most: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="So many, the latest first.")
    ] = 20,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """The versions: who changed what, when and why. A thousand are kept.

    Example: orbweb config history --limit 5
    """
    from orbweb.cli import config_looks as act
    from orbweb.cli.options import project_settings

    act.history(project_settings(change, store_url), most, as_json=as_json)


@config.command("diff")
def config_diff(
    before: Version = None,
    after: Version = None,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """What differs between two versions; by default the present one and the one before.

    Example: orbweb config diff 3 5
    """
    from orbweb.cli import config_looks as act
    from orbweb.cli.options import project_settings

    act.diff(project_settings(change, store_url), before, after, as_json=as_json)


@config.command("acks")
def config_acks(change: Set = None, store_url: Store = None, as_json: AsJson = False) -> None:
    """Which version each node goes by, and what it could not take.

    Example: orbweb config acks
    """
    from orbweb.cli import config_nodes as act
    from orbweb.cli.options import project_settings

    act.acks(project_settings(change, store_url), as_json=as_json)
