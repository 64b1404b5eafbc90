"""The command line. This module is all that `orbweb --version` and a typing error have to load."""

from __future__ import annotations

import errno
import os
import sys
from typing import NoReturn

from orbweb.errors import ConfigError, OrbwebError, StoreUnavailable, StoreUnsafe

USAGE = 2
"""Exit code for mistakes in the command, the settings or the choice of the store."""
INTERRUPTED = 130


def main() -> None:
    """Run the command in `sys.argv` and exit with its code.

    Errors that a person can correct are one line on stderr, never a traceback.
    """
    _open_closed_streams()
    try:
        from orbweb.cli.app import app
        from orbweb.cli.program import program
        from orbweb.cli.values import read_plainly

        read_plainly()
        program(app, sys.argv[1:])()
    except (ConfigError, StoreUnsafe, StoreUnavailable) as error:
        fail(str(error), USAGE)
    except OrbwebError as error:
        fail(f"{type(error).__name__}: {error}", 1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader of our output (head, less) has left
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            _crash(error)
        _leave_output()
        fail(f"the output cannot be written: {error.strerror}", 1)
    except Exception as error:
        _crash(error)


def _crash(error: Exception) -> NoReturn:
    from orbweb.cli.crash import show_crash

    show_crash(error)
    sys.exit(1)


def _leave_output() -> None:
    """What is left in the buffer would fail once more at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _open_closed_streams() -> None:
    """See to it that a stream that was closed (`2>&-`) does not become a socket of ours."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            stream = open(descriptor, "r" if name == "stdin" else "w", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def fail(text: str, code: int) -> None:
    """Print an error to stderr and exit."""
    from orbweb.log import mask_secrets

    print(f"orbweb: {mask_secrets(text)}", file=sys.stderr)
    sys.exit(code)
