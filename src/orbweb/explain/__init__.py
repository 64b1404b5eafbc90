"""Why a URL was or was not crawled."""
