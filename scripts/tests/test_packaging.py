"""The recipes of packaging/: that they parse, agree on the version, and name what exists."""

import json
import re
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]

# Where a recipe runs carrack: its name, at the beginning of a command or of a list of arguments.
COMMAND = re.compile(r"""(?:^|[\s"/`])carrack ([a-z]+)((?: +[^\n`"]*)?)|args: \["([a-z]+)"([^\]]*)\]""", re.MULTILINE)


def recipes():
    return [path for path in sorted(PACKAGING.rglob("*")) if path.is_file()]


def commands(text):
    """Each subcommand that a text runs, with its long options."""
    for match in COMMAND.finditer(text):
        command, rest = match.group(1) or match.group(3), match.group(2) or match.group(4) or ""
        if (ROOT / "docs/man" / f"carrack-{command}.1").exists():
            yield command, re.findall(r"--[a-z][a-z-]*", rest)


def manual(command):
    return (ROOT / "docs/man" / f"carrack-{command}.1").read_text().replace("\\-", "-")


def without_templates(text):
    """The YAML of a Helm template or a conda recipe, each expression a word."""
    text = re.sub(r"^\{%.*%\}$", "", text, flags=re.MULTILINE)
    return re.sub(r"\{\{[^}]*\}\}", "word", text)


class Recipes(unittest.TestCase):
    def test_they_run_commands_and_options_that_exist(self):
        found = set()
        for path in recipes():
            for command, options in commands(path.read_text()):
                found.add(command)
                for option in options:
                    self.assertIn(option, manual(command), f"{path}: carrack {command} {option}")
        self.assertLessEqual({"serve", "topo"}, found)

    def test_they_have_the_programs_version(self):
        places = {
            "conda/meta.yaml": rf'version = "{VERSION}"',
            "nix/flake.nix": rf'version = "{VERSION}"',
            "helm/carrack/Chart.yaml": rf'appVersion: "{VERSION}"',
            "helm/carrack/values.yaml": rf"image: carrack:{VERSION}",
        }
        for name, line in places.items():
            self.assertIn(line, (PACKAGING / name).read_text(), name)
        client = tomllib.loads((ROOT / "clients/python/pyproject.toml").read_text())
        self.assertEqual(client["project"]["version"], VERSION)

    def test_paths_of_the_repository_exist(self):
        for path in recipes():
            for name in re.findall(r"(?:packaging|docs|crates)/[\w./-]*\w", path.read_text()):
                self.assertTrue((ROOT / name).exists(), f"{path}: {name}")

    def test_they_parse(self):
        compile((PACKAGING / "spack/package.py").read_text(), "package.py", "exec")
        tomllib.loads((PACKAGING / "carrack.toml").read_text())
        for name, comment in [("nix/flake.nix", "#.*"), ("module/carrack.lua", "--.*")]:
            text = re.sub(rf'"[^"\n]*"|{comment}', "", (PACKAGING / name).read_text())
            self.assertIn("(", text)
            for opening, closing in ["{}", "[]", "()"]:
                self.assertEqual(text.count(opening), text.count(closing), f"{name}: {opening}")

    def test_yaml_parses(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("no python3-yaml")
        for path in recipes():
            if path.suffix in (".yaml", ".yml"):
                documents = list(yaml.safe_load_all(without_templates(path.read_text())))
                self.assertTrue(all(isinstance(document, (dict, list)) for document in documents), path)
                json.dumps(documents)


if __name__ == "__main__":
    unittest.main()
