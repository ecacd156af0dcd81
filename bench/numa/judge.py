"""Whether threads ran and slots lay where they belong, from what `testbed/guest.d/witness.c` saw of a transfer.

Every check gives problems in words; none means that all is right.
"""

from collections import Counter, defaultdict

from . import guest

ALL_CPUS = frozenset(range(guest.NODES * guest.CPUS_PER_NODE))
IO_NAMES = ("carrack-read", "carrack-write")
# A thread that was just made was looked at before it had taken its seat: once, then never again.
SAMPLES_WITHOUT_SEAT = 1


def parse_list(text):
    """The numbers of a list like 0-2,5."""
    numbers = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def sockets_of_cpus(cpus):
    """The sockets that some CPUs belong to."""
    return {guest.socket_of_node(guest.node_of_cpu(cpu)) for cpu in cpus}


def threads(records):
    """{(process, thread): what was seen of it, one record for each list of CPUs that it was allowed}."""
    seen = defaultdict(list)
    for record in records:
        if "thread" in record:
            seen[record["process"], record["thread"]].append(record)
    return seen


def name_of(of_thread):
    """For people."""
    last = of_thread[-1]
    return f"{last['name']} ({last['process']}/{last['thread']})"


def seats(of_thread):
    """What was seen of a thread after it had been bound."""
    return [record for record in of_thread if parse_list(record["allowed"]) != ALL_CPUS]


def is_idle(of_thread):
    """Whether a thread does nothing of a lane's: a process's signals, or one that was gone before it had worked."""
    return of_thread[-1]["name"] == "signals" or not any(seats(of_thread)) and sum(r["samples"] for r in of_thread) <= 1


def stray_threads(records):
    """Threads that ran where they were not allowed to, or were allowed on more than one socket."""
    problems = []
    for of_thread in threads(records).values():
        for record in of_thread:
            strayed = set(record["cpus"]) - parse_list(record["allowed"])
            if strayed:
                problems.append(f"{name_of(of_thread)} ran on {sorted(strayed)}, allowed: {record['allowed']}")
        for record in seats(of_thread):
            if len(sockets_of_cpus(parse_list(record["allowed"]))) != 1:
                problems.append(f"{name_of(of_thread)} may run on two sockets: {record['allowed']}")
    return problems


def unbound_threads(records):
    """Threads of lanes that were not bound, or late."""
    problems = []
    for of_thread in threads(records).values():
        free = sum(record["samples"] for record in of_thread if parse_list(record["allowed"]) == ALL_CPUS)
        if is_idle(of_thread) or of_thread[-1]["name"] == "carrack":
            continue  # a process's first thread exists before there is a plan
        if not seats(of_thread) or free > SAMPLES_WITHOUT_SEAT:
            problems.append(f"{name_of(of_thread)} was not bound in {free} samples")
    return problems


def spread_of_io(records):
    """How evenly each process's I/O threads are spread over the nodes of each of their sockets."""
    problems = []
    counts = defaultdict(Counter)
    for (process, _), of_thread in threads(records).items():
        if of_thread[-1]["name"].startswith(IO_NAMES) and seats(of_thread):
            nodes = {guest.node_of_cpu(cpu) for cpu in parse_list(seats(of_thread)[-1]["allowed"])}
            for node in nodes:
                counts[process, guest.socket_of_node(node)][node] += 1 / len(nodes)
    for (process, socket), of_nodes in counts.items():
        own = [of_nodes[node] for node in range(guest.NODES) if guest.socket_of_node(node) == socket]
        if max(own) - min(own) > 1:
            problems.append(f"process {process}'s I/O threads on socket {socket} are not evenly spread: {own}")
    return problems


def pools(records):
    """{process: its pools' records}."""
    found = defaultdict(list)
    for record in records:
        if "pool" in record:
            found[record["process"]].append(record)
    return found


def stray_pages(records, lanes):
    """Slots that lie on other nodes than their policy says, or pools that are not one on each of so many sockets."""
    problems = []
    processes = {record["process"] for record in records if "command" in record}
    for process in processes:
        of_process = pools(records)[process]
        sockets = Counter()
        for pool in of_process:
            nodes = nodes_of_policy(pool["policy"])
            sockets.update({guest.socket_of_node(node) for node in nodes})
            for pages in pool["pages"]:
                strayed = {node: count for node, count in enumerate(pages) if count and node not in nodes}
                if strayed:
                    problems.append(f"pool {pool['pool']} of process {process} ({pool['policy']}) has pages {strayed}")
            if not any(map(sum, pool["pages"])):
                problems.append(f"pool {pool['pool']} of process {process} was never seen with pages")
        if sorted(sockets) != list(range(lanes)) or len(of_process) != lanes:
            policies = [pool["policy"] for pool in of_process]
            problems.append(f"process {process} should have a pool on each of {lanes} sockets; policies: {policies}")
    return problems if processes else ["no process was seen"]


def nodes_of_policy(policy):
    """The nodes that a policy of numa_maps binds to: bind:0-1 → 0, 1; also bind=static:0-1. None where it does not bind."""
    kind, _, nodes = policy.rpartition(":")
    return parse_list(nodes) if kind.startswith("bind") else frozenset()


def missed_pages(records):
    """Nodes from which pages were wanted and not had."""
    return [f"node {r['node']}: numa_miss grew by {r['numa_miss']}" for r in records if r.get("numa_miss")]
