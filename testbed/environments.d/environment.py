"""The list of environments: each is a function that sets up a fixture, with a title, a group and what is known of it."""

from dataclasses import dataclass, field

ENVIRONMENTS = {}

FILE_SYSTEMS = "File systems"
SERVED = "File systems by FUSE and by servers"
REFUSED = "Refused system calls"
RIGHTS = "Users and capabilities"
LIMITS = "Memory and limits"
SURROUNDINGS = "Homes, masks and what is missing"


@dataclass
class Environment:
    """One row of the table."""

    name: str
    title: str
    group: str
    setup: object
    slow: bool = False  # only with --all
    on_disk: bool = False  # its files are not in memory, which would count for its limits
    operations: tuple = ()  # all, where none is named
    # By operation (or * for all): why it can't be right there, or is not yet. Such a cell counts neither as right nor as wrong.
    known: dict = field(default_factory=dict)
    known_complaints: str = ""  # with it, a cell is known only if each of its complaints has a match for this regular expression


def environment(name, title, group, **others):
    """Puts a function into the list."""

    def put(setup):
        assert name not in ENVIRONMENTS, name
        ENVIRONMENTS[name] = Environment(name, title, group, setup, **others)
        return setup

    return put


def add(name, title, group, setup, **others):
    """The same for functions that are made in a loop."""
    environment(name, title, group, **others)(setup)
