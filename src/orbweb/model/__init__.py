"""Values that travel: requests, responses, items, reasons, and how they are written. No I/O."""
