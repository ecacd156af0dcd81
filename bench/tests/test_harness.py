"""The harness's parts that decide whether a result is right."""

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from importlib import machinery, util
from pathlib import Path

from harness import builds, cgroup, figures, machine, meter, network, options, peers, report, reserve, results, rounds
from harness import servers, tool, tools, verify, workloads

ROOT = Path(__file__).resolve().parents[2]


def load_script(path):
    """A script without .py as a module."""
    loader = machinery.SourceFileLoader(path.name.replace("-", "_"), str(path))
    module = util.module_from_spec(util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class TwoTrees(unittest.TestCase):
    """Two trees, equal at first."""

    def setUp(self):
        self._dir = tempfile.TemporaryDirectory()
        self.addCleanup(self._dir.cleanup)
        self.source, self.copy = Path(self._dir.name, "source"), Path(self._dir.name, "copy")
        for root in (self.source, self.copy):
            (root / "d" / "empty").mkdir(parents=True)
            (root / "d" / "a").write_bytes(b"x" * 3_000_000)
            (root / "b").write_bytes(b"")
            (root / "link").symlink_to("d")
            for directory, names, files in os.walk(root, topdown=False):
                for name in names + files:
                    os.utime(f"{directory}/{name}", ns=(1, 1_234_567_890), follow_symlinks=False)

    def lists(self):
        """Both listings."""
        return verify.list_tree(self.source), verify.list_tree(self.copy)


class Verifying(TwoTrees):
    """Every difference is seen."""

    def test_equal_trees_have_no_problems(self):
        wanted, found = self.lists()
        self.assertEqual(sorted(wanted.files), ["b", "d/a"])
        self.assertEqual(verify.compare_sizes(wanted, found), [])
        self.assertEqual(verify.compare_metadata(wanted, found), [])
        self.assertEqual(verify.compare_contents(self.source, self.copy, wanted), [])

    def test_every_kind_of_difference_is_found(self):
        (self.copy / "b").unlink()
        (self.copy / "more").write_bytes(b"1")
        with open(self.copy / "d" / "a", "r+b") as file:
            file.truncate(5)
        wanted, found = self.lists()
        problems = verify.compare_sizes(wanted, found)
        self.assertEqual(len(problems), 3, problems)

    def test_one_changed_byte_is_found(self):
        with open(self.copy / "d" / "a", "r+b") as file:
            file.seek(2_500_000)
            file.write(b"y")
        problems = verify.compare_contents(self.source, self.copy, self.lists()[0])
        self.assertEqual(problems, ["contents differ: d/a"])

    def test_modes_times_links_and_empty_directories_count(self):
        os.chmod(self.copy / "b", 0o600)
        os.chmod(self.source / "b", 0o644)
        os.utime(self.copy / "d" / "a", ns=(1, 1_234_567_891))
        (self.copy / "link").unlink()
        (self.copy / "d" / "empty").rmdir()
        os.utime(self.copy / "d", ns=(1, 1_234_567_890))
        self.assertEqual(len(verify.compare_metadata(*self.lists())), 4)

    def test_files_below_a_followed_link_are_no_problem_for_tools_that_follow(self):
        (self.copy / "link").unlink()
        (self.copy / "link").mkdir()
        (self.copy / "link" / "a").write_bytes(b"x")
        wanted, found = self.lists()
        self.assertEqual(verify.compare_sizes(wanted, found, follows_links=True), [])
        self.assertEqual(len(verify.compare_sizes(wanted, found)), 1)


class Commands(unittest.TestCase):
    """The commands that tools are started with."""

    case = tool.Case("big", Path("/s p"), Path("/d"), Path("/x"), 4711, ssh="ssh -F /x/ssh_config")
    link = network.Link(round_trip_ms=100, rate_mbit=1000, loss_percent=0.01)

    def test_carrack_pushes_and_pulls(self):
        push = tools.Carrack("carrack", "/c").client(self.case)
        self.assertEqual(push[-2:], ["/s p/", "127.0.0.1:/d/"])
        pull = tools.Carrack("carrack-ssh-pull", "/c", over_ssh=True, pull=True, extra=["--streams", "2"])
        self.assertEqual(pull.client(self.case)[-4:], ["--streams", "2", "carrack-test:/s p/", "/d/"])
        self.assertIn("ssh -F /x/ssh_config", pull.client(self.case))

    def test_carrack_remembers_nothing_of_other_runs(self):
        carrack, seen = tools.Carrack("carrack", "/c"), []
        for _ in range(2):
            with carrack.serving(self.case):
                _, state, program, *_ = carrack.client(self.case)
                seen.append(Path(state.removeprefix("XDG_STATE_HOME=")))
                self.assertEqual((program, list(seen[-1].iterdir())), ("/c", []))
        self.assertNotEqual(*seen)
        self.assertFalse(any(path.exists() for path in seen))

    def test_globus_pulls_where_that_is_faster(self):
        case = tool.Case("linux", Path("/s"), Path("/d"), Path("/x"), 4711)
        self.assertEqual(peers.Globus("globus").client(case)[-2:], ["ftp://127.0.0.1:4711/s/", "file:///d/"])

    def test_options_decide_carracks_security(self):
        for extra, words in (
            ("", "private, aes-256-gcm"),
            ("--checksum blake3", "private, aes-256-gcm, BLAKE3 checked"),
            ("--protection=safe --cipher chacha20-poly1305", "safe, chacha20-poly1305"),
            ("--protection clear", "clear, XXH3 checked"),
            ("--protection clear --checksum=none", "clear, unchecked"),
        ):
            self.assertEqual(tools.Carrack("carrack", "/c", extra=extra.split()).security, words)

    def test_some_tools_make_a_directory_of_the_sources_name(self):
        self.assertEqual(peers.Scp("scp").copy_of(self.case), Path("/d/s p"))
        self.assertEqual(peers.Cp("cp").copy_of(self.case), Path("/d"))
        self.assertEqual(peers.Scp("scp").client(self.case)[-4:], ["-F", "/x/ssh_config", "/s p", "carrack-test:/d/"])

    def test_the_two_ends_of_a_long_way(self):
        wan = network.Wan(self.link, "/w x")
        case = dataclasses.replace(self.case, network=wan)
        self.assertEqual(wan.near(["a", "b c"])[1:], ["exec", "/w x", "a", "b c"])
        self.assertEqual(wan.far(["a", "b c"])[1:], ["shell", "/w x", "10.98.0.2", "exec a 'b c'"])
        push = tools.Carrack("carrack", "/c").client(case)
        self.assertEqual(push[-1], "10.98.0.2:/d/")
        self.assertIn("shell '/w x'", push[push.index("--ssh") + 1])
        self.assertIn("-p 8", peers.Globus("globus", far=True).settings("big"))
        self.assertEqual(network.LOOPBACK.far(["a"]), ["a"])

    def test_a_full_pipes_bytes_fit_into_its_queue(self):
        self.assertEqual(self.link.queue_mb, 12.5)
        self.assertEqual(network.Link(0, 1000, 0).queue_mb, 1.25)
        self.assertEqual(self.link.words, "1000 Mbit/s × 100 ms × 0.01 % loss")

    def test_templates_are_filled_after_they_are_split(self):
        tool = tools.Template("mine", "mine --port {port} {src} {host}:{dst}")
        self.assertEqual(tool.client(self.case), ["mine", "--port", "4711", "/s p", "127.0.0.1:/d"])

    def test_every_workload_has_settings_with_every_tool(self):
        for spec in workloads.KNOWN.values():
            for far in (False, True):
                for mover in tools.built_in(Path("/c"), far).values():
                    self.assertTrue(mover.settings(spec.kind), mover.name)


class Measuring(TwoTrees):
    """A run from end to end, with programs that are everywhere."""

    def measure(self, command):
        """One run of a template."""
        case = tool.Case("big", self.source, self.copy, Path(self._dir.name), servers.free_port())
        return meter.measure(tools.Template("mine", command), case, lambda: None, timeout_s=5)

    def test_wall_and_cpu_time_are_counted(self):
        result = self.measure("sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 0.1'")
        self.assertTrue(result.ok, result.problems)
        self.assertGreater(result.wall_s, 0.1)
        self.assertGreater(result.cpu_s, 0.005)

    def test_a_failing_and_a_hanging_client_are_problems(self):
        self.assertIn("exit status 3: it says", self.measure("sh -c 'echo it says; exit 3'").problems[0])
        case = tool.Case("big", self.source, self.copy, Path(self._dir.name), 1)
        hanging = meter.measure(tools.Template("mine", "sleep 60"), case, lambda: None, timeout_s=0.2)
        self.assertEqual(hanging.problems, ["> 0.2 s (3 MB in that time)"])
        self.assertEqual((hanging.timed_out, hanging.moved_bytes), (True, 3_000_000))

    def test_a_listener_is_seen_by_the_process_that_listens(self):
        program = "import socket, sys\ns = socket.create_server(('127.0.0.1', 0))\n"
        program += "print(s.getsockname()[1], flush=True)\nsys.stdin.read()"
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            port = int(process.stdout.readline())
            self.assertTrue(servers.is_listening(port, process.pid))
            process.stdin.close()
        self.assertFalse(servers.is_listening(port, process.pid))

    def test_the_reserve_says_what_it_lacks(self):
        block = reserve.Reserve()
        self.addCleanup(block.release)
        with unittest.mock.patch.object(machine, "memory_bytes", return_value=reserve.KEEP_FREE_BYTES + (1 << 20)):
            self.assertEqual(block.fill(1 << 20), 0)
            self.assertEqual(block.fill(3 << 20), 2 << 20)

    def test_this_process_has_a_peak(self):
        self.assertGreater(cgroup.peak_rss_bytes(os.getpid()), 1 << 20)
        self.assertIn("python", cgroup.process_name(os.getpid()))


class Schedule(TwoTrees):
    """The rounds."""

    def test_two_tools_take_turns_and_a_slow_one_runs_once(self):
        order = []

        class Bench(rounds.Bench):
            """Measures nothing."""

            def _run_until_undisturbed(self, mover, workload, first_round):
                order.append(mover.name)
                return meter.Measurement(wall_s=5.0 if mover.name == "C" else 1.0)

        workload = workloads.Workload("w", "big", "words", self.source, verify.list_tree(self.source))
        measuring = rounds.Options(3, 2.0, 0, 10, self.source)
        with unittest.mock.patch.object(rounds, "say"):
            Bench(measuring, [tools.Carrack(name, "/c") for name in "AB"]).run(workload)
            Bench(measuring, [tools.Carrack(name, "/c") for name in "AC"]).run(workload)
        self.assertEqual("".join(order), "ABBAAB" + "ACAA")


class Sizes(unittest.TestCase):
    """The workloads' numbers."""

    def test_scaled_sets_are_smaller_and_say_so(self):
        big = workloads.KNOWN["big"]
        self.assertEqual(big.arguments, ["4", str(1 << 30)])
        self.assertEqual(big.scaled(0.25).title, "4 files of 256 MiB, incompressible")
        self.assertEqual(big.scaled(1e-9).arguments, ["4", str(1 << 20)])
        self.assertEqual(workloads.KNOWN["small"].scaled(0.01).arguments, ["3000"])
        linux = workloads.KNOWN["linux"]
        self.assertEqual((linux.arguments, linux.scaled(0.1).input), ([], "small"))

    def test_a_set_that_does_not_fit_is_refused(self):
        endless = dataclasses.replace(workloads.KNOWN["big"], count=1 << 30)
        with unittest.mock.patch.dict(workloads.KNOWN, big=endless):
            with self.assertRaises(workloads.NoRoom), workloads.made("big", Path("/nowhere")):
                pass

    def test_eight_gibibytes_fit_into_24(self):
        self.assertLess(workloads.KNOWN["one8g"].room_bytes, 20 << 30)


class Figures(unittest.TestCase):
    """Medians, ratios, intervals."""

    def test_a_clear_difference_is_told(self):
        before = [1.00, 1.02, 0.99, 1.01, 1.03, 0.98, 1.00]
        found = figures.compare(before, [0.8 * value for value in before])
        self.assertAlmostEqual(found["ratio"], 0.8)
        low, high = found["interval"]
        self.assertTrue(0.75 < low <= 0.8 <= high < 0.85, found)
        self.assertEqual(found["verdict"], "B takes 20.0% less")

    def test_noise_is_no_difference(self):
        both = [1.0, 1.1, 0.9, 1.0, 1.2, 0.8, 1.0], [1.1, 0.9, 1.0, 1.2, 1.0, 0.9, 1.0]
        self.assertEqual(figures.compare(*both)["verdict"], "no difference")
        self.assertEqual(figures.compare(*both), figures.compare(*both), "the same input, the same interval")

    def test_few_rounds_tell_nothing(self):
        self.assertIn("too few rounds", figures.compare([1.0, 1.0], [0.5, 0.5])["verdict"])

    def test_rounds_are_pairs(self):
        with self.assertRaises(ValueError):
            figures.ratio_interval([1.0], [1.0, 2.0])


class CommandLines(unittest.TestCase):
    """What is read from command lines."""

    def test_delays(self):
        delays = load_script(ROOT / "bench" / "wan").delays
        self.assertEqual(delays("0,10,50.5"), [0.0, 10.0, 50.5])
        for text in ("", "-1", "nan", "inf", "ten"):
            with self.assertRaises((argparse.ArgumentTypeError, ValueError), msg=text):
                delays(text)

    def test_shares_and_names(self):
        self.assertEqual(options.share("0.5"), 0.5)
        self.assertEqual(options.named("a=b=c"), ("a", "b=c"))
        for parse, text in ((options.share, "0"), (options.share, "2"), (options.named, "a"), (options.named, "=b")):
            with self.assertRaises(argparse.ArgumentTypeError):
                parse(text)
        with self.assertRaises(argparse.ArgumentTypeError):
            options.workload_names("big,huge")

    def test_a_trial_does_not_replace_results(self):
        with self.assertRaises(SystemExit):
            options.out_dir(argparse.Namespace(out=None, scale=0.1))
        self.assertEqual(options.out_dir(argparse.Namespace(out=None, scale=1)), ROOT / "bench")

    def test_an_unknown_revision_is_said(self):
        with self.assertRaises(LookupError):
            builds.program_of("no-such-revision")


def run_of(value):
    """A run of so many seconds; a string is a problem, a pair a time that was over and megabytes."""
    if isinstance(value, tuple):
        return meter.Measurement(wall_s=value[0], timed_out=True, problems=[f"> {value[0]} s ({value[1]} MB)"])
    return meter.Measurement(problems=[value]) if isinstance(value, str) else meter.Measurement(wall_s=value)


def tool_of(name, values):
    """What results.json has of a tool."""
    security = {"cp": "local", "scp": "ssh"}.get(name, "none")
    runs = [dataclasses.asdict(run_of(value)) for value in values]
    return {"security": security, "over_ssh": security == "ssh", "settings": "-x", "runs": runs}


def section(name, link=None, date="2026-01-01", **runs):
    """A section of results.json; `runs` are those of the tools."""
    context = dict.fromkeys(("words", "command", "commit", "machine", "versions", "cpu_by"), "?")
    tools_ = {key.replace("_", "-"): tool_of(key, values) for key, values in runs.items()}
    numbers = {"link": dataclasses.asdict(link) if link else None, "files": 10, "bytes": 10**9, "missing": {}}
    return {**context, **numbers, "date": date, "workload": name, "tools": tools_}


class Reports(unittest.TestCase):
    """RESULTS.md and results.json."""

    link = network.Link(100, 1000, 0.01)

    def row(self, text, name):
        """The first row of a table that begins with `name`."""
        return next(line for line in text.splitlines() if line.startswith(f"| {name} |"))

    def test_ratio_is_carracks_wall_over_the_others(self):
        one = section("big", carrack=[1.0, 3.0, 2.0], cp=[4.0], rsyncd=["no"], globus=[(300.0, 7)])
        one["missing"] = {"wdt": "not installed"}
        one["tools"]["cp"]["runs"][0]["foreign_cores"] = 0.5
        text = report.section_text(one, one)
        self.assertIn("| 0.50 | 1 (1 disturbed) |", self.row(text, "cp"))
        self.assertIn("**rsyncd failed** in round 1: no", text)
        self.assertIn("| globus | none | > 300.0 s (7 MB) |", text)
        self.assertIn("`wdt` left out", text)
        widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
        self.assertEqual(len(widths), 1, "all rows have as many cells")

    def test_a_long_ways_table_has_the_share_of_the_line(self):
        one = section("big", self.link, carrack=[16.0])
        self.assertIn("| 500 | 50% |", self.row(report.section_text(one, one), "carrack"))

    def test_cliffs_compare_like_with_like(self):
        one = section("big", carrack=[1.0], carrack_ssh=[1.5], globus=[0.5], scp=[3.0], rsyncd=["no"], wdt=[(300.0, 1)])
        one["tools"]["cp"] = section("big", cp=[0.1])["tools"]["cp"]
        self.assertEqual(report.peer_names({"big": one}), ["globus", "scp", "rsyncd", "wdt"])
        row = self.row("\n".join(report.cliffs({"big": one})), "big")
        self.assertEqual(row, "| big | 1.000 | globus 2.00 | 2.00 | 0.50 | failed | < 0.00 |")

    def test_a_section_without_carrack_has_no_ratio(self):
        row = self.row("\n".join(report.cliffs({"big": section("big", globus=[1.0])})), "big")
        self.assertEqual(row, "| big | – | – | – |")

    def test_the_slowest_workload_of_each_tool(self):
        sections = {name: section(name, carrack=[s], globus=[g]) for name, s, g in (("big", 1, 1), ("small", 2, 20))}
        sections["far"] = section("big", self.link, carrack=[100.0])
        text = "\n".join(report.slowest(sections))
        self.assertIn("| carrack | 1.000 GB/s (big) | 0.500 GB/s (small) | 0.50 |", text)
        self.assertIn("| globus | 1.000 GB/s (big) | 0.050 GB/s (small) | 0.05 |", text)

    def test_a_new_section_replaces_the_old_one_of_its_name_only(self):
        far = results.key("big", self.link)
        old = {"small": section("small", carrack=[1.0]), far: section("big", self.link, carrack=[9.0])}
        merged = results.merge(old, {"big": section("big", carrack=[2.0])})
        self.assertEqual(list(merged), ["big", "small", far])
        merged = results.merge(merged, {"small": section("small", cp=[3.0])})
        self.assertEqual(list(merged["small"]["tools"]), ["cp"])
        self.assertEqual(merged[far], old[far])

    def test_results_are_written_and_read_again(self):
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name, "new")
            results.write(directory, {"big": section("big", carrack=[1.0], date="2026-01-01")})
            results.write(directory, {"small": section("small", carrack=[2.0], date="2026-02-02")})
            self.assertEqual(sorted(os.listdir(directory)), ["RESULTS.md", "results.json"])
            self.assertEqual(list(results.load(directory)), ["big", "small"])
            text = (directory / "RESULTS.md").read_text()
        for words in ("## big: 10 files", "## small: 10 files", "2026-01-01, commit ?", "2026-02-02, commit ?"):
            self.assertIn(words, text)


