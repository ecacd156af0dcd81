"""The bill of materials: whether it has what the program has, and a text for each licence."""

import functools
import json
import os
import re
import subprocess
import tempfile
import unittest
import unittest.mock
from importlib import machinery, util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = "x86_64-unknown-linux-gnu"


def load(name):
    """A script as a module."""
    loader = machinery.SourceFileLoader(name, str(ROOT / "scripts" / name))
    module = util.module_from_spec(util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


sbom = load("sbom")


@functools.cache
def written():
    """The bill and the texts, as the script writes them."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
        command = [ROOT / "scripts" / "sbom", "--target", TARGET, directory]
        subprocess.run(command, check=True, env=environment, stderr=subprocess.DEVNULL)
        files = [Path(directory) / name for name in ("carrack.cdx.json", "third-party.txt")]
        return json.loads(files[0].read_text()), files[1].read_text()


def tree_of_cargo():
    """What `cargo tree` lists, as (name, version)."""
    command = ["cargo", "tree", "--package", "carrack", "--edges", "normal", "--target", TARGET, "--prefix", "none", "--format", "{p}"]
    lines = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return {(line.split()[0], line.split()[1].removeprefix("v")) for line in lines if line.strip()}


class Bill(unittest.TestCase):
    """carrack's own."""

    def test_has_every_crate_that_cargo_builds_into_the_program(self):
        bill, _ = written()
        listed = {(each["name"], each["version"]) for each in [bill["metadata"]["component"], *bill["components"]]}
        libraries = {key for key in listed if key[0] in ("aws-lc", "sqlite", "rust-std")}
        self.assertEqual(len(libraries), 3)
        self.assertEqual(listed - libraries, tree_of_cargo())
        self.assertFalse({name for name, _ in listed} & {"proptest", "tempfile", "cc"}, "tests' and build scripts' crates")

    def test_tells_macros_from_what_is_linked(self):
        bill, _ = written()
        scopes = {each["name"]: each["scope"] for each in bill["components"]}
        self.assertEqual((scopes["serde_derive"], scopes["serde"], scopes["sqlite"]), ("excluded", "required", "required"))

    def test_every_reference_leads_to_a_component(self):
        bill, _ = written()
        known = {bill["metadata"]["component"]["bom-ref"], *(each["bom-ref"] for each in bill["components"])}
        self.assertEqual({each["ref"] for each in bill["dependencies"]}, known)
        self.assertLessEqual({ref for each in bill["dependencies"] for ref in each["dependsOn"]}, known)

    def test_what_comes_from_a_registry_has_its_digest(self):
        bill, _ = written()
        without = [each["name"] for each in bill["components"] if each["purl"].startswith("pkg:cargo/") and not each.get("hashes")]
        self.assertEqual(without, [])

    def test_every_foreign_component_has_a_text(self):
        bill, texts = written()
        head, *bodies = re.split(r"^={80}\n\[(\d+)\] .*\n={80}\n", texts, flags=re.M)
        lengths = {number: len(body) for number, body in zip(bodies[::2], bodies[1::2])}
        listed = {name: numbers.split(", ") for name, numbers in re.findall(r"^(\S+ \S+): .* \[([0-9, ]+)\]$", head, re.M)}
        for each in bill["components"]:
            if not each["purl"].startswith("pkg:github/carrack/"):
                numbers = listed[f"{each['name']} {each['version']}"]
                self.assertGreater(max(lengths[number] for number in numbers), 200, each["name"])

    def test_is_the_same_again_and_has_a_time_only_when_told(self):
        parts = sbom.bill(TARGET)
        with unittest.mock.patch.dict(os.environ):
            os.environ.pop("SOURCE_DATE_EPOCH", None)
            first = sbom.as_cyclonedx(*parts, TARGET)
            self.assertEqual(first, written()[0])
            self.assertNotIn("timestamp", first["metadata"])
            os.environ["SOURCE_DATE_EPOCH"] = "86400"
            self.assertEqual(sbom.as_cyclonedx(*parts, TARGET)["metadata"]["timestamp"], "1970-01-02T00:00:00Z")


class Texts(unittest.TestCase):
    """Where a crate's licence is read."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def texts(self, licence):
        """Of a crate in this test's directory."""
        return sbom.texts_of({"name": "a", "version": "1.0.0", "license": licence}, self.directory, "Apache's")

    def test_all_files_with_licences_count_but_not_those_of_pictures(self):
        for name in ("LICENSE-MIT", "src/tables/LICENSE-UNICODE", "assets/LICENSE", "license.rs"):
            (self.directory / name).parent.mkdir(parents=True, exist_ok=True)
            (self.directory / name).write_text(name + " " + "x" * 500)
        self.assertEqual([text.split()[0] for text in self.texts("MIT")], ["LICENSE-MIT", "src/tables/LICENSE-UNICODE"])

    def test_a_crate_without_a_text_is_told_unless_apaches_will_do(self):
        (self.directory / "COPYING").write_text("See the other file.\n")
        for licence in ("MIT", "MIT AND Apache-2.0", "Apache-2.0 WITH LLVM-exception"):
            with self.assertRaisesRegex(sbom.Error, "a 1.0.0 .* carries no licence's text"):
                self.texts(licence)
        for licence in ("Apache-2.0", "MIT/Apache-2.0"):
            self.assertIn("Apache's", self.texts(licence))

    def test_a_crate_without_a_licence_is_told(self):
        with self.assertRaisesRegex(sbom.Error, "names no licence"):
            self.texts(None)

    def test_a_text_of_two_crates_is_printed_once(self):
        both = [sbom.Component(name, "1.0.0", "MIT", "", texts=("the terms\n",)) for name in ("a", "b")]
        self.assertEqual(sbom.third_party(both, "9").count("the terms"), 1)
        self.assertIn("[1] a 1.0.0, b 1.0.0", sbom.third_party(both, "9"))


class Program(unittest.TestCase):
    """A program against the bill."""

    PLACE = b"\0/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/%s/src/lib.rs\0"

    def check(self, *crates):
        """Checks a program that names these against a bill with serde and a macro of it."""
        components = {
            ("serde", "1.0.229"): sbom.Component("serde", "1.0.229", "MIT", ""),
            ("serde_derive", "1.0.229"): sbom.Component("serde_derive", "1.0.229", "MIT", "", in_program=False),
        }
        with tempfile.NamedTemporaryFile() as program:
            program.write(b"".join(self.PLACE % crate for crate in crates))
            program.flush()
            return sbom.check(program.name, components)

    def test_all_that_it_names_are_looked_up(self):
        self.assertEqual(self.check(b"serde-1.0.229", b"serde-1.0.229"), 1)

    def test_what_is_not_in_the_bill_is_told(self):
        for crate in (b"serde-1.0.230", b"toml_parser-1.1.5+spec-1.1.0", b"serde_derive-1.0.229"):
            with self.assertRaisesRegex(sbom.Error, crate.decode().replace("-1", " 1", 1).replace("+", r"\+")):
                self.check(b"serde-1.0.229", crate)

    def test_a_program_that_names_none_is_no_proof(self):
        with self.assertRaisesRegex(sbom.Error, "names no crate"):
            self.check()


if __name__ == "__main__":
    unittest.main()
