"""What bench/sharing shows a daemon of its disks' load: their counters, a Prometheus that reads them, and a past."""

import json
import os
import random
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from . import network

PROMETHEUS = network.ROOT / "testbed" / "prometheus"
# As node_exporter calls it; its own preset leaves loop devices out.
METRIC = "node_disk_read_bytes_total"
SECTOR_BYTES = 512
# It ends by itself should nobody end it.
LIFETIME_S = 900
# It finds whom to ask after some seconds.
START_S = 30

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400
HISTORY_DAYS = 14
# The part of a disk that a job of the past has used in its hours and out of them.
BUSY, IDLE = 0.4, 0.05
BUSY_HOURS = 8
# By so much each five minutes are more or less than that, and each day's work begins earlier or later.
NOISE = 0.25
LATE_S = 20 * MINUTE_S


def missing():
    """Why there can be no Prometheus here, or None."""
    found = subprocess.run([PROMETHEUS, "binary"], capture_output=True, text=True)
    return None if found.returncode == 0 else found.stderr.strip()


def device_of(path):
    """The block device of a file system, such as loop3."""
    number = os.stat(path).st_dev
    return Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name


def read_bytes(device):
    """What was read from a device since it was made, by everybody: the kernel's count."""
    return int(Path(f"/sys/block/{device}/stat").read_text().split()[2]) * SECTOR_BYTES


@contextmanager
def exporter(devices):
    """Shows the devices' counters as node_exporter does, for the time of a `with`; yields its port."""

    class Handler(BaseHTTPRequestHandler):
        """Any path is /metrics."""

        def do_GET(self):  # noqa: N802: the library's name
            """Answers."""
            lines = [f"# TYPE {METRIC} counter"]
            lines += [f'{METRIC}{{device="{device}"}} {read_bytes(device)}' for device in devices]
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write("\n".join([*lines, ""]).encode())

        def log_message(self, *_):
            """Nobody wants to know."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def prometheus(directory, port, window_s, history=None):
    """A Prometheus that asks an exporter each second and has done so for a window, and knows a history; yields its URL."""
    targets = directory / "targets.json"
    targets.write_text(json.dumps([{"targets": [f"127.0.0.1:{port}"]}]))
    place = directory / "prometheus"
    more = ["--history", history] if history else []
    environment = {**os.environ, "CARRACK_TESTBED_LIFETIME_S": str(LIFETIME_S)}
    try:
        up = [PROMETHEUS, "up", "--dir", place, "--targets", targets, *more]
        done = subprocess.run(up, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        url = done.stdout.split()[-1]
        _wait_for_measurements(url)
        time.sleep(window_s)
        yield url
    finally:
        if place.exists():
            subprocess.run([PROMETHEUS, "down", place], check=True)


def _wait_for_measurements(url):
    """Until it has read the exporter."""
    query = urllib.parse.urlencode({"query": f'count({METRIC}{{job="testbed"}})'})
    deadline_s = time.monotonic() + START_S
    while True:
        with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=START_S) as reply:
            if json.load(reply)["data"]["result"]:
                return
        if time.monotonic() > deadline_s:
            raise OSError(f"Prometheus has not read the disks' counters within {START_S} s")
        time.sleep(0.2)


def write_history(path, devices, capacity, now_s):
    """Two weeks of a job with a daily pattern, in OpenMetrics; the present hour is one of its busy ones."""
    now_s = now_s // MINUTE_S * MINUTE_S
    # In the middle of the job's day.
    day_begins_s = (now_s - BUSY_HOURS * HOUR_S // 2) % DAY_S
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"# TYPE {METRIC.removesuffix('_total')} counter\n")
        for place, device in enumerate(devices):
            counter = 0.0
            for at_s, load in loads(now_s, day_begins_s, place):
                counter += load * capacity * MINUTE_S
                out.write(f'{METRIC}{{device="{device}",instance="past"}} {counter:.0f} {at_s}\n')
        out.write("# EOF\n")


def loads(now_s, day_begins_s, seed):
    """(Unix time, part of a disk's rate) of each minute; the same seed gives the same."""
    generator = random.Random(seed)
    lateness_s = {}
    factor = 1.0
    for at_s in range(now_s - HISTORY_DAYS * DAY_S, now_s + 1, MINUTE_S):
        day, of_day_s = divmod(at_s - day_begins_s + DAY_S // 4, DAY_S)
        late_s = lateness_s.setdefault(day, generator.uniform(-LATE_S, LATE_S))
        if at_s % (5 * MINUTE_S) == 0:
            factor = 1 + generator.uniform(-NOISE, NOISE)
        is_busy = 0 <= of_day_s - DAY_S // 4 - late_s < BUSY_HOURS * HOUR_S
        yield at_s, factor * (BUSY if is_busy else IDLE)
