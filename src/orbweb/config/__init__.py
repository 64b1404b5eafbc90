"""Live values: settings that change while a crawl runs, where they come from, what holds where."""
