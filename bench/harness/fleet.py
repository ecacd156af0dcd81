"""What `bench/fleet` measures with: a fleet of two sites, each mover behind a link of its own rate.

This process goes into a network namespace of its own, which has a bridge, the NATS server and the manager; each mover
has another one, and another host name. They have no names that would stay: they are gone with their processes, and
these with this one, however it ends.
"""

import ctypes
import os
import signal
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import machine, verify
from .fleet_watch import Watch
from .network import ROOT

# What movers leave in a directory that they serve, to know that they see the same.
SITE_MARK = ".carrack.site"
SITES = ("east", "west")  # data goes from the first to the second
SERVER = "10.77.0.1"
URL = f"nats://{SERVER}:4222"
# As data transfer nodes have it; headers take 66 of 9014 bytes of a frame, with TCP's timestamps.
MTU = 9000
GOODPUT = (MTU - 52) / (MTU + 14)
# A packet as the stack hands it over, 64 KiB, has to fit.
BURST = "128kb"
# What a link's queue holds at most: of a slow one the four packets that BBR keeps under way at least, of 16 connections.
QUEUE = "200ms"
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
START_S = 20
# A link that carries less than this share of its rate is not at work.
AT_WORK = 0.1
SAMPLE_S = 0.5
NOISE_BYTES = 64 << 20
LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass
class Plan:
    """One fleet, and what it has to carry."""

    rates_mbit: list
    pairs: int  # of each mover at most
    options: list = field(default_factory=list)  # of `carrack submit`
    protection: str = "private"

    @property
    def sum_mbit(self):
        """Of the links of one site's movers."""
        return sum(self.rates_mbit)

    @property
    def bytes_per_s(self):
        """The same in bytes."""
        return self.sum_mbit * 1e6 / 8


@dataclass
class Run:
    """What a run came to."""

    way: str
    bytes: int = 0
    wall_s: float = 0.0
    ratio: float = 0.0  # of the links' sum
    tail_s: float = 0.0  # from the first source mover's last work to the last one's
    close_s: float = 0.0  # from the last mover's last work to the last transfer's end
    busy_cores: float = 0.0
    movers: dict = field(default_factory=dict)  # source movers by name: what each did
    pairs: dict = field(default_factory=dict)  # which source sent to which sink: how many pairs
    chunks: int = 0
    moved_twice: int = 0
    problems: list = field(default_factory=list)


def own_network():
    """Goes into a network namespace that nobody else has."""
    if LIBC.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "there is no network namespace to be had")
    ip(["link set lo up", "link add br0 type bridge", f"link set br0 mtu {MTU} up", f"addr add {SERVER}/16 dev br0"])


