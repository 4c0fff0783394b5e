"""The server's settings: only its user connects, by a socket, and its log holds no data."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agentmove_tools.database.embedded.account import ServerUser

NAME: Final = "agentfy"  # of the database, and of the role
PORT: Final = "5432"  # no port at all, but a part of the socket's name
_MAP: Final = "agentfy"

ACCESS: Final = f"# TYPE DATABASE USER METHOD\nlocal all all peer map={_MAP}\n"

# What ``log_min_messages`` leaves out are the errors of statements, whose texts quote data; and
# ``terse`` the details of what is left. The rest is for one user's tools: few connections, no
# replicas, no workers that only wait.
_SETTINGS: Final = """\
# Written anew at each start: what is changed here is lost.
listen_addresses = ''
unix_socket_permissions = 0700
allow_alter_system = off
max_connections = 64
client_connection_check_interval = 2s
shared_buffers = 128MB
huge_pages = off
jit = off
io_method = sync
max_worker_processes = 2
max_parallel_workers = 0
max_parallel_workers_per_gather = 0
max_parallel_maintenance_workers = 0
max_logical_replication_workers = 0
wal_level = minimal
max_wal_senders = 0
min_wal_size = 32MB
fsync = on
full_page_writes = on
logging_collector = off
log_destination = stderr
log_line_prefix = '%m [%p] '
log_timezone = 'UTC'
log_min_messages = log
log_min_error_statement = panic
log_error_verbosity = terse
log_statement = none
log_checkpoints = off
log_autovacuum_min_duration = -1
timezone = 'UTC'
datestyle = 'iso, ymd'
lc_messages = 'C'
lc_monetary = 'C'
lc_numeric = 'C'
lc_time = 'C'
default_text_search_config = 'pg_catalog.simple'
"""


def settings() -> str:
    """The text of ``postgresql.conf``."""
    # Linux has POSIX shared memory only where /dev/shm is mounted, which some containers lack.
    posix = sys.platform != "linux" or os.path.isdir("/dev/shm")  # noqa: S108 - no file is made
    return f"{_SETTINGS}dynamic_shared_memory_type = {'posix' if posix else 'mmap'}\n"


def user_map(user: ServerUser) -> str:
    """The text of ``pg_ident.conf``: only this user is the database's."""
    quoted = user.client.replace('"', '""')
    return f'# MAP USER ROLE\n{_MAP} "{quoted}" {NAME}\n'


def options(socket: str, title: str) -> list[str]:
    """What the command line says over all files, with the socket folder and the title."""
    pairs = {
        "listen_addresses": "",
        "unix_socket_directories": socket,
        "unix_socket_permissions": "0700",
        "unix_socket_group": "",
        "port": PORT,
        "cluster_name": title,
        "fsync": "on",
    }
    return [part for name, value in pairs.items() for part in ("-c", f"{name}={value}")]
