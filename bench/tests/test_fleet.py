"""The parts of bench/fleet that decide what is measured, and what the figures say."""

import argparse
import io
import tempfile
import types
import unittest
from pathlib import Path

from harness import fixed_shares, fleet, fleet_report, fleet_watch

from .test_harness import ROOT, load_script

COMMAND = load_script(ROOT / "bench" / "fleet")
MBIT = 1e6 / 8
RATES = [400.0, 400.0, 40.0, 40.0]
PLAN = fleet.Plan(RATES, 4)


def record(**more):
    """A transfer's, as it is when it is over."""
    tally = {"entries_failed": 0, "chunks_done": 8, "bytes_moved": 110, "bytes_done": 100}
    return {"id": "t", "state": "done", "submitted_ms": 1000, "ended_ms": 11_000, "tally": tally, **more}


class Options(unittest.TestCase):
    """What the command line means."""

    def test_sizes_and_ways(self):
        self.assertEqual([COMMAND.size("4GiB"), COMMAND.size("0.5MiB")], [4 << 30, 1 << 19])
        self.assertEqual(COMMAND.ways("on-demand:8MiB,static"), ["on-demand:8MiB", "static"])
        for bad in ("on demand", "on-demand:8", "static:8MiB", "fast"):
            with self.assertRaises(argparse.ArgumentTypeError):
                COMMAND.ways(bad)

    def test_rates_are_above_nought_and_few(self):
        self.assertEqual(COMMAND.numbers("400,40"), [400, 40])
        for bad in ("0", "1,-1", ",".join("1" * 10)):
            with self.assertRaises(argparse.ArgumentTypeError):
                COMMAND.numbers(bad)

    def test_each_way_has_its_options(self):
        self.assertEqual(COMMAND.more_options("on-demand"), [])
        self.assertEqual(COMMAND.more_options("on-demand:8MiB"), ["--chunk-size", "8MiB"])

    def test_fixed_shares_are_equal_and_tile_the_file(self):
        self.assertEqual(fixed_shares.parts(10, 4), [(0, 2), (2, 3), (5, 2), (7, 3)])
        self.assertEqual(fixed_shares.parts(8 << 20, 2), [(0, 4 << 20), (4 << 20, 4 << 20)])

    def test_the_bytes_keep_all_links_busy_for_the_time(self):
        args = types.SimpleNamespace(total=None, seconds=60, static_share=0.25)
        self.assertEqual(COMMAND.total_bytes(args, PLAN), int(60 * 880 * MBIT))
        self.assertEqual(COMMAND.total_bytes(args, PLAN, "static"), int(15 * 880 * MBIT))


class Data(unittest.TestCase):
    """What is copied."""

    def test_each_transfer_has_its_part_and_earlier_ones_vanish(self):
        with tempfile.TemporaryDirectory() as name:
            fleet.make_data(Path(name), 4, 8 << 20)
            fleet.make_data(Path(name), 2, 8 << 20)
            sizes = {path.parent.name: path.stat().st_size for path in Path(name).glob("*/data")}
            self.assertEqual(sizes, {"t0": 4 << 20, "t1": 4 << 20})
            parts = [path.read_bytes() for path in sorted(Path(name).glob("*/data"))]
            self.assertNotEqual(parts[0], parts[1])


    def test_a_copy_that_differs_is_seen(self):
        with tempfile.TemporaryDirectory() as name:
            for site, text in (("a", "one"), ("b", "one"), ("c", "two")):
                Path(name, site).mkdir()
                Path(name, site, "data").write_text(text)
            found = [fleet.differing(f"{name}/a", f"{name}/{other}", ["data"]) for other in "bc"]
            self.assertEqual(found, [[], ["contents differ: data"]])


