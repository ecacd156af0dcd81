"""What the pages of results are made with."""

import os


def replace(path, text):
    """The file is the old one or the new one, never half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.rename(path)


def table(header, rows):
    """In Markdown."""
    return "".join("| " + " | ".join(map(str, row)) + " |\n" for row in [header, ["---"] * len(header), *rows])
