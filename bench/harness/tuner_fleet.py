"""One transfer of a fleet of two movers that is watched for some time and then cancelled: its rate, and what its sessions work with."""

import time

from . import backlog
from .tuner_run import Watched

LOOK_EVERY_S = 0.5
CANCELLED_WITHIN_S = 20
# Pairs at most at each mover, as `carrack mover` has it.
PAIRS = 4


class TwoMovers(backlog.Fleet):
    """A mover where a condition's files are, and one where its copies go; nothing is remembered from earlier runs."""

    def __init__(self, carrack, source, sink):
        super().__init__(carrack, movers=1)
        self.paths = {"east": source, "west": sink}

    def start_movers(self, pairs=PAIRS):
        """Both."""
        for site, path in self.paths.items():
            options = ["--site", site, "--path", str(path), "--listen", "127.0.0.1:0", "--pairs", str(pairs), "--protection", "clear"]
            self.start(f"{site}0", "mover", *options).await_word(" of ")


def transfer_options(condition, fixed):
    """As the API has them; `fixed` is (threads, streams, pairs), or None for what a fleet chooses."""
    options = {"protection": condition.options[condition.options.index("--protection") + 1]}
    if fixed:
        threads, streams, pairs = fixed
        options |= {"tune": "off", "io-threads": threads, "streams": streams, "pairs": pairs}
        if condition.is_one_target:
            options["max-inflight-per-target"] = threads
    return options


def watch(carrack, condition, target, span_s, fixed=None):
    """Runs one for `span_s` seconds after something was moved first; what it did, and its sessions at the end."""
    counted = {"bytes_done": "bytes_done", "entries_done": "files_done"}[condition.counted]
    source = condition.sources[0]
    with condition.fresh(target) as place:
        place.mkdir()
        with TwoMovers(carrack, source.parent, place) as fleet:
            fleet.start_movers()
            api = fleet.api()
            body = {"source": f"east:{source}", "destination": f"west:{place}/", "options": transfer_options(condition, fixed)}
            record = api.ask("POST", "/v1/transfers", body)
            watched, begun_s, sessions = Watched(), None, []
            given_up_s = time.monotonic() + backlog.PATIENCE_S
            while begun_s is None and time.monotonic() < given_up_s or begun_s is not None and time.monotonic() - begun_s < span_s:
                record = api.ask("GET", f"/v1/transfers/{record['id']}")
                if begun_s is None and record["tally"][counted]:
                    begun_s = time.monotonic()
                if begun_s is not None:
                    watched.progress.append((time.monotonic() - begun_s, record["tally"][counted]))
                sessions = record.get("sessions") or sessions
                if record["state"] in backlog.OVER:
                    watched.ended_s = time.monotonic() - (begun_s or time.monotonic())
                    watched.error = record.get("reason", "")
                    break
                time.sleep(LOOK_EVERY_S)
            if record["state"] not in backlog.OVER:
                api.ask("POST", f"/v1/transfers/{record['id']}/cancel")
                over_s = time.monotonic() + CANCELLED_WITHIN_S
                while api.ask("GET", f"/v1/transfers/{record['id']}").get("ended_ms") is None and time.monotonic() < over_s:
                    time.sleep(LOOK_EVERY_S)
    if len(watched.progress) < 4:
        raise OSError(f"{condition.name}: nothing was moved: {watched.error or record.get('waits_for')}")
    return watched, sessions
