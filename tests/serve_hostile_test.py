"""`lapse serve` against a hostile client, on the loopback and bounded in count and time: nothing crashes it, fills its
memory, keeps others out for long, or is let in."""

import pathlib
import random
import resource
import socket
import struct
import tempfile
import threading
import time
import unittest

from program import TINY, ProgramTest, english, lapse, merged, toml
from serve_client import Server, Session, patiently

MALFORMED = 10_000
AT_ONCE = 200


class Hostile(ProgramTest):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        shared = pathlib.Path(folder.name)
        (shared / "text.txt").write_text(english(6000))
        (shared / "run.toml").write_text(toml(merged(TINY, {"data": {"path": "text.txt"}})))
        done = lapse("train", "run.toml", "--out", "run", cwd=shared)
        assert done.returncode == 0, done.stderr
        cls.run_folder = shared / "run"

    def setUp(self):
        super().setUp()
        self.server = Server(self.run_folder)
        self.addCleanup(lambda: self.server.process.poll() is None and self.server.process.kill())

    def send(self, data, wait=5.0, ends=True):
        """What the server answers to some bytes; `ends`: after which the client says that no more will come."""
        with self.server.socket() as one:
            one.settimeout(wait)
            answer = b""
            try:
                one.sendall(data)
                if ends:
                    one.shutdown(socket.SHUT_WR)
                while more := one.recv(4096):
                    answer += more
            except OSError:
                pass
            return answer

    def status(self, data, **more):
        answer = self.send(data, **more)
        self.assertTrue(answer.startswith(b"HTTP/1.1 "), answer[:80])
        return int(answer[9:12])

    def well(self):
        """The server still serves."""
        status, said = patiently(lambda: self.server.get("/api"))
        self.assertEqual(status, 200, said)
        with Session(self.server) as session:
            session.read("still well")
            self.assertEqual(len(session.steps), 10)

    def finish(self):
        self.well()
        seconds, said, status = self.server.stop()
        self.assertEqual(status, 0, said)
        self.assertLess(seconds, 3)  # a second, and what a busy machine adds
        self.assertNotIn("error", said)

    def request(self, lines, body=b""):
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + body

    def test_threads_that_cannot_start(self):
        """A thread's stack is 8 MB of addresses: connections that get none are turned away, and the server goes on."""
        self.well()
        pid = self.server.process.pid
        size = next(line for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmSize"))
        before = resource.prlimit(pid, resource.RLIMIT_AS, (int(size.split()[1]) * 1024 + 4_000_000, -1))
        held = [self.server.socket() for _ in range(12)]
        time.sleep(0.3)
        for one in held:
            one.close()
        self.assertIsNone(self.server.process.poll())
        resource.prlimit(pid, resource.RLIMIT_AS, before)
        self.finish()

    def test_malformed_requests(self):
        draw = random.Random(1)
        host = f"Host: 127.0.0.1:{self.server.port}"
        good = self.request(["POST /v1/completions HTTP/1.1", host, "Content-Type: application/json", "Content-Length: 2"], b"{}")

        def bad():
            kind = draw.randrange(6)
            if kind == 0:
                return draw.randbytes(draw.randrange(200))
            if kind == 1:  # some bytes changed
                data = bytearray(good)
                for _ in range(draw.randint(1, 8)):
                    data[draw.randrange(len(data))] = draw.randrange(256)
                return bytes(data)
            if kind == 2:  # cut off
                return good[: draw.randrange(len(good))]
            if kind == 3:
                lines = [f"X-{draw.random()}: {'y' * draw.randrange(300)}" for _ in range(draw.randrange(80))]
                return self.request(["GET /api/sessions/../../etc/passwd HTTP/1.1", host, *lines])
            if kind == 4:
                body = draw.choice([b"[" * 900, b'{"prompt": 1}', b'{"lanes": [1]}', b'{"max_tokens": -1}', b"\xff\xfe", b'{"prompt": "\\ud800"}'])
                path = draw.choice(["/v1/completions", "/api/sessions", "/api/sessions/x/play"])
                return self.request([f"POST {path} HTTP/1.1", host, "Content-Type: application/json", f"Content-Length: {len(body)}"], body)
            return self.request(["GET /" + "%" * draw.randrange(100) + " HTTP/1.1", host, f"Range: bytes={draw.random()}"])

        self.well()
        for _ in range(500):
            self.send(bad())
        before = self.server.memory()

        def some(requests):
            for data in requests:
                self.send(data)

        all_of_them = [bad() for _ in range(MALFORMED)]
        clients = [threading.Thread(target=some, args=(all_of_them[i::8],)) for i in range(8)]
        begin = time.monotonic()
        [client.start() for client in clients]
        [client.join() for client in clients]
        self.assertLess(time.monotonic() - begin, 240)
        self.assertLess(self.server.memory() - before, 32 << 20, "nothing is kept of them")
        self.finish()

    def test_huge_and_wrong(self):
        host = f"Host: 127.0.0.1:{self.server.port}"
        json_type = "Content-Type: application/json"
        post = "POST /v1/completions HTTP/1.1"
        for status, lines, body in (
            (431, ["GET / HTTP/1.1", host, "X: " + "y" * 100_000], b""),
            (431, ["GET / HTTP/1.1", host, *[f"X-{i}: y" for i in range(1000)]], b""),
            (200, ["GET / HTTP/1.1", host, "Cookie: " + "y" * 12_000], b""),
            (414, ["GET /" + "a" * 5000 + " HTTP/1.1", host], b""),
            (413, [post, host, json_type, "Content-Length: 100000000"], b"x" * 3_000_000),
            (413, [post, host, json_type, "Content-Length: 2000000", "Expect: 100-continue"], b""),
            (417, [post, host, json_type, "Content-Length: 2", "Expect: 100-continue"], b""),
            (411, [post, host, json_type, "Transfer-Encoding: chunked"], b"ffffffff\r\n" + b"x" * 3_000_000),
            (415, [post, host, json_type, "Content-Encoding: gzip", "Content-Length: 4"], b"\x1f\x8b\x08\x00"),
            (415, [post, host, "Content-Type: text/plain", "Content-Length: 2"], b"{}"),
            (415, [post, host, "Content-Type: application/x-www-form-urlencoded", "Content-Length: 2"], b"{}"),
            (403, [post, host, json_type, "Origin: http://evil.example", "Content-Length: 2"], b"{}"),
            (403, [post, host, json_type, "Origin: null", "Content-Length: 2"], b"{}"),
            (403, [post, f"Host: evil.example:{self.server.port}", json_type, "Content-Length: 2"], b"{}"),
            (403, [post, host, json_type, "Sec-Fetch-Site: cross-site", "Content-Length: 2"], b"{}"),
            (405, ["OPTIONS /api HTTP/1.1", host, "Origin: http://evil.example"], b""),
            (400, [post, host, json_type, "Content-Length: 2", "Content-Length: 3"], b"{}"),
        ):
            answer = self.send(self.request(lines, body))
            if answer:  # a client that still sends may lose the answer to a reset
                self.assertTrue(answer.startswith(f"HTTP/1.1 {status} ".encode()), (status, lines[0][:40], answer[:200]))
                self.assertNotIn(b"Access-Control", answer)
        page = self.send(self.request(["GET /nothing HTTP/1.1", f"Host: evil:{self.server.port}", "Accept: text/html"]))
        self.assertIn(b"<h1>Forbidden</h1>", page)
        for line, named in (("Range: bytes=0-1", b"416 Range Not Satisfiable"), ("Expect: 100-continue", b"417 Expectation Failed")):
            self.assertTrue(self.send(self.request(["GET / HTTP/1.1", host, line])).startswith(b"HTTP/1.1 " + named))
        self.assertIn(b" 505 HTTP Version Not Supported\r\n", self.send(self.request(["GET / HTTP/2", host])))
        body = b'{"max_tokens": 1000}'  # not written before the server can see that the client is gone
        asked = self.request([post, host, json_type, f"Content-Length: {len(body)}"], body)
        self.assertEqual(self.status(asked, ends=False), 200)
        # A client that is gone looks the same: nothing is written for it.
        self.assertRegex(self.send(asked), rb"(?s)^HTTP/1.1 503 .*broken off")
        self.finish()

    def test_slow_clients_do_not_keep_others_out(self):
        slow = [self.server.socket() for _ in range(60)]
        for one in slow:
            one.sendall(b"GET /api HTTP/1.1\r\nHost: 127")
        begin = time.monotonic()
        self.well()
        self.assertLess(time.monotonic() - begin, 4)
        time.sleep(max(0, 6 - (time.monotonic() - begin)))
        for one in slow:  # they were told, and closed
            one.settimeout(1)
            answer = one.recv(100)
            self.assertTrue(answer.startswith(b"HTTP/1.1 408 "), answer)
            one.close()
        self.finish()

    def test_many_at_once(self):
        request = self.request(["GET /api HTTP/1.1", f"Host: 127.0.0.1:{self.server.port}"])
        answers, lock = [], threading.Lock()

        def ask():
            answer = self.send(request, wait=20)
            with lock:
                answers.append(answer[:12])

        clients = [threading.Thread(target=ask) for _ in range(AT_ONCE)]
        [client.start() for client in clients]
        [client.join() for client in clients]
        kinds = {kind: answers.count(kind) for kind in set(answers)}
        self.assertGreater(kinds.get(b"HTTP/1.1 200", 0), AT_ONCE // 2, kinds)
        self.assertLessEqual(set(kinds), {b"HTTP/1.1 200", b"HTTP/1.1 503", b""}, kinds)
        self.finish()

    def test_sessions_are_bounded_and_freed(self):
        sessions = [Session(self.server) for _ in range(16)]
        status, said = self.server.post("/api/sessions")
        self.assertEqual(status, 503)
        self.assertIn("16 sessions are open already", said["error"]["message"])
        for session in sessions:  # as a browser that crashes: no goodbye
            session.connection.sock and session.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            session.close()
        until = time.monotonic() + 5
        while (status := self.server.post("/api/sessions")[0]) == 503 and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(status, 200)
        self.finish()

    def test_text_that_waits_to_be_read_is_bounded(self):
        with Session(self.server) as session:
            statuses = [self.server.post(f"{session.path}/read", text="a" * 1_000_000, hold=True)[0] for _ in range(5)]
        self.assertEqual(statuses[:4], [200] * 4)
        self.assertIn(statuses[4], (400, 409))
        self.finish()

    def test_a_reader_that_takes_nothing_is_dropped(self):
        _, said = self.server.post("/api/sessions")
        path = f"/api/sessions/{said['session']}"
        with self.server.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall(self.request([f"GET {path}/events HTTP/1.1", f"Host: 127.0.0.1:{self.server.port}"]))
            time.sleep(0.2)
            self.assertEqual(self.server.post(f"{path}/play")[0], 200)
            time.sleep(2)
            before = self.server.memory()
            until = time.monotonic() + 30
            while self.server.get(f"{path}/told")[0] == 200 and time.monotonic() < until:
                time.sleep(0.2)
            self.assertEqual(self.server.get(f"{path}/told")[0], 404)
            self.assertLess(self.server.memory() - before, 16 << 20)
        self.finish()

    def test_ctrl_c_while_it_works(self):
        sessions = [Session(self.server) for _ in range(3)]
        for session in sessions:
            session.post("play")
        half = self.server.socket()
        half.sendall(b"POST /v1/completions HTTP/1.1\r\n")
        time.sleep(0.3)
        seconds, said, status = self.server.stop()
        self.assertEqual(status, 0, said)
        self.assertLess(seconds, 3)
        half.close()
        for session in sessions:
            session.close()


if __name__ == "__main__":
    unittest.main()
