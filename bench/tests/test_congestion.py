"""The parts of bench/congestion that decide what is measured, and what the figures say."""

import argparse
import dataclasses
import os
import tempfile
import unittest
import unittest.mock
from pathlib import Path

from harness import congestion, congestion_report, disk_load, disks

from .test_harness import ROOT, load_script

MIB = 1 << 20
PLAN = congestion.Plan(disks=32, rate_bytes_per_s=32 * MIB, io_threads=8, seconds=12, step_s=2.4)


class Plans(unittest.TestCase):
    """Sizes."""

    def test_files_keep_all_threads_busy_for_the_time(self):
        each = PLAN.file_bytes(PLAN.io_threads, PLAN.seconds)
        seconds = each * congestion.FILES_PER_DISK * PLAN.disks / (PLAN.io_threads * PLAN.rate_bytes_per_s)
        self.assertAlmostEqual(seconds, PLAN.seconds, delta=0.1)
        self.assertEqual(each % congestion.OBJECT_BYTES, 0)

    def test_there_is_an_object_at_least_and_room_for_two_copies(self):
        self.assertEqual(PLAN.file_bytes(1, 0.001), congestion.OBJECT_BYTES)
        most = congestion.FILES_PER_DISK * PLAN.file_bytes(PLAN.disks, PLAN.seconds)
        self.assertGreater(PLAN.image_bytes, 2 * most)

    def test_every_round_has_every_mover_and_begins_with_another(self):
        order = "".join(f"{number}{name}" for number, name in congestion.interleaved(["a", "b", "c"], 2))
        self.assertEqual(order, "0a0b0c1b1c1a")

    def test_the_load_begins_with_other_disks_in_each_round(self):
        side = congestion.SourceSide(PLAN, Path("/w"), 1)
        paths = list(range(32))
        self.assertEqual(side.rotated(paths, 0), paths)
        self.assertEqual(side.rotated(paths, 3)[:4], [12, 13, 14, 15])
        self.assertEqual(side.rotated(paths, 8), paths)


class Loads(unittest.TestCase):
    """Where a load works."""

    def test_it_goes_on_to_the_next_disks_and_round(self):
        def at(elapsed_s):
            return [disk_load.place(elapsed_s, lane, 4, 2.0, 8) for lane in range(4)]

        self.assertEqual([at(0), at(1.9), at(2.1), at(4.0)], [[0, 1, 2, 3]] * 2 + [[4, 5, 6, 7], [0, 1, 2, 3]])

    def test_without_a_step_it_stays(self):
        self.assertEqual(disk_load.place(1e6, 3, 4, 0, 8), 3)

    def test_blocks_of_a_disk_come_in_turn_and_short_files_are_left_out(self):
        with tempfile.TemporaryDirectory() as name:
            Path(name, "a").write_bytes(bytes(2 * 4096 + 1))
            Path(name, "b").write_bytes(bytes(100))
            with unittest.mock.patch.object(os, "O_DIRECT", 0):  # not every file system has it
                disk = disk_load.Disk(name, 4096, writes=False)
            offsets = [disk.next_block()[1] for _ in range(4)]
            self.assertEqual(sorted(offsets), [0, 0, 4096, 4096])
            with self.assertRaises(SystemExit):
                disk_load.Disk(Path(name, "b"), 4096, writes=False)

    def test_percentiles_are_in_milliseconds(self):
        found = congestion.percentiles([number / 1000 for number in range(1, 101)])
        self.assertEqual((found["n"], found["p50"], found["max"]), (100, 51.0, 100.0))
        self.assertEqual(congestion.percentiles([]), {})


class Data(unittest.TestCase):
    """What is copied."""

    def test_files_are_made_once_differ_and_others_vanish(self):
        with tempfile.TemporaryDirectory() as name, unittest.mock.patch.object(disks, "NOISE_BYTES", 1 << 16):
            directories = [Path(name, place) for place in "ab"]
            disks.make_files(directories, 3, 5000)
            first = {path: (path.stat().st_ino, path.read_bytes()) for path in Path(name).rglob("f*")}
            self.assertEqual(len({content for _, content in first.values()}), 6)
            disks.make_files(directories, 2, 5000)
            again = {path: (path.stat().st_ino, path.read_bytes()) for path in Path(name).rglob("f*")}
            self.assertEqual(len(again), 4)
            self.assertEqual(again, {path: first[path] for path in again})
            disks.make_files(directories, 2, 200_000)
            self.assertEqual(Path(name, "a", "f000").stat().st_size, 200_000)


