"""What a package may hold at most (Agent package, section 2). Each is checked before memory is."""

from __future__ import annotations

from typing import Final

MAX_UPLOAD: Final = 25 << 20  # bytes of the archive
MAX_ENTRIES: Final = 20_000  # folders included
MAX_FOLDERS: Final = 20_000  # those that are there only because something lies in them, too
MAX_UNPACKED: Final = 128 << 20  # bytes of all contents together
MAX_EVENTS: Final = 1_000_000  # of all sessions together
MAX_JSON: Final = 10 << 20  # bytes of one JSON file, or of one event's line
MAX_ID: Final = 1024  # bytes of an ID in UTF-8: an index of a database has to hold it
MAX_NAME: Final = 1 << 16  # characters of a name in the configuration
MAX_SECRETS: Final = 1 << 20  # bytes of one file of secrets, which is read whole
MAX_NAMES: Final = 100_000  # of all secrets together
MAX_PATH: Final = 4096  # bytes of a path in UTF-8, as in a Move Stream
MAX_FRONT_MATTER: Final = 64 << 10  # bytes from the opening --- to the closing one
