"""Touched memory, kept until a run starts.

A virtual machine's idle memory goes back to its host within seconds, and the first touch after that
is several times dearer. So the memory that a run is going to allocate is held and touched up to
its start; without that the order of the tools decides the result. The kernel tells the host of freed memory two
seconds after the first of it was freed (PAGE_REPORTING_DELAY), a sixteenth of what is free at a time: what the run
before left has to be told by then, or the host takes memory back during the run. It does so every two seconds, of the
reserve too once that is free: 8 GiB that were written from a reserve of that size took 0.7 s a GiB, from one of 14 GiB
0.45, and where nothing was taken 0.36.
"""

import mmap
import time

from . import machine

PAGE_BYTES = 4096
# Never take the last of the memory: what remains is for the tools themselves.
KEEP_FREE_BYTES = 2 << 30
# A reserve is kept so long at least.
SETTLE_S = 5.0


class Reserve:
    """One block of touched memory."""

    def __init__(self):
        self._block = None
        self._filled_s = 0.0

    def fill(self, size_bytes):
        """Takes and touches memory; returns how many bytes fewer when the machine hasn't that much."""
        self.release()
        wanted_bytes = size_bytes
        size_bytes = max(0, min(wanted_bytes, machine.memory_bytes("MemAvailable") - KEEP_FREE_BYTES))
        if size_bytes >= PAGE_BYTES:
            self._take(size_bytes)
        self._filled_s = time.monotonic()
        return wanted_bytes - size_bytes

    def _take(self, size_bytes):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
        self._block = mmap.mmap(-1, size_bytes, flags=flags)
        if not hasattr(mmap, "MAP_POPULATE"):
            for offset in range(0, size_bytes, PAGE_BYTES):
                self._block[offset] = 1

    def settle(self):
        """Waits until it has been kept for long enough."""
        if self._block is not None:
            time.sleep(max(0.0, self._filled_s + SETTLE_S - time.monotonic()))

    def release(self):
        """Gives it all back to the kernel, whose next allocations get these pages."""
        if self._block is not None:
            self._block.close()
            self._block = None
