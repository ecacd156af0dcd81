"""A fleet on this machine for many small transfers, and what it uses: NATS, managers, movers at two sites, an API."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import network
from .fleet import SITE_MARK

# What a process may take to be there, and to leave.
PATIENCE_S = 30
SOURCE_FILES = 3
SOURCE_BYTES = 10_000
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# What a session that came late may lie there for.
LEFT_FOR_S = 5
OVER = ("done", "failed", "cancelled")


class Api(http.client.HTTPConnection):
    """A connection to an API's socket, which stays open."""

    def __init__(self, path):
        super().__init__("localhost", timeout=120)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def ask(self, method, path, body=None):
        """The answer's JSON. A question is asked again where NATS, on a machine whose cores are all busy, does not answer in time."""
        content = None if body is None else json.dumps(body)
        given_up_s = time.monotonic() + PATIENCE_S
        while True:
            self.request(method, path, content, {"Content-Type": "application/json"})
            answer = self.getresponse()
            text = answer.read()
            if method != "GET" or answer.status != 503 or time.monotonic() > given_up_s:
                break
            time.sleep(0.5)
        if not 200 <= answer.status < 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]}")
        return json.loads(text)


class Process:
    """One that was started, and what it uses."""

    def __init__(self, name, command, log, env):
        self.name = name
        self.log = log
        with open(log, "wb") as out:
            self.child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True
            )

    def cpu_s(self):
        """Seconds of CPU so far; of one that has ended none."""
        try:
            words = Path(f"/proc/{self.child.pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        except OSError:
            return 0.0
        return (int(words[11]) + int(words[12])) / TICKS_PER_S

    def memory_mib(self, most=True):
        """MiB in memory, at most so far or now."""
        name = "VmHWM:" if most else "VmRSS:"
        for line in Path(f"/proc/{self.child.pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) / 1024
        return 0.0

    def said(self):
        """Its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def await_word(self, word):
        """Waits until it has said so."""
        until = time.monotonic() + PATIENCE_S
        while word not in self.said():
            if self.child.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{self.name} does not start: {self.said()[-2000:]}")
            time.sleep(0.02)

    def kill(self):
        """Ends it at once."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)
        self.child.wait()


class Fleet:
    """All of it, for the time of a `with`."""

    def __init__(self, carrack, managers=1, movers=2):
        self.carrack, self.managers_wanted, self.movers_wanted = str(carrack), managers, movers
        shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.place = Path(tempfile.mkdtemp(prefix="carrack-backlog.", dir=shm))
        self.processes = {}
        self.env = dict(os.environ)
        self.monitor = ""

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
        shutil.rmtree(self.place, ignore_errors=True)

    def begin(self):
        """NATS, managers and an API; movers are started when they are wanted."""
        for site in ("east/src", "west"):
            (self.place / site).mkdir(parents=True)
        for number in range(SOURCE_FILES):
            (self.place / f"east/src/f{number}").write_bytes(os.urandom(SOURCE_BYTES))
        self.start_nats()
        for number in range(self.managers_wanted):
            self.start_manager(number)
        self.start("api", "api", "--socket", str(self.place / "api.sock"))
        until = time.monotonic() + PATIENCE_S
        while not (self.place / "api.sock").exists():
            if time.monotonic() > until:
                raise RuntimeError(f"the API does not start: {self.processes['api'].said()}")
            time.sleep(0.02)

    def start_nats(self):
        """One server that syncs always, with its monitoring."""
        program = subprocess.run(
            [str(network.ROOT / "testbed/nats"), "binary"], check=True, capture_output=True, text=True
        ).stdout.strip()
        port, http_port = free_ports(2)
        config = self.place / "nats.conf"
        config.write_text(
            f"listen: 127.0.0.1:{port}\nhttp: 127.0.0.1:{http_port}\n"
            f'jetstream {{ store_dir: "{self.place}/nats", sync_interval: always }}\n',
            encoding="utf-8",
        )
        self.env["CARRACK_NATS"] = f"nats://127.0.0.1:{port}"
        self.monitor = f"http://127.0.0.1:{http_port}"
        self.processes["nats"] = Process("nats", [program, "-c", str(config)], self.place / "nats.log", self.env)
        self.processes["nats"].await_word("Server is ready")

    def start(self, name, *arguments):
        """One more process of carrack."""
        process = Process(name, [self.carrack, *arguments], self.place / f"{name}.log", self.env)
        self.processes[name] = process
        return process

    def start_manager(self, number):
        """A manager, which is there when this returns."""
        self.start(f"manager{number}", "manager").await_word("(nats-server ")

    def start_movers(self, pairs=4):
        """So many at each site."""
        for number in range(self.movers_wanted):
            for site in ("east", "west"):
                path = str(self.place / site)
                options = ["--site", site, "--path", path, "--listen", "127.0.0.1:0", "--pairs", str(pairs)]
                self.start(f"{site}{number}", "mover", *options)
        for name, process in self.processes.items():
            if name.startswith(("east", "west")):
                process.await_word(" of ")

    def managers(self):
        """Those that run."""
        return [it for name, it in self.processes.items() if name.startswith("manager") and it.child.poll() is None]

    def api(self):
        """A connection."""
        return Api(self.place / "api.sock")

    def submit(self, numbers, connections=8):
        """Seconds that it took to submit transfers to west/tN for these numbers, over several connections."""

        def some(of):
            api = self.api()
            for number in of:
                source, destination = f"east:{self.place}/east/src", f"west:{self.place}/west/t{number}"
                api.ask("POST", "/v1/transfers", {"source": source, "destination": destination})

        numbers = list(numbers)
        began = time.monotonic()
        with ThreadPoolExecutor(connections) as pool:
            for done in [pool.submit(some, numbers[k::connections]) for k in range(connections)]:
                done.result()
        return time.monotonic() - began

    def submit_as(self, user, numbers):
        """Submits transfers to west/tN for these numbers as the user of this number. The API's socket is for everybody then."""
        self.place.chmod(0o755)
        (self.place / "api.sock").chmod(0o777)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setgid(user)
                os.setuid(user)
                self.submit(numbers, 1)
                status = 0
            finally:
                os._exit(status)
        if os.waitpid(child, 0)[1] != 0:
            raise RuntimeError(f"user {user} could not submit")

    def copied(self):
        """Transfers whose files are all there."""
        names = [f"f{number}" for number in range(SOURCE_FILES)]
        return sum(
            all((entry / name).exists() for name in names)
            for entry in (self.place / "west").iterdir()
            if entry.name.startswith("t")
        )

    @staticmethod
    def files_of(directory):
        """What lies in it, by name: bytes, or None for a directory."""
        entries = directory.iterdir() if directory.is_dir() else ()
        return {entry.name: None if entry.is_dir() else entry.read_bytes() for entry in entries}

    def wrong(self, count):
        """Of so many transfers, the destinations that are not what the source is, and what lies beside them."""
        west = self.place / "west"
        source = {file.name: file.read_bytes() for file in (self.place / "east/src").iterdir()}
        wrong = []
        for number in range(count):
            there = west / f"t{number}"
            files = self.files_of(there)
            # A session that began as another closed the transfer takes its own journal away a moment later.
            deadline = time.monotonic() + LEFT_FOR_S
            while files.keys() > source.keys() and time.monotonic() < deadline:
                time.sleep(0.1)
                files = self.files_of(there)
            if files != source:
                wrong.append(there.name)
        wrong += [entry.name for entry in west.iterdir() if not entry.name.startswith("t") and entry.name != SITE_MARK]
        return wrong

    def states(self, count):
        """How many of the latest transfers are in each state."""
        found = {}
        for record in self.listed(count):
            found[record["state"]] = found.get(record["state"], 0) + 1
        return found

    def listed(self, count):
        """The latest transfers, page by page."""
        api, after, page = self.api(), "", 1000
        while count > 0:
            records = api.ask("GET", f"/v1/transfers?limit={min(count, page)}{after}")
            yield from records
            if not records:
                return
            count -= len(records)
            after = f"&after={records[-1]['id']}"

    def messages(self):
        """Messages that NATS has got, and sent, so far."""
        with urllib.request.urlopen(f"{self.monitor}/varz", timeout=10) as answer:
            told = json.load(answer)
        return told["in_msgs"], told["out_msgs"]

    def cpu(self):
        """Seconds of CPU so far, by kind of process."""
        found = {}
        for name, process in self.processes.items():
            kind = name.rstrip("0123456789")
            found[kind] = found.get(kind, 0.0) + process.cpu_s()
        return found


def free_ports(count):
    """Ports that nothing uses."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
