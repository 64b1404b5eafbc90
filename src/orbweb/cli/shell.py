"""`shell`: a Python prompt with a request, its response and the spider's way of fetching."""

from __future__ import annotations

import asyncio
import code
import shlex
import sys
import threading
import traceback
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from orbweb.cli import show
from orbweb.cli.bench import Wish, open_bench
from orbweb.cli.pages import FAILED
from orbweb.engine.threads import loop_factory
from orbweb.errors import ConfigError, OrbwebError
from orbweb.log import mask_secrets
from orbweb.replay.bench import Bench
from orbweb.replay.prompt import Prompt
from orbweb.replay.subject import Subject


def shell(wish: Wish, target: str, source: str | None) -> int:
    """Open the prompt, or run `source` and print what it gives. Returns the exit code.

    With `source` it is that of `fetch`, after the last page that was to be fetched.
    """
    how = f" --store {shlex.quote(wish.store)}" if wish.store else ""
    with LoopThread() as loop, _bench(wish, loop) as bench:
        subject: Subject = loop.call(bench.subject(target))
        prompt = Prompt(bench, subject, loop.call, how)
        _begin(prompt)
        if source is not None:
            for note in subject.notes:
                show.note(f"note: {mask_secrets(note)}")
            return run_code(source, prompt.names) or (0 if prompt.got_page else FAILED)
        _interact(prompt)
    return 0


def _begin(prompt: Prompt) -> None:
    """A page that is named by its address is fetched at once; a failure is no end."""
    try:
        prompt.begin(show.note)
    except OrbwebError as error:  # HostBusy, StoreUnavailable
        show.note(f"not fetched: {mask_secrets(str(error))}")


def run_code(source: str, names: dict[str, Any]) -> int:
    """Run code and print the value of an expression, as a prompt does. `FAILED` when it raises."""
    try:
        compiled = compile(source, "-c", "eval")
    except SyntaxError:
        try:
            compiled = compile(source, "-c", "exec")
        except SyntaxError as error:
            raise ConfigError(f"-c: {error}") from None
    try:
        value = eval(compiled, names)  # what the person typed, as at the prompt
    except Exception as error:
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(type(error), error, trace)
        return FAILED
    if value is not None:
        print(value if isinstance(value, str) else repr(value))
    return 0


def _interact(prompt: Prompt) -> None:
    if not sys.stdin.isatty():
        _interact_plainly(prompt, banner="")
        return
    try:
        from IPython import start_ipython  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        _interact_plainly(prompt, prompt.banner())
    else:
        print(prompt.banner())
        start_ipython(argv=["--no-banner"], user_ns=prompt.names)


def _interact_plainly(prompt: Prompt, banner: str) -> None:
    with suppress(ImportError):  # arrow keys, history and completion, where Python has them
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer(prompt.names).complete)
        readline.parse_and_bind("tab: complete")
    code.interact(banner=banner, local=prompt.names, exitmsg="")


class LoopThread:
    """An event loop on a thread of its own, so that the prompt can wait for what happens there."""

    def __enter__(self) -> LoopThread:
        self._runner = asyncio.Runner(loop_factory=loop_factory())
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="orbweb-shell")
        self._thread.daemon = True
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._runner.close()

    def call(self, work: Awaitable[Any]) -> Any:
        """Await something on the loop. Ctrl-C cancels it and is raised here."""

        async def main() -> Any:
            return await work

        future = asyncio.run_coroutine_threadsafe(main(), self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise


@contextmanager
def _bench(wish: Wish, loop: LoopThread) -> Iterator[Bench]:
    opened = open_bench(wish)
    bench: Bench = loop.call(opened.__aenter__())
    try:
        yield bench
    finally:
        loop.call(opened.__aexit__(None, None, None))
