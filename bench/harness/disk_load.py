"""Loads disks with direct reads or writes of one size, and says what it got: `disk_load.py --help`.

Each of its threads has one request under way; they wait in the kernel, so that all of it takes a few percent of a core.
"""

import argparse
import json
import mmap
import os
import signal
import sys
import threading
import time
from pathlib import Path

READY = "ready"
# A load whose parent was killed ends, too.
PARENT_POLL_S = 1.0


class Disk:
    """The blocks of one disk that requests go to, in turn."""

    def __init__(self, path, block_bytes, writes):
        self.moved_bytes = 0
        self._lock = threading.Lock()
        self._next = 0
        self._blocks = []  # (descriptor, offset)
        flags = os.O_DIRECT | (os.O_RDWR if writes else os.O_RDONLY)
        for name in sorted(Path(path).rglob("*")) if Path(path).is_dir() else [Path(path)]:
            blocks = name.stat().st_size // block_bytes if name.is_file() else 0
            if blocks:
                descriptor = os.open(name, flags)
                self._blocks += [(descriptor, number * block_bytes) for number in range(blocks)]
        if not self._blocks:
            sys.exit(f"disk_load: no file of {block_bytes} bytes below {path}")

    def next_block(self):
        """The descriptor and offset of the next request."""
        with self._lock:
            self._next += 1
            return self._blocks[self._next % len(self._blocks)]


def place(elapsed_s, lane, width, step_s, disks):
    """The disk that a lane works on: `width` neighbours at a time, the next ones after each step."""
    step = int(elapsed_s / step_s) if step_s else 0
    return (step * width + lane) % disks


class Load:
    """All threads of one load."""

    def __init__(self, args):
        self.disks = [Disk(path, args.block, args.write) for path in args.disks]
        self._args = args
        self._width = min(args.width or len(self.disks), len(self.disks))
        self._stop = threading.Event()
        self._services = []  # (begun after the start, seconds) of each request; list.append is atomic
        self._start_s = time.monotonic()
        lanes = [lane for lane in range(self._width) for _ in range(args.depth)]
        self._threads = [threading.Thread(target=self._work, args=(lane,), daemon=True) for lane in lanes]

    def _work(self, lane):
        args, buffer = self._args, mmap.mmap(-1, self._args.block)
        if args.write:
            buffer.write(os.urandom(1 << 16) * (args.block >> 16))
        move = os.pwritev if args.write else os.preadv
        while not self._stop.is_set():
            begun_s = time.monotonic()
            disk = self.disks[place(begun_s - self._start_s, lane, self._width, args.step, len(self.disks))]
            descriptor, offset = disk.next_block()
            moved_bytes = move(descriptor, [buffer], offset)
            self._services.append((begun_s - self._start_s, time.monotonic() - begun_s))
            disk.moved_bytes += moved_bytes

    def run(self, stop_event):
        """Until the event is set; what it did."""
        self._start_s = time.monotonic()
        for thread in self._threads:
            thread.start()
        print(READY, flush=True)
        parent = os.getppid()
        while not stop_event.wait(PARENT_POLL_S) and os.getppid() == parent:
            pass
        seconds = time.monotonic() - self._start_s
        moved = [disk.moved_bytes for disk in self.disks]
        services_s = [service_s for _, service_s in self._services]
        self._stop.set()  # what is under way is not waited for: on a slow disk that may take long
        return {"seconds": seconds, "bytes": sum(moved), "bytes_by_disk": moved, "services_s": services_s}


def parse_args():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("disks", nargs="+", metavar="DISK", help="a file, or a directory with files")
    add("--block", type=int, default=1 << 20, metavar="BYTES", help="of one request (default 1 MiB)")
    add("--depth", type=int, default=1, help="requests at a time on each disk (default 1)")
    add("--width", type=int, default=0, metavar="N", help="work on N disks at a time, not on all")
    add("--step", type=float, default=0, metavar="S", help="go on to the next disks after so long (default: never)")
    add("--write", action="store_true", help="write instead of reading: what is there is lost")
    return parser.parse_args()


def main():
    """Works until SIGTERM, then prints what it did as JSON. Says `ready` first."""
    load = Load(parse_args())
    stop_event = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop_event.set())
    print(json.dumps(load.run(stop_event)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
