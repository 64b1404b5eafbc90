"""One page by hand: fetched and parsed as a spider's run would, or taken from the failed ones."""
