"""The parts of bench/numa that decide what is right and what the counts say."""

import struct
import unittest

from numa import counting, guest, judge, report

PAGES_PER_NODE = 1024
NODE_BYTES = PAGES_PER_NODE * counting.PAGE_BYTES


def thread(number, name, *seen, process=1):
    """A thread's records: (allowed, cpus, samples)."""
    shared = {"thread": number, "process": process, "name": name, "ticks": 1}
    return [{**shared, "allowed": allowed, "cpus": cpus, "samples": samples} for allowed, cpus, samples in seen]


def pool(start, policy, *pages, process=1):
    """A pool's record."""
    return {"pool": start, "process": process, "policy": policy, "bytes": 8192, "pages": [list(p) for p in pages]}


PROCESS = {"process": 1, "command": "carrack cp a b"}


class Judge(unittest.TestCase):
    """Made-up transfers, right and wrong."""

    def test_lists(self):
        self.assertEqual(judge.parse_list("0-2,5"), {0, 1, 2, 5})
        self.assertEqual(judge.nodes_of_policy("bind:2-3"), {2, 3})
        self.assertEqual(judge.nodes_of_policy("bind=static:1"), {1})
        self.assertEqual(judge.nodes_of_policy("default"), frozenset())
        self.assertEqual(judge.nodes_of_policy("interleave:0-3"), frozenset())

    def test_a_thread_in_its_seat_is_right(self):
        records = thread(2, "carrack-read", ("0-7", [5], 1), ("2-3", [2, 3], 9))
        self.assertEqual(judge.stray_threads(records) + judge.unbound_threads(records), [])

    def test_a_thread_on_a_cpu_that_it_was_not_allowed_is_told(self):
        self.assertEqual(len(judge.stray_threads(thread(2, "carrack-read", ("2-3", [2, 4], 9)))), 1)

    def test_a_thread_allowed_on_two_sockets_is_told(self):
        self.assertEqual(len(judge.stray_threads(thread(2, "carrack-read", ("3-4", [3], 9)))), 1)

    def test_a_thread_that_was_never_bound_is_told(self):
        self.assertEqual(len(judge.unbound_threads(thread(2, "carrack-read", ("0-7", [2], 9)))), 1)
        late = thread(2, "carrack-read", ("0-7", [2], 3), ("0-1", [0], 3))
        self.assertEqual(len(judge.unbound_threads(late)), 1)

    def test_a_first_thread_is_bound_when_there_is_a_plan(self):
        first = thread(1, "carrack", ("0-7", [2, 6], 5), ("0", [0], 3))
        self.assertEqual(judge.unbound_threads(first + thread(3, "signals", ("0-7", [1], 9))), [])

    def test_io_threads_are_spread_over_the_nodes_of_their_socket(self):
        even = [r for i in range(4) for r in thread(i, "carrack-write", (str(i), [i], 2))]
        self.assertEqual(judge.spread_of_io(even), [])
        heap = [r for i in range(4) for r in thread(i, "carrack-write", ("0-1", [0], 2))]
        self.assertEqual(len(judge.spread_of_io(heap)), 1)

    def test_slots_on_their_nodes_are_right(self):
        records = [PROCESS, pool("a", "bind:0-1", (1, 1, 0, 0), (2, 2, 0, 0)), pool("b", "bind:2-3", (0, 0, 2, 2))]
        self.assertEqual(judge.stray_pages(records, 2), [])

    def test_slots_elsewhere_are_told(self):
        right = pool("b", "bind:2-3", (0, 0, 2, 2))
        elsewhere = [PROCESS, pool("a", "bind:0-1", (2, 2, 0, 0), (2, 1, 1, 0)), right]
        self.assertEqual(len(judge.stray_pages(elsewhere, 2)), 1)
        self.assertEqual(len(judge.stray_pages([PROCESS, right], 2)), 1)
        self.assertEqual(len(judge.stray_pages([PROCESS, pool("a", "bind:0-1", (0, 0, 0, 0)), right], 2)), 1)
        self.assertTrue(judge.stray_pages([PROCESS, pool("a", "default", (2, 2, 0, 0)), right], 2))

    def test_nothing_seen_is_not_right(self):
        self.assertTrue(judge.stray_pages([], 2))
        self.assertTrue(judge.stray_pages([PROCESS], 2))

    def test_missed_pages_are_told(self):
        self.assertEqual(judge.missed_pages([{"node": 0, "numa_miss": 0}]), [])
        self.assertEqual(len(judge.missed_pages([{"node": 0, "numa_miss": 3}])), 1)


