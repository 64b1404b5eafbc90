"""The commands that compare runs and look after a project, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orbweb.cli.options import AsJson, Set, Store

Pages = Annotated[
    Path,
    typer.Option("--pages", metavar="FOLDER", help="Where recorded pages are."),
]


def add_to(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.command()(record)
    app.command()(check)
    app.command()(diff)
    app.command()(bundle)


def record(
    target: Annotated[
        str, typer.Argument(metavar="URL", help="An address, 'curl …', failed:ID or req:ID.")
    ],
    spider: Annotated[
        str, typer.Option("--spider", metavar="SPIDER", help="Whose callback parses the page.")
    ],
    callback: Annotated[
        str | None,
        typer.Option("-c", "--callback", metavar="NAME", help="Method of the spider to call."),
    ] = None,
    pages: Pages = Path("tests", "pages"),
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="FIELD", help="Of items: differs each time (repeatable)."),
    ] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option("-a", metavar="NAME=VALUE", help="Argument of the spider (repeatable)."),
    ] = None,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Keep a page with what the spider makes of it now, and write a test that parses it offline.

    Cookies, tokens and passwords of the request and of headers are left out; the page itself is
    kept as it is. Exit code 1 when the callback fails.

    Example: orbweb record https://shop.example/p/42 --spider shop.py -c parse_product
    """
    from orbweb.cli.bench import Wish
    from orbweb.cli.record import RecordWish
    from orbweb.cli.record import record as record_page

    wish = Wish(spider, tuple(argument or ()), tuple(change or ()), store_url)
    asked = RecordWish(target, callback, pages, tuple(ignore or ()))
    raise typer.Exit(record_page(wish, asked))


def check(
    spider: Annotated[
        str | None,
        typer.Argument(metavar="SPIDER", help="Only pages of this spider.", show_default=False),
    ] = None,
    pages: Pages = Path("tests", "pages"),
    update: Annotated[
        bool, typer.Option("--update", help="Expect from now on what comes now.")
    ] = False,
    change: Set = None,
    as_json: AsJson = False,
) -> None:
    """Parse the recorded pages again, offline, and show what differs.

    Exit code 1 when something differs or a callback fails, 3 when there is no recorded page.

    Example: orbweb check shop.py
    """
    from orbweb.cli.check import CheckWish
    from orbweb.cli.check import check as check_pages

    raise typer.Exit(check_pages(CheckWish(spider, pages, tuple(change or ()), update, as_json)))


def diff(
    before: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="JOB@RUN, with RUN an id, last, previous, today or yesterday."
        ),
    ],
    after: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="The other one; of a job alone, its last two runs."),
    ] = None,
    item_files: Annotated[
        list[Path] | None,
        typer.Option(
            "--items",
            metavar="FILE",
            help="Files of items: that of the run before, "
            "and that of the run after (.jsonl or .csv).",
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="FIELD", help="What tells items apart (repeatable)."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="LIMIT",
            help="Exit code 4 when a change passes it: items<-10%, failed>5, "
            "missing(price)>2%, 5xx>0, gone>0 (repeatable).",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what is the same in both.")
    ] = False,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """What differs between two runs: figures, fields, hosts, items, settings and code.

    What is not stored of a run cannot be compared: that is said line by line.

    Example: orbweb diff Shop@yesterday Shop@last --fail-on 'items<-10%'
    """
    from orbweb.cli.diff import DiffQuery
    from orbweb.cli.diff import diff as compare
    from orbweb.cli.options import project_settings

    asked = DiffQuery(
        before,
        after,
        files=tuple(item_files or ()),
        key=tuple(key or ()),
        limits=tuple(limit or ()),
        everything=everything,
        as_json=as_json,
    )
    raise typer.Exit(compare(project_settings(change, store_url), asked))


def bundle(
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Default: a name with the time."),
    ] = None,
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Put all that helps to find a fault into an archive, without secrets, pages and items.

    Example: orbweb bundle -o help.zip
    """
    from orbweb.cli.bundle import tell_bundle
    from orbweb.cli.options import overrides, project_settings

    settings = project_settings(change, store_url)
    tell_bundle(settings, overrides(change, store_url), output)
