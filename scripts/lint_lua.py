"""Lint the Lua transitions as the server sees them: each with what stands in front of it.

Line numbers that luacheck prints are those of the assembled script; the head line says how many
lines of it come before the transition's own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from orbweb.frontier.scripts import SEEING, SEEN_KINDS, SHARED, TRANSITIONS, lua_text, script


def shared_names(shard: str) -> list[str]:
    """Names that `shard.lua` defines: a transition need not use them all."""
    functions = re.findall(r"^local function (\w+)", shard, re.MULTILINE)
    values = re.findall(r"^local ([\w, ]+?)(?: =|$)", shard, re.MULTILINE)
    return functions + [name.strip() for group in values for name in group.split(",")]


def main() -> int:
    shared = "\n".join(lua_text(name) for name in (*SHARED, *SEEN_KINDS.values()))
    names = dict.fromkeys(shared_names(shared))
    ignored = [f"{code}/^{name}$" for name in names for code in ("211", "221", "231", "311")]
    print(f"shard.lua ends at line {lua_text('shard').count(chr(10)) + 1} of each")
    with tempfile.TemporaryDirectory() as folder:
        for name in TRANSITIONS:
            for kind in SEEN_KINDS if name in SEEING else ("exact",):
                (Path(folder) / f"{name}.{kind}.lua").write_bytes(script(name, kind).source)
        config = Path(__file__).parent.parent / ".luacheckrc"
        command = ["luacheck", "--quiet", "--no-color", "--config", str(config), "--no-cache", "."]
        return subprocess.run([*command, "--ignore", *ignored], cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
