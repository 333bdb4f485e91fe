"""Who may talk to the daemon: on the Unix socket, its own user alone."""

import os
import socket
import struct


def peer_is_user(connection: socket.socket) -> bool:
    """True when the peer's process belongs to our user (SO_PEERCRED, unix(7)); root may do anything anyway."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # elsewhere the folder's mode 0700 keeps others out
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return uid == os.getuid()
