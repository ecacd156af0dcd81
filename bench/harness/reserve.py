"""Touched memory, kept until a run starts.

A virtual machine's idle memory goes back to its host within seconds, and the first touch after that
is several times dearer. So the memory that a run is going to allocate is held and touched up to
its start; without that the order of the tools decides the result.
"""

import mmap

from . import machine

PAGE_BYTES = 4096
# Never take the last of the memory: what remains is for the tools themselves.
KEEP_FREE_BYTES = 2 << 30


class Reserve:
    """One block of touched memory."""

    def __init__(self):
        self._block = None

    def fill(self, size_bytes):
        """Takes and touches memory; returns how many bytes fewer when the machine hasn't that much."""
        self.release()
        wanted_bytes = size_bytes
        size_bytes = max(0, min(wanted_bytes, machine.memory_bytes("MemAvailable") - KEEP_FREE_BYTES))
        if size_bytes >= PAGE_BYTES:
            self._take(size_bytes)
        return wanted_bytes - size_bytes

    def _take(self, size_bytes):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
        self._block = mmap.mmap(-1, size_bytes, flags=flags)
        if not hasattr(mmap, "MAP_POPULATE"):
            for offset in range(0, size_bytes, PAGE_BYTES):
                self._block[offset] = 1

    def release(self):
        """Gives it all back to the kernel, whose next allocations get these pages."""
        if self._block is not None:
            self._block.close()
            self._block = None
