"""The client library: one blocking connection to the daemon, for scripts and the command line."""

from acpmux.client.connection import Connection, Notification, RemoteError
from acpmux.client.starting import connect, connect_soon

__all__ = ["Connection", "Notification", "RemoteError", "connect", "connect_soon"]
