"""Lint the Lua transitions as the server sees them: each behind the shared pieces that it needs.

Line numbers that luacheck prints are those of the assembled script.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from orbweb.frontier.scripts import (
    SEEING,
    SEEN_KINDS,
    TRANSITIONS,
    lua_text,
    parts,
    script,
)

SCRAPY = Path(__file__).parent.parent / "src/orbweb/adapters/scrapy/lua"
"""Scripts that stand alone."""


def shared_names(shard: str) -> list[str]:
    """Names that a shared piece defines: a transition need not use them all."""
    functions = re.findall(r"^local function (\w+)", shard, re.MULTILINE)
    values = re.findall(r"^local ([\w, ]+?)(?: =| --|$)", shard, re.MULTILINE)
    return functions + [name.strip() for group in values for name in group.split(",")]


def main() -> int:
    pieces = sorted(
        {part for name in TRANSITIONS for kind in SEEN_KINDS for part in parts(name, kind)[:-1]}
    )
    shared = {name for part in pieces for name in shared_names(lua_text(part))}
    codes = ("211", "221", "231", "311")
    ignored = [f"{code}/^{name}$" for name in sorted(shared) for code in codes]
    print(f"line numbers count from the first piece of each script: {', '.join(pieces)}")
    with tempfile.TemporaryDirectory() as folder:
        for name in TRANSITIONS:
            for kind in SEEN_KINDS if name in SEEING else ("exact",):
                (Path(folder) / f"{name}.{kind}.lua").write_bytes(script(name, kind).source)
        for path in SCRAPY.glob("*.lua"):
            (Path(folder) / f"scrapy.{path.name}").write_bytes(path.read_bytes())
        config = Path(__file__).parent.parent / ".luacheckrc"
        command = ["luacheck", "--quiet", "--no-color", "--config", str(config), "--no-cache", "."]
        return subprocess.run([*command, "--ignore", *ignored], cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
