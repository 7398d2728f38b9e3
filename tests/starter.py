"""Runs the program many times in little time, for tests/program.py: libtorch is loaded once (starter.cpp, the other end)."""

import functools
import os
import socket
import struct
import subprocess


class Starter:
    """A process of the program, held just before main and forked for each run."""

    def __init__(self, program, library, timeout):
        self.program, self.timeout = program, timeout
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(timeout)
        with theirs:
            self.process = subprocess.Popen([program], stdin=theirs, env={**os.environ, "OMP_WAIT_POLICY": "passive", "LD_PRELOAD": library})

    def run(self, arguments, folder):
        """The finished process: returncode, stdout, stderr."""
        streams = [os.memfd_create("stdout"), os.memfd_create("stderr")]
        with open(streams[0], encoding="utf-8") as stdout, open(streams[1], encoding="utf-8") as stderr:
            request = b"".join(os.fsencode(part) + b"\0" for part in (folder, *arguments))
            socket.send_fds(self.socket, [request], [0, *streams])
            returncode = os.waitstatus_to_exitcode(self.status(self.answer(), arguments))
            for file in (stdout, stderr):
                file.seek(0)
            return subprocess.CompletedProcess([self.program, *arguments], returncode, stdout.read(), stderr.read())

    def status(self, process, arguments):
        try:
            return self.answer()
        except TimeoutError:
            os.kill(process, 9)
            self.answer()
            raise subprocess.TimeoutExpired(arguments, self.timeout) from None

    def answer(self):
        """A process id, or a status as of os.wait."""
        answer = self.socket.recv(4)
        assert answer, "the held process has ended"
        return struct.unpack("i", answer)[0]


held = functools.cache(Starter)
