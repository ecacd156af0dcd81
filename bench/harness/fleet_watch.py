"""What is said on a fleet's NATS while it works: transfers' records, logs, pairs, reports. Listens, and asks nothing."""

import json
import socket
import threading
import time
from collections import Counter

SUBJECTS = ("$KV.carrack_transfers.>", "$KV.carrack_movers.>", "$KV.carrack_pairs.>", "carrack.log.*", "carrack.report.*")
# What movers say of deliveries: only what is given back tells something here.
ACKS, GIVEN_BACK = "$JS.ACK.carrack_work.", b"-NAK"
OVER = ("done", "failed", "cancelled")


class Watch:
    """A connection that listens, and what it has heard."""

    def __init__(self, host, port, keep=None):
        self.records = {}  # transfers by id, as they were last
        self.hosts = {}  # movers' host names by id
        self.pairs = {}  # all pairs that there ever were: key: (source, sink)
        self.done = []  # chunks
        self._keep = keep
        self._socket = socket.create_connection((host, port))
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self):
        lines = ['CONNECT {"verbose":false,"headers":true}']
        lines += [f"SUB {subject} {number}" for number, subject in enumerate([*SUBJECTS, f"{ACKS}>"], 1)]
        self._socket.sendall(("\r\n".join(lines) + "\r\n").encode())
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def is_over(self, transfer):
        """Whether a transfer is, and its record is complete."""
        record = self.records.get(transfer)
        return bool(record) and record["state"] in OVER and "ended_ms" in record

    def pair_counts(self):
        """How many pairs there were between two movers."""
        named = ((self.hosts.get(source, source), self.hosts.get(sink, sink)) for source, sink in self.pairs.values())
        return dict(sorted(Counter(f"{source} {sink}" for source, sink in named).items()))

    def _listen(self):
        try:
            with self._socket.makefile("rb") as stream:
                for subject, body in messages(stream, self._socket.sendall):
                    self._hear(subject, body)
        except (OSError, ValueError):
            pass  # the server's end, or this one's

    def _hear(self, subject, body):
        if not body:
            return  # a key's end
        if subject.startswith(ACKS):
            if not body.startswith(GIVEN_BACK):
                return
            value = {"given_back": body.decode()}
        else:
            value = json.loads(body)
        if self._keep is not None:
            self._keep.append({"at": time.time(), "subject": subject, "value": value})
        if subject.startswith("$KV.carrack_transfers."):
            self.records[value["id"]] = value
        elif subject.startswith("$KV.carrack_movers."):
            self.hosts[value["id"]] = value["host"]
        elif subject.startswith("$KV.carrack_pairs."):
            self.pairs[subject] = (value["source"], value["sink"])
        elif value.get("what") == "chunk-done":
            self.done.append(value)


def messages(stream, send):
    """(subject, body) of all messages that a server sends."""
    while line := stream.readline():
        words = line.decode().split()
        if words[:1] == ["PING"]:
            send(b"PONG\r\n")
        elif words[:1] == ["MSG"]:
            yield words[1], stream.read(int(words[-1]) + 2)[:-2]
        elif words[:1] == ["HMSG"]:
            headers, total = int(words[-2]), int(words[-1])
            yield words[1], stream.read(total + 2)[headers:-2]
