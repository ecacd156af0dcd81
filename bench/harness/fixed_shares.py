"""Static striping, as the movers' paper compares with it: each pair of hosts has its part of each file, fixed beforehand.

Host `eastN` sends to host `westN` by `carrack cp --offset --length`, a process for each part; the other pairs' parts of the
file are sent at the same time. A pair has as many processes at once as a mover takes part in pairs.
"""

import os
import shlex
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import fleet, verify

# In place of ssh: the host is dropped, the command goes to a shell in the host's namespaces, with the addresses that sshd would tell.
SHELL = 'shift; SSH_CONNECTION="$0" exec sh -c "$*"'


class Shares:
    """The copies of all pairs, while they run."""

    def __init__(self, lab, places):
        self.count = 0
        self.ended_s = []  # when each copy that was right ended
        self.problems = []
        self._lab = lab
        self._processes = []
        pairs = len(lab.plan.rates_mbit)
        self._pools = [ThreadPoolExecutor(lab.plan.pairs) for _ in range(pairs)]
        for source, sink in places:
            Path(sink).mkdir()
            ranges = parts(Path(source, "data").stat().st_size, pairs)
            for number, (pool, part) in enumerate(zip(self._pools, ranges), 1):
                pool.submit(self._copy, number, part, f"{source}data", f"{sink}/data")
                self.count += 1

    def is_over(self):
        """Whether all parts are there, or one can't be."""
        return bool(self.problems) or len(self.ended_s) == self.count

    def end(self):
        """Ends what still runs."""
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.kill()
        for pool in self._pools:
            pool.shutdown()

    def _copy(self, number, part, source, sink):
        process = subprocess.Popen(
            command(self._lab, number, part, source, sink), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, env={**os.environ, "XDG_STATE_HOME": str(self._lab.directory / "state")},
        )
        self._processes.append(process)
        said = process.communicate()[1]
        if process.returncode:
            self.problems.append(f"pair {number}: exit status {process.returncode}: {said[-300:]}")
        else:
            self.ended_s.append(time.time())


def parts(size, count):
    """(offset, length) of as many equal parts."""
    edges = [size * number // count for number in range(count + 1)]
    return [(start, end - start) for start, end in zip(edges, edges[1:])]


def command(lab, number, part, source, sink):
    """Of one part's copy."""
    near, far = (f"{site}{number}" for site in fleet.SITES)
    connection = f"{fleet.address(near)} 0 {fleet.address(far)} 0"
    shell = shlex.join([*lab.inside(far), "sh", "-c", SHELL, connection])
    offset, length = part
    words = [*lab.inside(near), lab.carrack, "cp", "--quiet", "--sharing", "off", "--ssh", shell, "--remote-carrack", lab.carrack]
    words += ["--protection", lab.plan.protection, *lab.plan.options, "--offset", str(offset), "--length", str(length)]
    return [*words, source, f"{fleet.address(far)}:{sink}"]


def measure(lab, way, places, with_contents, timeout_s):
    """One run, all parts of all transfers."""
    run, wanted = fleet.prepare(lab, way, places)
    with lab.hosts_up():
        samples, began_s = [fleet.sample(lab)], time.time()
        shares = Shares(lab, places)
        try:
            fleet.follow(lab, run, samples, shares.is_over, timeout_s)
        finally:
            shares.end()
    run.problems += shares.problems
    if run.problems:
        return run
    fleet.judge_links(run, lab.plan, samples, began_s, max(shares.ended_s))
    run.chunks = shares.count
    run.pairs = {f"{fleet.SITES[0]}{number} {fleet.SITES[1]}{number}": len(places) for number in range(1, len(lab.plan.rates_mbit) + 1)}
    for mover in run.movers.values():
        mover["chunks"] = len(places)
    run.problems += fleet.wrong(lab, places, wanted, with_contents)
    return run
