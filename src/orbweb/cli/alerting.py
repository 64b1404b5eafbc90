"""The commands on alarms, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from orbweb.cli.options import AsJson, Set, Store

alerts = typer.Typer(help="Alarms: what is wrong, who is told.", no_args_is_help=True)

Pattern = Annotated[
    str,
    typer.Argument(
        metavar="RULE",
        help="A rule (node_silent), RULE/JOB, or an alarm's whole key; `all` means all.",
        show_default=False,
    ),
]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", help="Who does it; default: who is logged in."),
]


def add_to(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.add_typer(alerts, name="alerts")


@alerts.command("list")
def alerts_list(
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that are over, of the last day.")
    ] = False,
    language: Annotated[
        str, typer.Option("--lang", metavar="LANG", help="en or zh.", show_default=True)
    ] = "en",
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """Alarms that fire: is it broken, since when, what to do, how to undo it.

    Example: orbweb alerts list --all --json
    """
    from orbweb.cli import alerts as act
    from orbweb.cli.options import project_settings

    settings = project_settings(change, store_url)
    act.list_alarms(settings, language, everything=everything, as_json=as_json)


@alerts.command("rules")
def alerts_rules(change: Set = None, as_json: AsJson = False) -> None:
    """All rules with their thresholds, and the settings that change them.

    Example: orbweb alerts rules -s ALERTS_BACKLOG=500000
    """
    from orbweb.cli import alerts as act
    from orbweb.cli.options import project_settings

    act.rules(project_settings(change, None), as_json=as_json)


@alerts.command("test")
def alerts_test(
    channels: Annotated[
        list[str] | None,
        typer.Argument(metavar="CHANNEL", help="Only these; default: all.", show_default=False),
    ] = None,
    change: Set = None,
    as_json: AsJson = False,
) -> None:
    """Send a letter to each channel; what counts is what the service itself answers.

    Exit code 1 when one of them does not take it.

    Example: orbweb alerts test
    """
    from orbweb.cli import alerts_post as act
    from orbweb.cli.options import project_settings

    raise typer.Exit(act.test(project_settings(change, None), channels or [], as_json=as_json))


@alerts.command("silence")
def alerts_silence(
    pattern: Pattern,
    span: Annotated[
        str, typer.Option("--for", metavar="TIME", help="It ends after this time: 30m, 2h, 1d.")
    ],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is shown.")],
    by: By = None,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Tell nobody of some alarms for a time. They are listed all the same.

    Example: orbweb alerts silence node_silent/Shop --for 2h --reason 'moving machines'
    """
    from orbweb.cli import alerts as act
    from orbweb.cli.acts import Asked
    from orbweb.cli.options import project_settings

    asked = Asked(span, reason, by, tuple(change or ()), store_url)
    act.silence(project_settings(change, store_url), pattern, asked)


@alerts.command("unsilence")
def alerts_unsilence(pattern: Pattern, change: Set = None, store_url: Store = None) -> None:
    """End a silence before its time.

    Example: orbweb alerts unsilence node_silent/Shop
    """
    from orbweb.cli import alerts as act
    from orbweb.cli.acts import Asked
    from orbweb.cli.options import project_settings

    asked = Asked(changes=tuple(change or ()), store=store_url)
    act.unsilence(project_settings(change, store_url), pattern, asked)


@alerts.command("watch")
def alerts_watch(change: Set = None, store_url: Store = None) -> None:
    """Judge the fleet until stopped, in the place of its nodes: so the last node's death is told.

    Example: orbweb alerts watch --store redis://server:6379/0
    """
    from orbweb.cli import alerts_post as act
    from orbweb.cli.options import project_settings

    raise typer.Exit(act.watch(project_settings(change, store_url)))
