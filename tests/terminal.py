"""A conversation with the program, as a person has it on a terminal."""

import os
import pty
import select
import time

from program import TIMEOUT, start


class Terminal:
    """`lapse ARGUMENTS` on a terminal of its own, which ends with the block `with`."""

    def __init__(self, test, *arguments):
        self._test, self._seen = test, b""
        self._ours, theirs = pty.openpty()
        self.process = start(*arguments, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)

    def write(self, keys):
        os.write(self._ours, keys)

    def until(self, words):
        """Waits for these bytes. The next call looks at what comes after them."""
        deadline = time.monotonic() + TIMEOUT
        while words not in self._seen:
            left = max(0, deadline - time.monotonic())
            self._test.assertTrue(select.select([self._ours], [], [], left)[0], self._seen)
            self._seen += os.read(self._ours, 4096)
        self._seen = self._seen.split(words, 1)[1]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
