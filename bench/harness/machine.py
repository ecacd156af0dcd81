"""The state of the machine: idle or not, how fast its memory is now, what it is."""

import os
import platform
import subprocess
import time
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")

# A machine on which others take less than this share of a core counts as idle.
IDLE_CORES = 0.05
IDLE_WINDOW_S = 0.4

# Large against the caches (2 MiB L2), small against the time of a run.
PROBE_BYTES = 64 << 20
PROBE_COPIES = 4


def busy_s():
    """CPU seconds that all cores together have been busy since boot, or were taken by the host (steal)."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in fields[:8])
    return (user + nice + system + irq + softirq + steal) * TICK_S


def busy_cores(window_s=IDLE_WINDOW_S):
    """How many cores were busy in the next `window_s` seconds."""
    start_busy_s, start_s = busy_s(), time.monotonic()
    time.sleep(window_s)
    return (busy_s() - start_busy_s) / (time.monotonic() - start_s)


def wait_until_idle(timeout_s):
    """Waits until nobody else computes; False when the machine didn't get idle in time."""
    deadline_s = time.monotonic() + timeout_s
    while busy_cores() > IDLE_CORES:
        if time.monotonic() > deadline_s:
            return False
    return True


class MemoryProbe:
    """Times a memory copy. A guest can't see that its host is busy, but a slow copy shows it."""

    # A run starts only while the probe is within this of the best one seen.
    SLOWER_THAN_BEST = 1.30

    def __init__(self):
        self._from = memoryview(bytearray(os.urandom(1 << 20) * (PROBE_BYTES >> 20)))
        self._to = memoryview(bytearray(b"\1" * PROBE_BYTES))
        self.best_gb_per_s = 0.0

    def measure(self):
        """Memory copy rate now, in GB/s."""
        start_s = time.perf_counter()
        for _ in range(PROBE_COPIES):
            self._to[:] = self._from
        rate = PROBE_BYTES * PROBE_COPIES / (time.perf_counter() - start_s) / 1e9
        self.best_gb_per_s = max(self.best_gb_per_s, rate)
        return rate

    def is_slow(self, gb_per_s):
        """Whether a run now would measure the host rather than the tool."""
        return gb_per_s * self.SLOWER_THAN_BEST < self.best_gb_per_s


def _read(path, default="?"):
    try:
        return Path(path).read_text().strip()
    except OSError:
        return default


def _cpu_model():
    for line in _read("/proc/cpuinfo", "").splitlines():
        if line.startswith("model name"):
            return " ".join(line.split(":", 1)[1].split())
    return platform.machine()


def memory_bytes(key="MemTotal"):
    """A line of /proc/meminfo in bytes."""
    for line in _read("/proc/meminfo", "").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _file_system(path):
    found = subprocess.run(["stat", "-f", "-c", "%T", str(path)], capture_output=True, text=True)
    return found.stdout.strip() or "?"


def _os_name():
    for line in _read("/etc/os-release", "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.split("=", 1)[1].strip('"')
    return platform.system()


def describe(work_dir):
    """One line that says what machine the numbers are of."""
    huge = _read("/sys/kernel/mm/transparent_hugepage/enabled")
    huge = huge[huge.find("[") + 1 : huge.find("]")] if "[" in huge else huge
    parts = [
        f"{os.cpu_count()} cores of {_cpu_model()}",
        f"{memory_bytes() / (1 << 30):.0f} GiB memory",
        f"Linux {platform.release()}",
        _os_name(),
        f"data on {_file_system(work_dir)}",
        f"TCP {_read('/proc/sys/net/ipv4/tcp_congestion_control')}",
        f"loopback MTU {_read('/sys/class/net/lo/mtu')}",
        f"huge pages {huge}",
    ]
    return ", ".join(parts)
