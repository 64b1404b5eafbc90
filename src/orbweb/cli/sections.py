"""How the list of commands is ordered: by what a person wants to do."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

SECTIONS = (
    ("Write", ("new", "genspider", "genitem", "list", "record", "check")),
    ("Try", ("shell", "fetch", "view", "parse")),
    ("Run", ("run", "demo", "consume", "tasks", "migrate")),
    ("Watch", ("jobs", "status", "nodes", "hosts", "batches", "log", "metrics", "alerts")),
    ("Ask", ("explain", "failed", "items", "diff", "dedup", "ledger")),
    ("Act", ("pause", "resume", "stop", "reset", "limit", "rates", "config")),
    ("Care", ("doctor", "settings", "store", "bundle", "version")),
)
"""Commands that stand in none of these come last."""

REST = "More"


class SectionedGroup(TyperGroup):
    """The program; its help lists the commands in sections."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; where the name of a job is missing, say where names are found."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            missing = type(error).__name__ == "MissingParameter"
            if missing and getattr(error.param, "metavar", "") == "JOB":
                error.message = "The jobs of the store: orbweb jobs"
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write all sections, each with its commands and what they do."""
        shown = {name: each for name, each in self.commands.items() if not each.hidden}
        known = [name for _, names in SECTIONS for name in names]
        rest = tuple(name for name in shown if name not in known)
        widest = max(map(len, shown), default=0)
        limit = formatter.width - 6 - widest
        for title, names in (*SECTIONS, (REST, rest)):
            rows = [
                (name.ljust(widest), shown[name].get_short_help_str(limit))
                for name in names
                if name in shown
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