class Judging(unittest.TestCase):
    """From counters and records to figures."""

    NET = "Inter-|\n face |bytes\n  lo: 1 0 0 0 0 0 0 0 1 0\n east1:77 0 0 0 0 0 0 0 88 0 0 0 0 0 0 0\n"

    def test_counters_of_links(self):
        self.assertEqual(fleet.link_bytes(self.NET, ["east1", "west1"]), {"east1": (77, 88)})

    def test_a_link_has_ended_when_it_carries_hardly_anything_any_more(self):
        curve = [(0, 0), (1, 100), (2, 200), (3, 205), (4, 205)]
        self.assertEqual(fleet.last_work_s(curve, 100), 2)
        self.assertEqual(fleet.last_work_s([(0, 5), (1, 5)], 100), 0)

    def judged(self, *records):
        names = [f"east{n}" for n in range(1, 5)]
        seconds = [10, 5, 10, 8]
        samples = [
            (1 + at, {name: (int(min(at, end) * rate * MBIT), 0) for name, rate, end in zip(names, RATES, seconds)})
            for at in range(11)
        ]
        watch = fleet_watch.Watch.__new__(fleet_watch.Watch)
        watch.done, watch.hosts = [{"by": "m1"}, {"by": "m1"}, {"by": "m2"}], {"m1": "east1", "m2": "west2"}
        watch.pairs = {"a": ("m1", "m2"), "b": ("m1", "m2")}
        run = fleet.Run("on-demand", bytes=int(880 * MBIT * 5))
        fleet.judge(run, PLAN, list(records), samples, watch)
        return run

    def test_the_ratio_is_of_all_links_until_the_last_transfer_ends(self):
        run = self.judged(record(ended_ms=6000), record())
        self.assertEqual((run.wall_s, run.problems, run.chunks, run.moved_twice), (10, [], 16, 20))
        self.assertAlmostEqual(run.ratio, 0.5, places=4)
        self.assertAlmostEqual(run.tail_s, 5)
        self.assertAlmostEqual(run.close_s, 0)
        self.assertAlmostEqual(run.movers["east2"]["link_use"], 0.5, places=4)
        self.assertEqual([run.movers[name]["chunks"] for name in ("east1", "east2")], [2, 0])
        self.assertEqual(run.pairs, {"east1 west2": 2})

    def test_what_failed_is_told(self):
        run = self.judged(record(), record(state="failed", reason="no space"))
        self.assertIn("no space", run.problems[0])


class Listening(unittest.TestCase):
    """NATS, as its clients hear it."""

    def test_messages_with_and_without_headers_and_pings(self):
        said, text = [], b"INFO {}\r\nPING\r\nMSG a.b 1 2\r\nhi\r\nHMSG c 1 4 6\r\nN\r\nxxyo\r\nPING\r\n"
        text = text.replace(b"N\r\nxxyo", b"HH\r\nyo")
        heard = list(fleet_watch.messages(io.BytesIO(text), said.append))
        self.assertEqual(heard, [("a.b", b"hi"), ("c", b"yo")])
        self.assertEqual(said, [b"PONG\r\n"] * 2)


class Reporting(unittest.TestCase):
    """FLEET.md."""

    def section(self, **more):
        run = {"way": "on-demand", "bytes": 1 << 30, "wall_s": 10.0, "ratio": 0.96, "tail_s": 1.0, "close_s": 0.5, "busy_cores": 1.0,
               "movers": {"east1": {"link_use": 0.9, "last_work_s": 9.0, "chunks": 3}}, "pairs": {"east1 west3": 2},
               "chunks": 8, "moved_twice": 0, "problems": [], **more}
        rows = [{"transfers": 1, "way": "on-demand", "runs": [run]}]
        return {"plan": {"rates_mbit": RATES}, "date": "d", "commit": "c", "command": "x", "machine": "m", "rows": rows}

    def test_a_goal_is_reached_or_not(self):
        self.assertIn("| 96.0% | yes |", fleet_report.document({"a": self.section()}))
        self.assertIn("| 94.0% | **no** |", fleet_report.document({"a": self.section(ratio=0.94)}))

    def test_runs_that_failed_are_not_counted(self):
        text = fleet_report.document({"a": self.section(problems=["it fell"])})
        self.assertIn("failed**: it fell", text)
        self.assertNotIn("96.0%", text)

    def test_pairs_are_told_by_their_links(self):
        self.assertEqual(fleet_report.pair_kinds({"east1 west3": 2, "east2 west4": 1}, RATES), "3 × 400→40")

    def test_a_section_is_called_by_its_links_and_its_name(self):
        self.assertEqual(fleet_report.title("400,400,40,40", self.section()), "Links of 400, 400, 40, 40 Mbit/s: not alike")
        self.assertTrue(fleet_report.title("small", self.section()).endswith("not alike (small)"))

    def test_notes_and_other_sections_stay(self):
        with tempfile.TemporaryDirectory() as name:
            fleet_report.write(Path(name), {"a": self.section()})
            report = Path(name, fleet_report.REPORT_NAME)
            report.write_text(report.read_text() + "## Notes\n\nIt rained.\n")
            fleet_report.write(Path(name), {"b": self.section(ratio=0.5)})
            self.assertTrue(report.read_text().endswith("## Notes\n\nIt rained.\n"))
            self.assertEqual(list(fleet_report.load(Path(name))), ["a", "b"])


if __name__ == "__main__":
    unittest.main()
