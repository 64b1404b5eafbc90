"""Lint the Lua transitions as the server sees them: each with `shard.lua` in front.

Line numbers that luacheck prints are those of the assembled script; the head line says how many
lines of it come before the transition's own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from orbweb.frontier.scripts import TRANSITIONS, lua_text, script


def shared_names(shard: str) -> list[str]:
    """Names that `shard.lua` defines: a transition need not use them all."""
    functions = re.findall(r"^local function (\w+)", shard, re.MULTILINE)
    values = re.findall(r"^local ([\w, ]+?)(?: =|$)", shard, re.MULTILINE)
    return functions + [name.strip() for group in values for name in group.split(",")]


def main() -> int:
    shard = lua_text("shard")
    ignored = [f"{code}/^{name}$" for name in shared_names(shard) for code in ("211", "221", "231")]
    print(f"transitions begin at line {shard.count(chr(10)) + 3}; before that is shard.lua")
    with tempfile.TemporaryDirectory() as folder:
        for name in TRANSITIONS:
            (Path(folder) / f"{name}.lua").write_bytes(script(name).source)
        config = Path(__file__).parent.parent / ".luacheckrc"
        command = ["luacheck", "--quiet", "--no-color", "--config", str(config), "--no-cache", "."]
        return subprocess.run([*command, "--ignore", *ignored], cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
