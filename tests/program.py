"""The program `orbweb`, as a person types it in a directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

KEPT = ("PATH", "HOME", "PYTHONPATH", "TMPDIR")


class Program:
    """Runs commands in one directory, with no settings in the environment but those given."""

    def __init__(self, directory: Path, **environment: str) -> None:
        self.directory = directory
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.environment = {**kept, **environment}

    def __call__(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run `orbweb WORDS`; its exit code must be `code`."""
        done = subprocess.run(
            [sys.executable, "-m", "orbweb", *words],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *words: str, code: int = 0) -> Any:
        """What a command says with `--json`."""
        return json.loads(self(*words, "--json", code=code).stdout)
