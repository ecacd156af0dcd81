"""A job that computes on what it reads, for bench/sharing: `steady_job.py --help`.

A unit of its work is so many requests to each disk, at the rate at which it computes on them, then a time without any. A
request is sent when it is due, or when the one before it was answered, if that is later; so a slow disk holds the unit
up, and one that is slow for a moment only does not.
"""

import argparse
import json
import mmap
import os
import signal
import threading
import time
from pathlib import Path

# A job whose parent was killed ends, too.
PARENT_POLL_S = 1.0


class Disk:
    """One of the files, read in turn from its beginning to its end, again and again."""

    def __init__(self, path, block_bytes):
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self._blocks = os.fstat(self._descriptor).st_size // block_bytes
        self._buffer = mmap.mmap(-1, block_bytes)
        self._next = 0

    def read(self):
        """The next request; how long it took."""
        begun_s = time.monotonic()
        os.preadv(self._descriptor, [self._buffer], self._next * len(self._buffer))
        self._next = (self._next + 1) % self._blocks
        return time.monotonic() - begun_s


class Job:
    """A thread for each disk, which meet after each unit."""

    def __init__(self, args):
        self._args = args
        self._disks = [Disk(path, args.block) for path in args.files]
        self._barrier = threading.Barrier(len(self._disks), action=self._settle)
        self._begun_s = None
        self._services_s = []  # of the unit that is under way; list.append is atomic
        self.units = []

    def _settle(self):
        """Between two units: all threads wait."""
        now_s = time.monotonic()
        if self._begun_s is not None:
            self.units.append({"begun_s": self._begun_s, "ended_s": now_s, "services_s": self._services_s})
            time.sleep(self._args.idle)
        self._services_s = []
        self._begun_s = time.monotonic()

    def _work(self, disk):
        interval_s = self._args.block / self._args.rate
        while True:
            self._barrier.wait()
            begun_s = self._begun_s
            for number in range(round(self._args.busy / interval_s)):
                time.sleep(max(0.0, begun_s + number * interval_s - time.monotonic()))
                self._services_s.append(disk.read())

    def run(self, stop_event):
        """Until the event is set; the units that were completed."""
        for disk in self._disks:
            threading.Thread(target=self._work, args=(disk,), daemon=True).start()
        parent = os.getppid()
        while not stop_event.wait(PARENT_POLL_S) and os.getppid() == parent:
            pass
        return self.units


def parse_args():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="one on each disk")
    add("--block", type=int, default=1 << 20, metavar="BYTES", help="of one request (default 1 MiB)")
    add("--rate", type=float, required=True, metavar="BYTES", help="a second, from each disk while it reads")
    add("--busy", type=float, required=True, metavar="S", help="a unit takes so long if the disks keep up")
    add("--idle", type=float, required=True, metavar="S", help="from a unit to the next")
    return parser.parse_args()


def main():
    """Works until SIGTERM, then prints its units as JSON; times are those of the machine's monotonic clock."""
    stop_event = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop_event.set())
    print(json.dumps(Job(parse_args()).run(stop_event)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
