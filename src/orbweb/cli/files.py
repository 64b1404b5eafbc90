"""What `items dedup` does."""

from __future__ import annotations

from collections.abc import Sequence

from orbweb.cli import show
from orbweb.pipelines.dedup import dedup_file


def dedup(files: Sequence[str], *, as_json: bool) -> None:
    """Fold each file and say what was removed."""
    records = []
    for path in files:
        kept, removed = dedup_file(path)
        records.append({"file": str(path), "kept": kept, "removed": removed})
        if not as_json:
            print(f"{path}: {show.counted(kept, 'row')} kept, {show.number(removed)} removed")
    if as_json:
        show.as_json(records)
