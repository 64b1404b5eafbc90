"""`scrapy crawl SPIDER --stop-after N`."""

from __future__ import annotations

import argparse

from scrapy.commands.crawl import Command as ScrapyCrawl


class Command(ScrapyCrawl):
    """Scrapy's own command, with the option that ends it after so many requests."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """See `ScrapyCommand`."""
        super().add_options(parser)
        parser.add_argument(
            "--stop-after",
            metavar="N",
            help="finish N requests, give the rest back to the other workers, and close",
        )

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        """See `ScrapyCommand`."""
        super().process_options(args, opts)
        if opts.stop_after is not None:
            assert self.settings is not None
            self.settings.set("ORBWEB_STOP_AFTER", opts.stop_after, priority="cmdline")
