"""Server processes of peers: started before the clock, ended by pid."""

import os
import random
import signal
import socket
import subprocess
import time
from pathlib import Path

# Below the kernel's default range of ports for outgoing connections.
PORTS = range(20000, 32000)
# A run gets so many ports in a row, as some servers listen on one for each connection.
PORTS_EACH = 8
START_TIMEOUT_S = 20
STOP_TIMEOUT_S = 10
LISTEN_STATE = "0A"  # in /proc/net/tcp


def free_port():
    """The first of some ports in a row that nobody listens on now."""
    while True:
        port = random.choice(PORTS)
        if all(_is_free(port + i) for i in range(PORTS_EACH)):
            return port


def _is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


def is_listening(port, pid):
    """Whether somebody listens in the network that process `pid` is in.

    Asked without connecting, as some servers take one connection only.
    """
    wanted = f":{port:04X}"
    for table in (f"/proc/{pid}/net/tcp", f"/proc/{pid}/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:  # no IPv6, or the process has ended
            continue
        for line in lines:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[3] == LISTEN_STATE:
                return True
    return False


def end(pid):
    """Ends a process that the harness started, and knows by its pid."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if not _runs(pid):
                return
            time.sleep(0.005)


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Server:
    """A running server. `takes_one` marks one that serves one transfer and exits."""

    def __init__(self, command, port, log_path, takes_one=False):
        self.takes_one = takes_one
        self._log_path = log_path
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not is_listening(port, self.process.pid):
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                self.stop()
                raise OSError(f"{Path(log_path).stem} doesn't listen: {self.log_tail()}")
            time.sleep(0.005)

    def wait_done(self, timeout_s):
        """For a server that takes one transfer: waits for its end; True when it ended well."""
        try:
            return self.process.wait(timeout_s) == 0
        except subprocess.TimeoutExpired:
            return False

    def log_tail(self):
        """The last lines that it wrote."""
        return "\n".join(Path(self._log_path).read_text(errors="replace").splitlines()[-5:])

    def stop(self):
        """Ends it."""
        if self.process.poll() is None:
            end(self.process.pid)
            self.process.wait()
