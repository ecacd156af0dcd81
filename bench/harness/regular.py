"""Something that is done again and again beside a run."""

import threading


class Regular:
    """Calls `look`, which its heir has, every so many seconds for the time of a `with`."""

    def __init__(self, every_s):
        self._every_s = every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def look(self):
        """What is to be done."""
        raise NotImplementedError

    def _run(self):
        while not self._is_over.wait(self._every_s):
            self.look()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()
