"""The harness's parts that decide whether a result is right."""

import os
import tempfile
import unittest
from importlib import machinery, util
from pathlib import Path

from harness import cgroup, meter, report, rounds, servers, tools, verify, workloads

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

    case = tools.Case("big", Path("/s p"), Path("/d"), Path("/x"), 4711, ssh="ssh -F /x/ssh_config")

    def test_carrack_pushes_and_pulls(self):
        push = tools.Carrack("carrack", "/c").client(self.case)
        self.assertEqual(push[-2:], ["/s p/", "127.0.0.1:/d/"])
        pull = tools.Carrack("carrack-ssh-pull", "/c", over_ssh=True, pull=True, extra=["--streams", "2"])
        self.assertEqual(pull.client(self.case)[-4:], ["--streams", "2", "carrack-test:/s p/", "/d/"])
        self.assertIn("ssh -F /x/ssh_config", pull.client(self.case))

    def test_globus_pulls_where_that_is_faster(self):
        case = tools.Case("linux", Path("/s"), Path("/d"), Path("/x"), 4711)
        self.assertEqual(tools.Globus("globus").client(case)[-2:], ["ftp://127.0.0.1:4711/s/", "file:///d/"])

    def test_templates_are_filled_after_they_are_split(self):
        tool = tools.Template("mine", "mine --port {port} {src} {host}:{dst}")
        self.assertEqual(tool.client(self.case), ["mine", "--port", "4711", "/s p", "127.0.0.1:/d"])

    def test_every_workload_has_settings_with_every_tool(self):
        for kind, _arguments, _words in workloads.KNOWN.values():
            for tool in tools.built_in(Path("/c")).values():
                self.assertTrue(tool.settings(kind), tool.name)


class Measuring(TwoTrees):
    """A run from end to end, with programs that are everywhere."""

    def measure(self, command):
        """One run of a template."""
        case = tools.Case("big", self.source, self.copy, Path(self._dir.name), servers.free_port())
        return meter.measure(tools.Template("mine", command), case, lambda: None, timeout_s=5)

    def test_wall_and_cpu_time_are_counted(self):
        result = self.measure("sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 0.1'")
        self.assertTrue(result.ok, result.problems)
        self.assertGreater(result.wall_s, 0.1)
        self.assertGreater(result.cpu_s, 0.005)

    def test_a_failing_and_a_hanging_client_are_problems(self):
        self.assertIn("exit status 3: it says", self.measure("sh -c 'echo it says; exit 3'").problems[0])
        case = tools.Case("big", self.source, self.copy, Path(self._dir.name), 1)
        hanging = meter.measure(tools.Template("mine", "sleep 60"), case, lambda: None, timeout_s=0.2)
        self.assertEqual(hanging.problems, ["timed out"])

    def test_this_process_has_a_peak(self):
        self.assertGreater(cgroup.peak_rss_bytes(os.getpid()), 1 << 20)
        self.assertIn("python", cgroup.process_name(os.getpid()))


class Reports(TwoTrees):
    """The table."""

    def test_ratio_is_carracks_wall_over_the_others(self):
        chosen = [tools.Carrack("carrack", "/c"), tools.Cp("cp"), tools.RsyncDaemon("rsyncd")]
        results = {
            "carrack": [meter.Measurement(wall_s=s, cpu_s=1.0) for s in (1.0, 3.0, 2.0)],
            "cp": [meter.Measurement(wall_s=4.0, cpu_s=1.0, foreign_cores=0.5)],
            "rsyncd": [meter.Measurement(problems=["no"])],
        }
        workload = workloads.Workload("w", "big", "words", self.source, verify.list_tree(self.source))
        text = report.WorkloadReport(workload, chosen, results, {"globus": "not installed"}).markdown()
        row = next(line for line in text.splitlines() if line.startswith("| cp |"))
        self.assertIn("| 0.50 | 1 (1 disturbed) |", row)
        self.assertIn("**rsyncd failed** in round 1: no", text)
        self.assertIn("`globus` left out", text)
        self.assertTrue(rounds.is_disturbed(results["cp"][0]))


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