class Records(unittest.TestCase):
    """What the guest tells."""

    def test_cases(self):
        text = '{"node":9}\n{"case":"a"}\n{"node":0}\n\n{"case":"b"}\n'
        groups = guest.sections(guest.read_records(text), "case")
        self.assertEqual(groups, [({"case": "a"}, [{"node": 0}]), ({"case": "b"}, [])])


class Counting(unittest.TestCase):
    """Bytes by distance and owner."""

    RECORDS = [
        {"process": 7, "command": "carrack cp -r /in h:/out "},
        {"process": 8, "command": "carrack session "},
        {"pool": "x", "process": 7, "frames": [[0, 2]]},
        {"pool": "y", "process": 8, "frames": [[2 * PAGES_PER_NODE, 1]]},
        {"files": 1, "frames": [[9, 1]]},
        {"files": 1, "frames": [[10, 1]]},
    ]

    def test_owners(self):
        kinds = {0: "source slots", 1: "source slots", 2048: "sink slots", 9: "input files", 10: "output files"}
        self.assertEqual(counting.owners(self.RECORDS), kinds)

    def test_distances(self):
        self.assertEqual([counting.distance(0, node) for node in range(4)], ["own node", "same socket"] + ["other socket"] * 2)

    def test_sums_and_what_they_cost(self):
        page_of_nobody = 3 * PAGES_PER_NODE
        data = b"".join(
            struct.pack("<II6Q", *record)
            for record in [(1, 0, 100, 50, 0, 0, 0, 0), (2048, 1, 0, 0, 0, 40, 0, 0), (page_of_nobody, 6, 1, 0, 2, 0, 4, 0)]
        )
        sums = counting.read_counts(data, NODE_BYTES, counting.owners(self.RECORDS))
        table = counting.summary(sums, 10)
        self.assertEqual(table["source slots"]["loaded"]["own node"], 10)
        self.assertEqual(table["source slots"]["stored"]["own node"], 5)
        self.assertEqual(table["sink slots"]["stored"]["other socket"], 4)
        self.assertEqual(table["socket memory"]["loaded"]["own node"], 0.2)
        self.assertEqual(table["programs' rest"]["loaded"]["own node"], 0.1)
        self.assertEqual(counting.per_distance(table, counting.SLOTS), {"own node": 15, "same socket": 0, "other socket": 4})
        near = counting.summary({("sink slots", "bulk", "stored", "own node"): 10}, 10)
        far = counting.summary({("sink slots", "bulk", "stored", "other socket"): 10}, 10)
        self.assertAlmostEqual(counting.gain(far, near, counting.SLOTS), 3160.43 / 2131.24 - 1)

    def test_addresses_of_copying_routines(self):
        lines = ["10 T memcpy", "10 W __memcpy", "20 t memcpy_orig", "30 T x", "40 T memcpy_fromio", "50 T y"]
        self.assertEqual(counting.bulk_ranges(lines), [(0x10, 0x1F), (0x20, 0x2F)])


class Reports(unittest.TestCase):
    """NUMA.md."""

    def results(self, other):
        """Two schemes with so many bytes of slots on the other socket."""
        rows = []
        for scheme, count in other.items():
            sums = {("sink slots", "bulk", "stored", away): 100 for away in counting.DISTANCES}
            sums["sink slots", "bulk", "stored", counting.OTHER] = count
            table = counting.summary(sums, 100)
            rows.append({"workload": "big", "input": "disk", "scheme": scheme, "round": 0, "table": table})
        about = {"date": "d", "commit": "c", "command": "x", "emulator": "e", "options": "o"}
        return {"about": {**about, "workloads": {"big": [4, 1024]}, "schemes": {s: "--x" for s in other}}, "rows": rows}

    def test_goals(self):
        reached = report.goal(self.results({"off": 100, "mts": 0}))
        self.assertEqual(reached.count("| yes |"), 3)
        missed = report.goal(self.results({"off": 100, "mts": 6}))
        self.assertEqual(missed.count("**no**"), 3)

    def test_documents_of_any_schemes(self):
        self.assertIn("MTS", report.document(self.results({"off": 100, "mts": 0})))
        self.assertNotIn("MTS: and", report.document(self.results({"off": 100})))


if __name__ == "__main__":
    unittest.main()