def run_of(wall_s, **more):
    """A good run of so many seconds."""
    stored = {"stored_s": more.pop("stored_s", wall_s)}
    return dataclasses.asdict(congestion.Run(bytes=10**9, wall_s=wall_s, cpu_s=1.0, **stored, **more))


def section(rows, **more):
    """A section of congestion.json."""
    context = dict.fromkeys(("command", "commit", "machine", "versions"), "?")
    made = {name: {"options": "-x", "runs": runs} for name, runs in rows.items()}
    return {**context, "date": "2026-01-01", "plan": dataclasses.asdict(PLAN), "rows": made, **more}


class Reports(unittest.TestCase):
    """CONGESTION.md."""

    def setUp(self):
        source = {"round-robin": [run_of(20.0)], "threshold": [run_of(12.2)], "adaptive": [run_of(12.4)]}
        sink = {
            "round-robin, buffered": [run_of(9.0, stored_s=30.0)],
            "round-robin, auto": [run_of(19.0, stored_s=20.0)],
            "adaptive, auto": [run_of(12.0, stored_s=16.0)],
        }
        reader = section({"nice": [run_of(9.0, reader_mb_per_s=90.0)]}, alone_mb_per_s=100.0, disks=8)
        self.sections = {
            "source": section(source),
            "sink": section(sink, quiet_rows={}),
            "threads": section({"1": [run_of(32.0)], "8": [run_of(4.0)], "32": [run_of(1.25)]}),
            "files": section({"adaptive": [run_of(2.0)], "rsyncd": [run_of(16.0)], "globus": [run_of(7.0)]}),
            "reader": reader,
        }

    def test_goals(self):
        values = congestion_report.measured_goals(self.sections)
        expected = [0.62, 12.4 / 12.2, 0.8, None, 3.5, 0.8, 0.9]
        for value, wanted in zip(values, expected, strict=True):
            self.assertEqual(value, wanted) if wanted is None else self.assertAlmostEqual(value, wanted)

    def test_what_is_not_reached_is_said(self):
        text = congestion_report.document(self.sections)
        goals = [line for line in text.splitlines() if "| ≤" in line or "| ≥" in line]
        answers = [line.split("|")[-2].strip() for line in goals]
        noise = "by less than the noise not"
        self.assertEqual(answers, ["yes", noise, "**no**", "not measured", "**no**", "yes", "yes"])

    def test_every_section_has_a_table_with_cells_of_one_number(self):
        service = {"side": "source", "depth": 1, "loaded": True, "mb_per_s_each": 33.5, "load_mb_per_s_each": 30.0}
        times = congestion.percentiles([0.031])
        self.sections["service"] = section({}, services=[{**service, **times}])
        for name, one in self.sections.items():
            lines = [line for line in congestion_report.TABLES[name](one) if line.startswith("|")]
            self.assertGreater(len(lines), 2, name)
            self.assertEqual(len({line.count("|") for line in lines}), 1, name)
        self.assertEqual(set(congestion_report.TITLES), set(congestion_report.TABLES))

    def test_failures_are_told_and_not_counted(self):
        self.sections["source"]["rows"]["adaptive"]["runs"] = [run_of(1.0, problems=["no"])]
        text = congestion_report.document(self.sections)
        self.assertIn("**adaptive failed** in round 1: no", text)
        self.assertIn("| adaptive | failed | – |", text)
        self.assertIsNone(congestion_report.measured_goals(self.sections)[0])

    def test_a_new_section_replaces_the_old_one_of_its_name_only(self):
        with tempfile.TemporaryDirectory() as name:
            order = list(congestion_report.TITLES)
            congestion_report.write(Path(name), order, {"source": self.sections["source"]})
            congestion_report.write(Path(name), order, {"threads": self.sections["threads"]})
            self.assertEqual(list(congestion_report.load(Path(name))), ["source", "threads"])
            self.assertEqual(sorted(os.listdir(name)), ["CONGESTION.md", "congestion.json"])

    def test_the_fastest_setting_is_taken(self):
        grid = section({"threshold:1,2,3": [run_of(9.0)], "threshold:4,5,6": [run_of(8.0)]})
        self.assertEqual(congestion_report.best_row(grid), "threshold:4,5,6")


class CommandLine(unittest.TestCase):
    """What is read from it."""

    def test_sections_come_in_their_order(self):
        script = load_script(ROOT / "bench" / "congestion")
        self.assertEqual(script.sections("sink,service"), ["service", "sink"])
        self.assertEqual(set(script.SECTIONS), set(congestion_report.TITLES))
        with self.assertRaises(argparse.ArgumentTypeError):
            script.sections("sing")


if __name__ == "__main__":
    unittest.main()