def _end_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def ip(lines, pid=None):
    """Lines for `ip`, in this network namespace or a process's."""
    inside = ["nsenter", f"--net=/proc/{pid}/ns/net"] if pid else []
    subprocess.run([*inside, "ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)


def shape(device, rate_mbit, pid=None):
    """Limits what a device sends."""
    inside = ["nsenter", f"--net=/proc/{pid}/ns/net"] if pid else []
    words = f"tc qdisc add dev {device} root tbf rate {rate_mbit:g}mbit burst {BURST} latency {QUEUE}"
    subprocess.run([*inside, *words.split()], check=True)


def link_bytes(text, names):
    """Of /proc/net/dev: {name: (received, sent)}."""
    lines = (line.split(":") for line in text.splitlines() if ":" in line)
    counts = {name.strip(): rest.split() for name, rest in lines}
    return {name: (int(counts[name][0]), int(counts[name][8])) for name in names if name in counts}


def address(name):
    """Of a host."""
    return f"10.77.{SITES.index(name[:-1]) + 1}.{name[-1]}"


class Fleet:
    """A server, a manager, and the movers, while it is up."""

    def __init__(self, plan, carrack, nats, directory):
        self.plan, self.carrack, self._nats = plan, str(carrack), nats
        self.directory = directory
        self._processes = {}
        self.names = [f"{site}{n}" for n in range(1, len(plan.rates_mbit) + 1) for site in SITES]

    @contextmanager
    def up(self, watching):
        """All of it for the time of a `with`, and what is said on NATS."""
        private = self.directory / "fleet"
        private.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            stack.callback(self._end)
            config = private / "nats.conf"
            store = private / "store"
            config.write_text(f'listen: {SERVER}:4222\njetstream {{ store_dir: "{store}", sync_interval: always }}\n')
            stack.callback(lambda: subprocess.run(["rm", "-rf", str(store)], check=True))
            self._start("nats", [self._nats, "-c", str(config)], "Server is ready")
            watch = stack.enter_context(Watch(SERVER, 4222, watching))
            self._start("manager", [self.carrack, "manager", "--nats", URL], " copies")
            for name in self.names:
                self._start_mover(name)
            for name in self.names:
                self._await(name, "at ")
            yield watch

    @contextmanager
    def hosts_up(self):
        """Only the hosts and their links, for the time of a `with`."""
        (self.directory / "fleet").mkdir(parents=True, exist_ok=True)
        try:
            for name in self.names:
                self._start_host(name, ["sleep", "infinity"])
            yield
        finally:
            self._end()

    def inside(self, name):
        """What a command begins with that runs on a host."""
        namespaces = f"/proc/{self._processes[name].pid}/ns"
        return ["nsenter", f"--net={namespaces}/net", f"--uts={namespaces}/uts"]

    def places(self, kind, count):
        """(source, destination) of so many transfers."""
        source, sink = (self.directory / site for site in SITES)
        return [(f"{source}/{kind}/t{number}/", f"{sink}/t{number}") for number in range(count)]

    def _log(self, name):
        return self.directory / "fleet" / f"{name}.log"

    def _start(self, name, command, said=None, **more):
        with open(self._log(name), "wb") as log:
            self._processes[name] = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=_end_with_parent, **more
            )
        if said:
            self._await(name, said)

    def _await(self, name, said):
        deadline_s = time.monotonic() + START_S
        while said not in self._log(name).read_text(errors="replace"):
            if self._processes[name].poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"{name} does not start: {self._log(name).read_text(errors='replace')[-500:]}")
            time.sleep(0.05)

    def _start_mover(self, name):
        site = name[:-1]
        words = [self.carrack, "mover", "--nats", URL, "--site", site, "--path", str(self.directory / site)]
        words += ["--listen", f"{address(name)}:0", "--pairs", str(self.plan.pairs), "--protection", self.plan.protection]
        self._start_host(name, words)

    def _start_host(self, name, words):
        # It waits for its link.
        script = 'hostname "$0"; read -r _; exec "$@"'
        command = ["unshare", "--net", "--uts", "sh", "-c", script, name, *words]
        self._start(name, command, stdin=subprocess.PIPE)
        process = self._processes[name]
        while os.readlink(f"/proc/{process.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.01)
        rate_mbit = self.plan.rates_mbit[int(name[-1]) - 1]
        ip([f"link add {name} mtu {MTU} type veth peer name eth0 mtu {MTU} netns {process.pid}",
            f"link set {name} master br0 up"])
        ip(["link set lo up", "link set eth0 up", f"addr add {address(name)}/16 dev eth0"], process.pid)
        shape(name, rate_mbit)
        shape("eth0", rate_mbit, process.pid)
        process.stdin.write(b"\n")
        process.stdin.close()

    def _end(self):
        for process in reversed(self._processes.values()):
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
        # The kernel takes a namespace's devices away in its own time; the next fleet's have the same names.
        for name in self.names:
            subprocess.run(["ip", "link", "del", name], stderr=subprocess.DEVNULL)

    def submit(self, places, more):
        """Submits all at once: [(process, ...)]."""
        words = [self.carrack, "submit", "--nats", URL, "--protection", self.plan.protection, *self.plan.options, *more]
        started = [
            subprocess.Popen([*words, f"{SITES[0]}:{source}", f"{SITES[1]}:{sink}"], stdout=subprocess.PIPE,
                             text=True, preexec_fn=_end_with_parent)
            for source, sink in places
        ]
        return [process.communicate()[0].strip() for process in started]

    def ended(self):
        """Names of processes that have ended, which none should."""
        return [name for name, process in self._processes.items() if process.poll() is not None]


def make_data(directory, count, total_bytes):
    """One incompressible file in each of `count` directories."""
    noise = os.urandom(NOISE_BYTES)
    each = total_bytes // count // (1 << 20) * (1 << 20)
    for number in range(count):
        path = directory / f"t{number}" / "data"
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size == each:
            continue
        with open(path, "wb", buffering=0) as out:
            left, start = each, number * 7919 % NOISE_BYTES
            while left:
                piece = memoryview(noise)[start : start + min(left, NOISE_BYTES - start)]
                left, start = left - out.write(piece), 0
    for path in directory.iterdir():
        if int(path.name[1:]) >= count:
            subprocess.run(["rm", "-rf", str(path)], check=True)


def measure(fleet, way, places, more, with_contents, timeout_s, keep=None):
    """One run of a fleet of its own, all transfers at once. `keep` gets what was said on NATS."""
    run, wanted = prepare(fleet, way, places)
    with fleet.up(keep) as watch:
        time.sleep(3)  # the manager has heard of all movers
        samples = [sample(fleet)]
        ids = fleet.submit(places, more)
        follow(fleet, run, samples, lambda: all(watch.is_over(transfer) for transfer in ids), timeout_s)
        if run.problems:
            return run
        records = [watch.records[transfer] for transfer in ids]
        judge(run, fleet.plan, records, samples, watch)
    run.problems += wrong(fleet, places, wanted, with_contents and not run.problems)
    return run


def prepare(fleet, way, places):
    """An empty destination; the run that begins, and what is to be there at its end."""
    sink = fleet.directory / SITES[1]
    subprocess.run(["rm", "-rf", str(sink)], check=True)
    sink.mkdir()
    wanted = verify.list_tree(Path(places[0][0]).parent)
    return Run(way, bytes=wanted.total_bytes), wanted


def follow(fleet, run, samples, is_over, timeout_s):
    """Takes samples of the links until `is_over()`; the run gets what went wrong meanwhile."""
    busy_s, began_s = machine.busy_s(), time.monotonic()
    while not run.problems and not is_over():
        time.sleep(SAMPLE_S)
        samples.append(sample(fleet))
        if fleet.ended():
            run.problems.append(f"ended: {', '.join(fleet.ended())}")
        if time.monotonic() - began_s > timeout_s:
            run.problems.append(f"not over after {timeout_s:.0f} s")
    run.busy_cores = (machine.busy_s() - busy_s) / (time.monotonic() - began_s)


def wrong(fleet, places, wanted, with_contents):
    """What of the destination is not as it is to be."""
    source, sink = Path(places[0][0]).parent, fleet.directory / SITES[1]
    found = verify.list_tree(sink)
    found.files.pop(SITE_MARK, None)
    problems = verify.compare_sizes(wanted, found)
    return problems or (differing(source, sink, wanted.files) if with_contents else [])


def differing(source, sink, paths):
    """Problems in contents. A few large files: no processes of one's own for that."""
    pairs = ((path, ["cmp", "--silent", f"{source}/{path}", f"{sink}/{path}"]) for path in paths)
    return [f"contents differ: {path}" for path, command in pairs if subprocess.run(command).returncode]


def sample(fleet):
    """What the links have carried: (time, bytes by name)."""
    return time.time(), link_bytes(Path("/proc/net/dev").read_text(), fleet.names)


def judge(run, plan, records, samples, watch):
    """The run's figures, of transfers' records, links' counters, and what was said on NATS."""
    run.problems += [
        f"transfer {record['id']} is {record['state']}: {record.get('reason', '')}"
        for record in records if record["state"] != "done" or record["tally"]["entries_failed"]
    ]
    began_ms, ended_ms = (choose(record[key] for record in records) for choose, key in ((min, "submitted_ms"), (max, "ended_ms")))
    judge_links(run, plan, samples, began_ms / 1e3, ended_ms / 1e3)
    run.chunks = sum(record["tally"]["chunks_done"] for record in records)
    run.moved_twice = sum(record["tally"]["bytes_moved"] - record["tally"]["bytes_done"] for record in records)
    run.pairs = watch.pair_counts()
    for name, mover in run.movers.items():
        mover["chunks"] = sum(1 for done in watch.done if watch.hosts.get(done["by"]) == name)


def judge_links(run, plan, samples, began_s, ended_s):
    """The figures that links' counters tell."""
    run.wall_s = ended_s - began_s
    run.ratio = run.bytes / run.wall_s / plan.bytes_per_s
    for number, rate_mbit in enumerate(plan.rates_mbit, 1):
        name = f"{SITES[0]}{number}"
        curve = [(at - began_s, links[name][0]) for at, links in samples]
        sent = curve[-1][1] - curve[0][1]
        run.movers[name] = {
            "rate_mbit": rate_mbit,
            "link_bytes": sent,
            "link_use": sent / (rate_mbit * 1e6 / 8 * run.wall_s),
            "last_work_s": last_work_s(curve, rate_mbit * 1e6 / 8),
        }
    ends = [mover["last_work_s"] for mover in run.movers.values()]
    run.tail_s = max(ends) - min(ends)
    run.close_s = run.wall_s - max(ends)


def last_work_s(curve, bytes_per_s):
    """When a link last carried something worth the name: of (seconds, bytes)."""
    steps = zip(curve, curve[1:])
    at_work = [after[0] for before, after in steps
               if after[1] - before[1] > AT_WORK * bytes_per_s * (after[0] - before[0])]
    return max(at_work, default=0.0)


def as_json(run):
    """What is kept."""
    return asdict(run)


def server_program():
    """Path of a nats-server."""
    done = subprocess.run([ROOT / "testbed" / "nats", "binary"], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()
