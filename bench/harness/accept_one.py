"""inetd for one connection: `accept_one.py PORT COMMAND...` runs COMMAND with the socket as stdin.

The command reads the socket itself, with no pipe and no relay between.
"""

import os
import socket
import sys


def main():
    """Never returns: becomes the command."""
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
        connection, _ = server.accept()
    os.dup2(connection.fileno(), 0)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