class Licences(unittest.TestCase):
    """scripts/check-licences."""

    def test_expressions(self):
        expression = load_script(ROOT / "scripts" / "check-licences").Expression
        allowed = {"MIT", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"}
        for text, expected in {
            "MIT": True,
            "GPL-3.0-only": False,
            "GPL-3.0-only OR MIT": True,
            "Apache-2.0/MIT": True,
            "(MIT OR Apache-2.0) AND Unicode-3.0": True,
            "MIT AND GPL-2.0-only": False,
            "GPL-2.0-only OR Apache-2.0 WITH LLVM-exception": True,
            "MIT OR BSD-2-Clause AND GPL-2.0-only": True,
        }.items():
            self.assertEqual(expression(text).allows(allowed), expected, text)
        for text in ("", "MIT OR", "(MIT", "MIT MIT"):
            with self.assertRaises(ValueError):
                expression(text).allows(allowed)


class Inputs(unittest.TestCase):
    """testbed/input."""

    def test_mixed_has_the_papers_shares(self):
        sizes = load_script(ROOT / "testbed" / "input").mixed_sizes(10_000, 64_000_000, 1)
        self.assertEqual(sum(size < 1_000_000 for size in sizes), 8676)
        self.assertEqual(sum(size < 4_000_000 for size in sizes), 9035)
        self.assertGreater(sum(size for size in sizes if size >= 4_000_000), 0.8 * sum(sizes))


if __name__ == "__main__":
    unittest.main()
