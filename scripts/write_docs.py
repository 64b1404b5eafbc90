"""Writes docs/settings.md, and the commands in docs/cli.md, from what the code declares."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import typer

from orbweb.cli.about import PRECEDENCE, limit_text, other_names
from orbweb.cli.app import app
from orbweb.metrics import catalogue
from orbweb.metrics.exposition import Metric
from orbweb.settings import declarations
from orbweb.settings.declarations import Setting, When
from orbweb.settings.names import NEEDLESS

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- commands -->", "<!-- end of commands -->"

GROUPS = (
    ("Store, run and deduplication", declarations.STORE),
    ("Crawl", declarations.CRAWL),
    ("Tasks", declarations.TASKS),
    ("Batches of a task table", declarations.BATCHES),
    ("Download", declarations.DOWNLOAD),
    ("Proxies", declarations.PROXIES),
    ("Live values", declarations.CONFIG),
    ("Items and logs", declarations.OUTPUT),
    ("Failed requests", declarations.FAILURES),
    ("Metrics", declarations.METRICS),
    ("Databases", declarations.DATABASES),
    ("Alarms", declarations.ALARMS),
)

WHEN = {
    When.HOT: "**hot**: may change while a crawl runs",
    When.NEXT_RUN: "next run",
    When.RESTART: "restart",
}


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with `--check` return 1 when one is out of date."""
    pages = wanted_pages()
    stale = [path for path, text in pages.items() if _read(path) != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.name} is out of date: run scripts/docs", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(pages[path], encoding="utf-8")
        print(f"wrote docs/{path.name}")
    return 0


def wanted_pages() -> dict[Path, str]:
    """What each page has to say."""
    cli = DOCS / "cli.md"
    before, _, rest = _read(cli).partition(BEGIN)
    after = rest.partition(END)[2]
    return {
        DOCS / "settings.md": settings_page(),
        cli: f"{before}{BEGIN}\n\n{commands_section()}\n{END}{after}",
        DOCS / "metrics.md": metrics_page(),
    }


def metrics_page() -> str:
    """docs/metrics.md, with its lists of metrics and of alerts."""
    page = _read(DOCS / "metrics.md")
    for name, text in (("alerts", alerts_section()), ("metrics", metrics_section())):
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n\n{text}\n{end}{rest.partition(end)[2]}"
    return page


def metrics_section() -> str:
    """Every metric, with its kind and labels."""
    groups = {**catalogue.OF_FLEET, "Own targets of nodes": catalogue.OF_NODE}
    parts = []
    for title, metrics in groups.items():
        parts.append(f"### {title}\n")
        parts += [_metric(metric) for metric in metrics]
    return "\n".join(parts)


def _metric(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    return f"#### {metric.name}\n\n{metric.text}\n\n{metric.kind} · labels: {labels}\n"


def alerts_section() -> str:
    """Every alert of the shipped rules: what it looks at, and what to do."""
    rules = files("orbweb.metrics").joinpath("shipped", "rules", "orbweb.rules.yml")
    blocks = re.split(r"^ *- alert: ", rules.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return "\n".join(_alert(block) for block in blocks)


def _alert(block: str) -> str:
    name = block.split("\n", 1)[0]
    found = re.search(r"^ *expr: (?:\|\n)?(.*?)(?=^ *(?:for|labels): )", block, re.M | re.S)
    wait = re.search(r"^ *for: (\w+)", block, re.MULTILINE)
    severity = re.search(r"severity: (\w+)", block)
    action = re.search(r'^ *action: "(.*)"$', block, re.MULTILINE)
    assert found is not None
    assert severity is not None
    facts = [f"severity {severity[1]}", f"for {wait[1]}" if wait else ""]
    expression = textwrap.dedent(found[1]).strip()
    todo = f"{action[1]}\n\n" if action else ""
    shown = " · ".join(fact for fact in facts if fact)
    return f"### {name}\n\n{todo}```text\n{expression}\n```\n\n{shown}\n"


def settings_page() -> str:
    """docs/settings.md."""
    parts = [
        "# Settings\n",
        "This page is written by `scripts/docs` from `orbweb.settings.declarations`.\n",
        "`orbweb settings` shows the values in your directory and where each comes from; "
        "`orbweb settings --explain KEY` says all about one.\n",
        "## Where values come from\n",
        "A later source wins:\n",
        "".join(f"{number}. {source}\n" for number, source in enumerate(PRECEDENCE, 1)),
        "`orbweb config set KEY VALUE` changes a setting that is **hot** in nodes that run "
        "([live values](config.md)); one marked *restart* counts when a node is started again, "
        "*next run* when a run is made.\n",
        "An unknown name is an error that says what you may have meant. Names of your own begin "
        "with `X_`. In the environment and on the command line lists are written `a,b` (or as "
        "JSON), truth values `true` and `false`, sizes `32MiB`.\n",
    ]
    for title, group in GROUPS:
        parts.append(f"## {title}\n")
        parts += [_setting(setting) for setting in group]
    parts.append("## Names that have no effect\n")
    parts.append("Settings of NetSpy that are accepted with a note:\n")
    parts.append("".join(f"- `{name}`: {why}\n" for name, why in sorted(NEEDLESS.items())))
    return "\n".join(parts)


def _setting(setting: Setting) -> str:
    facts = [
        f"default `{_default(setting)}`",
        setting.kind.name,
        setting.unit,
        limit_text(setting),
        " or ".join(f"`{choice}`" for choice in setting.choices),
        WHEN[setting.when],
    ]
    others = ", ".join(f"`{name}`" for name in other_names(setting.name))
    also = f" Also known as {others}." if others else ""
    return (
        f"### {setting.name}\n\n{setting.text}{also}\n\n"
        f"{' · '.join(fact for fact in facts if fact)}\n"
    )


def _default(setting: Setting) -> str:
    if setting.name == "USER_AGENT":
        return "orbweb/<version>"
    value = setting.default
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "(empty)"
    if value in ("", None):
        return "(empty)"
    return str(value).lower() if isinstance(value, bool) else str(value)


def commands_section() -> str:
    """The commands and their options, as `--help` knows them."""
    return "\n".join(_command(("orbweb",), typer.main.get_command(app)))


def _command(path: tuple[str, ...], command: Any) -> Iterator[str]:
    children = getattr(command, "commands", None)
    if children is None:
        yield f"### {' '.join(path)}\n"
        yield f"{command.help}\n"
        yield f"```text\n{_usage(path, command)}\n```\n"
        options = [each for each in command.params if each.param_type_name == "option"]
        yield "".join(_option(each) for each in options if each.name != "help" and not each.hidden)
        return
    for name, child in children.items():
        if not child.hidden:
            yield from _command((*path, name), child)


def _usage(path: tuple[str, ...], command: Any) -> str:
    shown = []
    for each in command.params:
        if each.param_type_name == "argument":
            word = f"{each.metavar or each.name.upper()}{'...' if each.nargs == -1 else ''}"
            shown.append(word if each.required else f"[{word}]")
    return " ".join([*path, *shown, "[OPTIONS]"])


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = f" {option.metavar}" if option.metavar else ""
    return f"- {names}{value}: {option.help}\n"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else f"{BEGIN}{END}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
