"""The commands on hosts and their rates, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from orbweb.cli.options import AsJson, RunId, Set, Store

rates = typer.Typer(help="The rates that are approved for hosts.", no_args_is_help=True)

Host = Annotated[
    str, typer.Argument(metavar="HOST", help="Host (shop.example, shop.example:8080) or a URL.")
]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A host, or the name of a job.", show_default=False)
]
Span = Annotated[
    str | None,
    typer.Option("--for", metavar="TIME", help="It ends after this time: 90s, 30m, 2h, 1d."),
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is recorded.")]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", help="Who does it; default: who is logged in."),
]
AsHost = Annotated[bool, typer.Option("--host", help="NAME is a host.")]
AsJob = Annotated[bool, typer.Option("--job", help="NAME is a job.")]


def add_to(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.command()(hosts)
    app.command()(limit)
    app.command()(pause)
    app.command()(resume)
    app.add_typer(rates, name="rates")


def hosts(
    host: Annotated[
        str | None, typer.Argument(metavar="HOST", help="Only this host (or a URL).")
    ] = None,
    sort: Annotated[
        str, typer.Option("--sort", metavar="ORDER", help="backlog, rate or errors: most first.")
    ] = "backlog",
    job: Annotated[
        str | None, typer.Option("--job", metavar="JOB", help="Only hosts of this job.")
    ] = None,
    most: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Show this many; 0: all.")
    ] = 20,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """Hosts: what waits for each, how fast it is fetched, and why it waits.

    Example: orbweb hosts --sort errors
    """
    from orbweb.cli import hosts as act
    from orbweb.cli.acts import read_host
    from orbweb.cli.options import project_settings

    act.hosts(
        project_settings(change, store_url),
        sort=sort,
        job=job,
        limit=most,
        host=None if host is None else read_host(host),
        as_json=as_json,
    )


def limit(
    host: Host,
    rate: Annotated[
        str, typer.Argument(metavar="RATE", help="2/s, 30/m, 0.5/s, 1/10s; `off` takes it away.")
    ],
    span: Span = None,
    reason: Reason = "",
    by: By = None,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Fetch a host no faster than this, over all nodes and jobs.

    Example: orbweb limit shop.example 1/s --for 30m --reason '429s since two'
    """
    from orbweb.cli import pace
    from orbweb.cli.acts import Asked
    from orbweb.cli.options import project_settings

    asked = Asked(span, reason, by, tuple(change or ()), store_url)
    pace.limit(project_settings(change, store_url), host, rate, asked)


def pause(
    name: Name,
    as_host: AsHost = False,
    as_job: AsJob = False,
    run_id: RunId = None,
    span: Span = None,
    reason: Reason = "",
    by: By = None,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Fetch nothing from a host, or nothing of a job's run. What waits is kept.

    Example: orbweb pause shop.example --for 1h
    """
    from orbweb.cli import pace
    from orbweb.cli.acts import Asked
    from orbweb.cli.options import project_settings

    target = pace.Target(name, as_host=as_host, as_job=as_job, run=run_id)
    asked = Asked(span, reason, by, tuple(change or ()), store_url)
    pace.pause(project_settings(change, store_url), target, asked, go_on=False)


def resume(
    name: Name,
    as_host: AsHost = False,
    as_job: AsJob = False,
    run_id: RunId = None,
    reason: Reason = "",
    by: By = None,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Let a host, or a job's run, go on after a pause.

    Example: orbweb resume shop.example
    """
    from orbweb.cli import pace
    from orbweb.cli.acts import Asked
    from orbweb.cli.options import project_settings

    target = pace.Target(name, as_host=as_host, as_job=as_job, run=run_id)
    asked = Asked(None, reason, by, tuple(change or ()), store_url)
    pace.pause(project_settings(change, store_url), target, asked, go_on=True)


@rates.command("list")
def rates_list(
    expired: Annotated[
        bool, typer.Option("--expired", help="Only approvals whose time has passed.")
    ] = False,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """The register of rates, and what each rate comes to now.

    Example: orbweb rates list --expired
    """
    from orbweb.cli import rates as act
    from orbweb.cli.options import project_settings

    act.list_rates(project_settings(change, store_url), expired=expired, as_json=as_json)


@rates.command("request")
def rates_request(
    host: Host,
    rate: Annotated[str, typer.Argument(metavar="RATE", help="2/s, 30/m, 0.5/s, 1/10s.")],
    contact: Annotated[
        str, typer.Option("--contact", metavar="TEXT", help="Whom to reach about it.")
    ],
    reason: Reason,
    by: By = None,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Ask for a rate. Nothing changes until it is approved.

    Example: orbweb rates request shop.example 4/s --contact li@you.example --reason sale
    """
    from orbweb.cli import rates as act
    from orbweb.cli.acts import Asked
    from orbweb.cli.options import project_settings

    asked = Asked(None, reason, by, tuple(change or ()), store_url)
    act.request(project_settings(change, store_url), host, rate, contact, asked)


@rates.command("approve")
def rates_approve(
    host: Host,
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who approves it.")],
    rate: Annotated[
        str | None, typer.Argument(metavar="RATE", help="Default: what was asked for.")
    ] = None,
    span: Annotated[
        str, typer.Option("--for", metavar="TIME", help="It expires after this time: 90d, 12h.")
    ] = "90d",
    reason: Reason = "",
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Approve a rate: the host is never fetched faster, whatever the settings say.

    Example: orbweb rates approve shop.example 2/s --by wang --for 90d
    """
    from orbweb.cli import rates as act
    from orbweb.cli.acts import Asked
    from orbweb.cli.options import project_settings

    asked = Asked(span, reason, by, tuple(change or ()), store_url)
    act.approve(project_settings(change, store_url), host, rate, asked)


@rates.command("revoke")
def rates_revoke(
    host: Host,
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who takes it back.")],
    reason: Reason,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Take an approval back, or turn a request down.

    Example: orbweb rates revoke shop.example --by wang --reason 'they asked for it'
    """
    from orbweb.cli import rates as act
    from orbweb.cli.acts import Asked
    from orbweb.cli.options import project_settings

    asked = Asked(None, reason, by, tuple(change or ()), store_url)
    act.revoke(project_settings(change, store_url), host, asked)


@rates.command("export")
def rates_export(
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="csv or json.")] = "csv",
    change: Set = None,
    store_url: Store = None,
) -> None:
    """The register for other programs, on stdout.

    Example: orbweb rates export --format json
    """
    from orbweb.cli import rates as act
    from orbweb.cli.options import project_settings

    act.export(project_settings(change, store_url), form)


@rates.command("log")
def rates_log(
    host: Annotated[
        str | None, typer.Argument(metavar="HOST", help="Only of this host (or a URL).")
    ] = None,
    most: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Show this many; 0: all.")
    ] = 50,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """What was done to hosts and runs, by whom and why, the latest first.

    Example: orbweb rates log shop.example
    """
    from orbweb.cli import rates as act
    from orbweb.cli.options import project_settings

    act.log(project_settings(change, store_url), host, limit=most, as_json=as_json)
