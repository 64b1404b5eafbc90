"""Items on the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from orbweb.pipelines.base import BasePipeline, Row


class ConsolePipeline(BasePipeline):
    """Prints each row on stdout as `table {json}`. Values that JSON lacks are shown as text."""

    def save_items(self, table: str, items: list[Row]) -> bool:
        self._print(table, items)
        return True

    def update_items(self, table: str, items: list[Row], update_keys: Sequence[str]) -> bool:
        self._print(f"{table} (update by {', '.join(update_keys)})", items)
        return True

    def _print(self, title: str, items: list[Row]) -> None:
        lines = [f"{title} {json.dumps(row, ensure_ascii=False, default=str)}\n" for row in items]
        text = "".join(lines)
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
