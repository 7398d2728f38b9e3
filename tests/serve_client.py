"""A client of `lapse serve` for tests and benchmarks: its process, its JSON and its events."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import time

import program


class Server:
    """A process of `lapse serve` on a free port of the loopback."""

    def __init__(self, *arguments, **options):
        self.process = program.start("serve", *arguments, "--port", 0, **options)
        line = self.process.stdout.readline()
        found = re.match(r"http://\S*?:(\d+)/", line)
        assert found, self.process.communicate()[1]
        self.port, self.address = int(found[1]), line.strip()

    def stop(self):
        """Ctrl-C; (seconds that it took, what was said, the status)."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        said = self.process.communicate(timeout=30)[1]
        return time.monotonic() - begin, said, self.process.returncode

    def ask(self, method, path, body=None, headers=(), raw=False):
        """(status, JSON or bytes)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = dict(headers)
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        return reply.status, data if raw else json.loads(data)

    def get(self, path):
        return self.ask("GET", path)

    def post(self, path, **body):
        return self.ask("POST", path, body)

    def memory(self):
        """Resident bytes."""
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def socket(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)


def patiently(ask, seconds=20):
    """What `ask` gives, (status, what was said); asks again while the server says that too much is asked of it."""
    until = time.monotonic() + seconds
    while True:
        status, said = ask()
        if status not in (429, 503) or time.monotonic() > until:
            return status, said
        time.sleep(0.1)


class Session:
    """A session and its events; use as a context."""

    def __init__(self, server, **settings):
        self.server = server
        status, said = patiently(lambda: server.post("/api/sessions", **settings))
        assert status == 200, said
        self.path = f"/api/sessions/{said['session']}"
        status, said = patiently(self.listen)
        assert status == 200, said
        self.steps, self.other, self.came = [], [], []

    def listen(self):
        """Asks for the events; (status, what a refusal says)."""
        self.connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        self.connection.request("GET", self.path + "/events")
        self.reply = self.connection.getresponse()
        return self.reply.status, None if self.reply.status == 200 else self.reply.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        # The reply holds the socket too.
        with contextlib.suppress(OSError):
            self.connection.sock and self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.reply.close()
        self.connection.close()

    def event(self):
        """The next: (name, data)."""
        name = None
        while True:
            line = self.reply.readline().decode().rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = json.loads(line[6:])
                if name == "steps":
                    self.steps += data
                    self.came += [time.time() * 1000] * len(data)
                elif name == "undo":
                    del self.steps[data["t"] :]
                else:
                    self.other.append((name, data))
                return name, data

    def until(self, name, check=lambda data: True):
        while True:
            got, data = self.event()
            if got == name and check(data):
                return data

    def post(self, command, **body):
        return patiently(lambda: self.server.post(f"{self.path}/{command}", **body))

    def idle(self):
        """Reads events until nothing goes on."""
        return self.until("state", lambda state: not state["playing"])

    def read(self, text):
        status, said = self.post("read", text=text)
        assert status == 200, said
        self.until("state", lambda state: state["playing"])
        self.idle()

    def play(self, steps, **more):
        status, said = self.post("play", steps=steps, **more)
        assert status == 200, said
        self.until("state", lambda state: state["playing"])
        self.idle()
