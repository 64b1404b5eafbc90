"""Settings: each declared once, read from everywhere, checked before anything starts."""

from orbweb.settings.declarations import DECLARATIONS, Setting, When
from orbweb.settings.load import Settings, load_settings

__all__ = ["DECLARATIONS", "Setting", "Settings", "When", "load_settings"]
