"""The daemon that shares disks out, transfers that ask it, and what each of them has read by when."""

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

from .regular import Regular

# A daemon answers after so long, or does not start.
START_S = 10
# What is asked of a daemon's socket is answered by then, or not.
ANSWER_S = 0.5


class Daemon:
    """`carrack serve` with a `[sharing]`; `more` is what stands below its socket."""

    def __init__(self, carrack, directory, more=""):
        self.carrack = carrack
        self.socket = Path(directory) / "sharing.sock"
        self.config = Path(directory) / "sharing.toml"
        self.log = Path(directory) / "serve.log"
        self._more = more
        self._process = None

    @contextmanager
    def up(self):
        """It runs, for the time of a `with`."""
        self.config.write_text(f'[sharing]\nsocket = "{self.socket}"\n{self._more}')
        try:
            self.start()
            yield self
        finally:
            self.end(signal.SIGTERM)

    def start(self):
        """Starts it, and waits until it answers."""
        with open(self.log, "ab") as log:
            command = [self.carrack, "serve", "--config", self.config]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline_s = time.monotonic() + START_S
        while targets_of(self.socket) is None:
            if time.monotonic() > deadline_s or self._process.poll() is not None:
                raise OSError(f"the daemon does not start: {self.log.read_text()}")
            time.sleep(0.01)

    def end(self, number):
        """Sends it a signal that ends it, and waits until it has ended."""
        if self._process:
            # A stopped one hears of nothing else.
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(number)
            try:
                self._process.wait(START_S)
            finally:
                self._process.kill()
                self._process.wait()
                self._process = None

    def signal(self, number):
        """Sends it a signal that it lives on with."""
        self._process.send_signal(number)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path, timeout_s):
        super().__init__("localhost", timeout=timeout_s)
        self._path = str(path)

    def connect(self):
        """To the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def targets_of(path):
    """What `carrack targets --json` shows, asked of the daemon's socket; None if it does not answer."""
    connection = UnixConnection(path, ANSWER_S)
    try:
        connection.request("GET", "/v1/targets")
        reply = connection.getresponse()
        return json.loads(reply.read()) if reply.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def copy_command(carrack, files, target, sharing, *more):
    """`carrack cp` of these files, past the page cache."""
    return [carrack, "cp", "--sharing", sharing, "--source-io", "direct", "--buffer", "64MiB", *more, *files, f"{target}/"]


class Transfer:
    """The processes of one transfer, while they run and afterwards."""

    def __init__(self, commands, listens=False):
        self.lines = []  # (monotonic time, text) that it said, if somebody listens
        self.end_s = None
        self.codes = None
        err = subprocess.PIPE if listens else subprocess.DEVNULL
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": err}
        self.processes = []
        self._threads = []
        try:
            for command in commands:
                self.processes.append(subprocess.Popen([str(word) for word in command], **quiet))
        except OSError:
            self.kill()
            raise
        for process in self.processes if listens else ():
            self._begin(self._listen, process)
        self._begin(self._wait)

    def _begin(self, work, *words):
        thread = threading.Thread(target=work, args=words)
        thread.start()
        self._threads.append(thread)

    def _listen(self, process):
        for line in process.stderr:
            self.lines.append((time.monotonic(), line.decode(errors="replace").rstrip()))

    def _wait(self):
        codes = [process.wait() for process in self.processes]
        self.end_s = time.monotonic()
        self.codes = codes

    @property
    def pid(self):
        """Of its first process."""
        return self.processes[0].pid

    def runs(self):
        """Whether any of it runs."""
        return self.codes is None

    def kill(self):
        """Ends it at once."""
        for process in self.processes:
            process.kill()

    def wait(self):
        """Until it has ended and everything it said was heard."""
        for thread in self._threads:
            thread.join()

    def said(self, words, since_s=0.0):
        """When it first said a line with these words, from a time on; None if it didn't."""
        return next((at_s for at_s, line in self.lines if words in line and at_s >= since_s), None)

    def read_bytes(self):
        """What its processes have had from disks until now, by the kernel's account; none that has ended counts."""
        return sum(_read_bytes(process.pid) for process in self.processes)


def _read_bytes(pid):
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes:")), 0)


@contextmanager
def crowd(transfers, listens=False):
    """Starts transfers, of which each is a list of commands, at once; whatever still runs at the end is killed."""
    started = []
    try:
        for commands in transfers:
            started.append(Transfer(commands, listens))
        yield started
    finally:
        for transfer in started:
            if transfer.runs():
                transfer.kill()
        for transfer in started:
            transfer.wait()


class Meter(Regular):
    """Notes what each transfer has read, again and again, for the time of a `with`."""

    def __init__(self, transfers, every_s):
        super().__init__(every_s)
        self.samples = []  # (monotonic time, [bytes of each transfer])
        self._transfers = transfers
        self._latest = [0] * len(transfers)

    def look(self):
        """What they have read now; one that has ended has no account any more."""
        both = zip(self._latest, self._transfers, strict=True)
        self._latest = [max(before, transfer.read_bytes()) for before, transfer in both]
        self.samples.append((time.monotonic(), self._latest))


def between(samples, begin_s, end_s):
    """The samples of a time."""
    return [(at_s, values) for at_s, values in samples if begin_s <= at_s <= end_s]


def rates(samples):
    """Bytes per second of each, from the first sample to the last one."""
    (begin_s, before), (end_s, after) = samples[0], samples[-1]
    return [(late - early) / (end_s - begin_s) for early, late in zip(before, after, strict=True)]


def worst_window(samples, index, window_s):
    """The least bytes per second that one had in any `window_s` seconds; of all of the time if that is shorter."""
    worst, first = None, 0
    for last, (at_s, values) in enumerate(samples):
        # The latest beginning that is a whole window before.
        while first + 1 < last and at_s - samples[first + 1][0] >= window_s:
            first += 1
        since_s, before = samples[first]
        if at_s - since_s >= window_s:
            rate = (values[index] - before[index]) / (at_s - since_s)
            worst = rate if worst is None else min(worst, rate)
    return rates(samples)[index] if worst is None else worst


def longest_pause(samples, of):
    """The longest time between two samples in which `of` the values did not grow."""
    longest, (since_s, value) = 0.0, (samples[0][0], of(samples[0][1]))
    for at_s, values in samples:
        if of(values) != value:
            since_s, value = at_s, of(values)
        longest = max(longest, at_s - since_s)
    return longest


def wait_until(condition, timeout_s, every_s=0.02):
    """Whether it became true in time."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(every_s)
    return True


def host():
    """This host's name, as targets have it in front."""
    return os.uname().nodename
