"""inetd for one connection: `accept_one.py ADDRESS PORT COMMAND...` runs COMMAND with the socket as stdin.

The command reads the socket itself, with no pipe and no relay between.
"""

import os
import socket
import sys


def main():
    """Never returns: becomes the command."""
    address, port, *command = sys.argv[1:]
    with socket.create_server((address, int(port))) as server:
        connection, _ = server.accept()
    os.dup2(connection.fileno(), 0)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
