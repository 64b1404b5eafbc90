"""The commands that try single pages, and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbweb.cli.options import AsJson, Set, Store

if TYPE_CHECKING:
    from orbweb.cli.bench import Wish

Target = Annotated[
    str,
    typer.Argument(metavar="URL", help="An address, 'curl …', failed:ID or req:ID."),
]
Spider = Annotated[
    str | None,
    typer.Option("--spider", metavar="SPIDER", help="FILE[:Class] or module:Class, as for run."),
]
Argument = Annotated[
    list[str] | None,
    typer.Option("-a", metavar="NAME=VALUE", help="Argument of the spider (repeatable)."),
]
OfJob = Annotated[
    str | None,
    typer.Option("--job", metavar="JOB", help="Of this job; default: the spider's, or any."),
]
OfRun = Annotated[
    str | None, typer.Option("--run-id", metavar="ID", help="Of this run; default: the latest.")
]


def add_to(app: typer.Typer) -> None:
    """Put the commands into the program."""
    for command in (shell, fetch, view, parse):
        app.command()(command)


def _wish(
    spider: str | None,
    argument: list[str] | None,
    change: list[str] | None,
    store: str | None,
    job: str | None = None,
    run: str | None = None,
) -> Wish:
    from orbweb.cli.bench import Wish

    return Wish(spider, tuple(argument or ()), tuple(change or ()), store, job, run)


def shell(
    target: Target,
    spider: Spider = None,
    source: Annotated[
        str | None,
        typer.Option("-c", metavar="CODE", help="Run this instead of a prompt; print its value."),
    ] = None,
    argument: Argument = None,
    job: OfJob = None,
    run_id: OfRun = None,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """A Python prompt with a page: fetched as the spider would, or stored with a failed request.

    Example: orbweb shell failed:8f3a --spider shop.py
    """
    from orbweb.cli.shell import shell as open_shell

    wish = _wish(spider, argument, change, store_url, job, run_id)
    raise typer.Exit(open_shell(wish, target, source))


def fetch(
    target: Target,
    spider: Spider = None,
    headers: Annotated[
        bool, typer.Option("--headers", help="Print headers instead of the body.")
    ] = False,
    argument: Argument = None,
    job: OfJob = None,
    run_id: OfRun = None,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a page as the spider would and print its body.

    Example: orbweb fetch https://shop.example/p/42 --spider shop.py > page.html
    """
    from orbweb.cli import pages

    wish = _wish(spider, argument, change, store_url, job, run_id)
    raise typer.Exit(pages.fetch(wish, target, headers=headers, as_json=as_json))


def view(
    target: Target,
    spider: Spider = None,
    argument: Argument = None,
    job: OfJob = None,
    run_id: OfRun = None,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Fetch a page as the spider would and open it in a browser.

    Example: orbweb view https://shop.example/p/42 --spider shop.py
    """
    from orbweb.cli import pages

    raise typer.Exit(pages.view(_wish(spider, argument, change, store_url, job, run_id), target))


def parse(
    target: Target,
    spider: Spider = None,
    callback: Annotated[
        str | None,
        typer.Option("-c", "--callback", metavar="NAME", help="Method of the spider to call."),
    ] = None,
    depth: Annotated[
        int, typer.Option("-d", "--depth", metavar="N", min=1, help="Follow links so deep.")
    ] = 1,
    most: Annotated[
        int, typer.Option("--pages", metavar="N", min=1, help="Fetch so many pages at most.")
    ] = 20,
    argument: Argument = None,
    job: OfJob = None,
    run_id: OfRun = None,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """Call the callback on a page: its items, and each next request with its verdict.

    Example: orbweb parse https://shop.example/list --spider shop.py -c parse_list
    """
    from orbweb.cli import pages

    wish = _wish(spider, argument, change, store_url, job, run_id)
    asked = pages.ParseWish(target, callback, depth, most, as_json)
    raise typer.Exit(pages.parse(wish, asked))
