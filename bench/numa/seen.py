"""What `testbed/guest.d/witness.c` and the guest's scripts saw of a transfer, as values."""

import dataclasses
from collections import defaultdict

from . import guest

ALL_CPUS = frozenset(range(guest.NODES * guest.CPUS_PER_NODE))
IO_NAMES = ("carrack-read", "carrack-write")


def parse_list(text):
    """The numbers of a list like 0-2,5."""
    numbers = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def nodes_of_policy(policy):
    """The nodes that a policy of numa_maps binds to: of bind:0-1 and bind=static:0-1 0 and 1; none where it does not bind."""
    kind, _, nodes = policy.rpartition(":")
    return parse_list(nodes) if kind.startswith("bind") else frozenset()


@dataclasses.dataclass(frozen=True)
class Sighting:
    """A thread under one list of CPUs that it was allowed."""

    allowed: frozenset
    cpus: frozenset
    samples: int
    ticks: int

    @property
    def is_bound(self):
        """Whether it may not run everywhere."""
        return self.allowed != ALL_CPUS

    @property
    def sockets(self):
        """The sockets on which it may run."""
        return {guest.socket_of_node(guest.node_of_cpu(cpu)) for cpu in self.allowed}

    @property
    def nodes(self):
        """The nodes on which it may run."""
        return {guest.node_of_cpu(cpu) for cpu in self.allowed}


@dataclasses.dataclass
class Thread:
    """One thread of carrack."""

    process: int
    number: int
    name: str = ""
    sightings: list = dataclasses.field(default_factory=list)

    def __str__(self):
        return f"{self.name} ({self.process}/{self.number})"

    @property
    def seats(self):
        """The places to which it was bound, in their order."""
        return [sighting for sighting in self.sightings if sighting.is_bound]

    @property
    def is_io(self):
        """Whether it reads or writes."""
        return self.name.startswith(IO_NAMES)

    @property
    def ticks_unbound(self):
        """What it has worked unbound, in 1/100 s."""
        return sum(sighting.ticks for sighting in self.sightings if not sighting.is_bound)

    @property
    def samples(self):
        """How often it was seen."""
        return sum(sighting.samples for sighting in self.sightings)


@dataclasses.dataclass(frozen=True)
class Pool:
    """One mapping with slots: its policy, and the pages on each node as the kernel told them, in their order."""

    process: int
    start: str
    policy: str
    pages: list

    def __str__(self):
        return f"pool {self.start} of process {self.process} ({self.policy})"

    @property
    def bound_to(self):
        """The nodes of its policy."""
        return nodes_of_policy(self.policy)

    @property
    def lies_on(self):
        """The nodes on which it was last seen."""
        last = self.pages[-1] if self.pages else []
        return {node for node, count in enumerate(last) if count}


class Seen:
    """One case's records."""

    def __init__(self, head, records):
        self.status = head["status"]
        self.processes = [record["process"] for record in records if "command" in record]
        self.pools = [Pool(r["process"], r["pool"], r["policy"], r["pages"]) for r in records if "pool" in r]
        self.said = [record["said"] for record in records if "said" in record]
        self.missed = {record["node"]: record["numa_miss"] for record in records if "numa_miss" in record}
        self.threads = list(_threads(records))
        plans = [record["planned"]["placement"]["lanes"] for record in records if "planned" in record]
        # For each lane the CPUs of each I/O thread's seat, as `carrack topo` plans them.
        self.planned_io = [[frozenset(seat["cpus"]) for seat in lane["io"]] for lanes in plans for lane in lanes]

    def threads_of(self, process):
        """A process's threads."""
        return [thread for thread in self.threads if thread.process == process]

    def io_of(self, process):
        """Those that read or write and have been bound."""
        return [thread for thread in self.threads_of(process) if thread.is_io and thread.seats]

    def pools_of(self, process):
        """A process's pools."""
        return [pool for pool in self.pools if pool.process == process]


def _threads(records):
    found = defaultdict(list)
    for record in records:
        if "thread" in record:
            found[record["process"], record["thread"]].append(record)
    for (process, number), of_thread in found.items():
        sightings = [Sighting(parse_list(r["allowed"]), frozenset(r["cpus"]), r["samples"], r["ticks"]) for r in of_thread]
        yield Thread(process, number, of_thread[-1]["name"], sightings)
