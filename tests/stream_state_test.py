"""`lapse generate --state`: a stream that is kept in a file, and goes on from there."""

import json
import math
import os
import re
import signal
import struct
import subprocess
import time
import unittest

from program import TINY, ProgramTest, checkpoints, english, merged, shared_folder, start, train_run
from terminal import Terminal

shared = None  # the folder of runs that the tests read


def forged(good, name, form, *values):
    """A safetensors file whose tensor has other values, and that has no checksum."""
    size = struct.unpack("<Q", good[:8])[0]
    header, data = json.loads(good[8 : 8 + size]), bytearray(good[8 + size :])
    del header["__metadata__"]["lapse.checksum"]
    struct.pack_into(f"<{len(values)}{form}", data, header[name]["data_offsets"][0], *values)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def setUpModule():
    global shared
    shared = shared_folder()
    (shared / "text.txt").write_text(english(6000))
    train = {"updates": 60, "batch": 8, "validate_every": 0, "checkpoint_every": 30}
    base = {"data": {"path": "text.txt", "unit": "character"}, "train": train, "optimiser": {"rate": 1e-2}}
    window = {"data": {"windows": True}, "model": {"positions": "absolute"}, "train": {"block": 32}}
    fixed = {"forgetting": {"method": "fixed_span"}, "fixed_span": {"max_span": 32}}
    for name, changes in {"expire": {}, "fixed": fixed, "window": merged(window, fixed)}.items():
        train_run(shared / name, merged(TINY, base, changes))


class State(ProgramTest):
    def setUp(self):
        super().setUp()
        self.state = self.folder / "stream"

    def text(self, run, tokens, *arguments):
        """What is written, without the line end behind it."""
        return self.succeed("generate", shared / run, "--tokens", tokens, *arguments).stdout[:-1]

    def test_a_text_in_pieces_is_the_text(self):
        for run in ("expire", "fixed"):
            for prompt in ((), ("--prompt", "The river ")):
                self.state.unlink(missing_ok=True)
                whole = self.text(run, 120, *prompt)
                pieces = [self.text(run, 50, *prompt, "--state", self.state), self.text(run, 1, "--state", self.state)]
                pieces.append(self.text(run, 69, "--state", self.state))
                self.assertEqual("".join(pieces), whole)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["stream"])

    def test_a_prompt_goes_on_from_the_stream(self):
        first = self.succeed_json("generate", shared / "expire", "--prompt", "The ", "--tokens", 30, "--state", self.state)
        text = first["prompt"] + first["text"]
        kept = ("--prompt", "So be it. ", "--tokens", 20, "--temperature", 0)
        second = self.succeed_json("generate", shared / "expire", *kept, "--state", self.state, "--remembered")
        whole = self.succeed_json("generate", shared / "expire", "--prompt", text + "So be it. ", *kept[2:])
        self.assertEqual(second["text"], whole["text"])
        self.assertEqual(second["tokens_seen"], whole["tokens_seen"])
        self.assertEqual(second["prompt_tokens"], len("So be it. "))
        self.assertEqual(len(second["remembered"]), len("So be it. ") + 20)

    def test_a_typed_stream_goes_on(self):
        def typed(lines):
            process = start("generate", shared / "expire", "--interactive", "--temperature", 0, "--tokens", 10, "--state", self.state, stdin=subprocess.PIPE)
            return process.communicate(lines)[0]

        typed("The river\n")
        shown = typed("is deep\n/memory\n/text\n")
        self.assertIn(f"of {len('The river') + 10 + 1 + len('is deep') + 10} tokens", shown)

    def terminal(self, *arguments):
        return Terminal(self, "generate", shared / "expire", "--interactive", "--state", self.state, *arguments)

    def seen(self):
        """How many tokens the kept stream has; nothing else is left beside it."""
        self.assertEqual([path.name for path in self.folder.iterdir()], ["stream"])
        shown = self.succeed_json("generate", shared / "expire", "--tokens", 1, "--state", self.state)
        return shown["tokens_seen"] - 1

    def test_a_signal_at_the_prompt_keeps_what_was_said(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.state.unlink(missing_ok=True)
            with self.terminal("--tokens", 10) as terminal:
                terminal.until(b"> ")
                terminal.write(b"The river\n")
                terminal.until(b"\n")
                terminal.until(b"> ")
                terminal.process.send_signal(number)
                self.assertEqual(terminal.process.wait(timeout=60), 0, number)
            self.assertEqual(self.seen(), len("The river") + 10)

    def test_a_signal_within_an_answer_keeps_what_was_said(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            self.state.unlink(missing_ok=True)
            with self.terminal("--tokens", 0) as terminal:
                terminal.until(b"> ")
                terminal.write(b"The river\n")
                terminal.until(b"\n")
                terminal.until(b" ")
                terminal.process.send_signal(signal.SIGINT)  # ends the answer only
                terminal.until(b"> ")
                terminal.write(b"The\n")
                terminal.until(b"\n")
                terminal.until(b" ")
                terminal.process.send_signal(number)
                self.assertEqual(terminal.process.wait(timeout=60), 0, number)
            self.assertGreater(self.seen(), len("The riverThe"))

    def test_a_line_that_is_too_long_is_passed_over(self):
        process = start("generate", shared / "expire", "--interactive", "--tokens", 10, "--state", self.state, stdin=subprocess.PIPE)
        _, error = process.communicate("The\n" + "x" * 1_100_000 + "\nThe\n", timeout=100)
        self.assertEqual((process.returncode, error.count("\n")), (0, 1), error)
        self.assertIn("a line of more than 1048576 bytes is passed over", error)
        self.assertEqual(self.seen(), 2 * len("The") + len("\n") + 2 * 10)

    def test_a_reader_that_has_gone(self):
        """The stream is kept, and the process ends as without --state."""
        for more in ((), ("--json",)):
            self.state.unlink(missing_ok=True)
            process = start("generate", shared / "expire", "--tokens", 300, "--state", self.state, *more)
            process.stdout.close()
            self.assertEqual((process.wait(timeout=60), process.stderr.read()), (-signal.SIGPIPE, ""))
            process.stderr.close()
            self.assertGreater(self.seen(), 0)

    def test_two_processes_on_one_stream(self):
        """The second is refused, from the first's beginning to its end, also by the name of a link."""
        self.text("expire", 20, "--state", self.state)
        link = self.folder / "link"
        link.symlink_to(self.state)
        process = start("generate", shared / "expire", "--tokens", 0, "--state", self.state)
        begun = process.stdout.read(100)
        for name in (self.state, link):
            self.refuse("generate", shared / "expire", "--state", name, says=["another process", str(self.state)])
        process.send_signal(signal.SIGINT)
        begun += process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 0)
        link.unlink()
        self.assertGreaterEqual(self.seen(), 100)

    def test_an_interrupt_within_the_prompt(self):
        """The stream stays as it was."""
        self.text("expire", 20, "--state", self.state)
        good = self.state.read_bytes()
        prompt = self.write("prompt.txt", english(6000) * 500)
        for more in ((), ("--interactive",)):
            process = start("generate", shared / "expire", "--prompt-file", prompt, "--state", self.state, *more, stdin=subprocess.DEVNULL)
            while not (self.folder / "stream.lock.partial").exists() and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            out, error = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out), (1, ""))
            self.assertRegex(error.splitlines()[-1], "^lapse: error: .*interrupted after .* tokens; nothing is kept$")
            self.assertEqual(self.state.read_bytes(), good)

    def test_a_long_prompt_in_pieces(self):
        """Read block by block it gives the text of its tokens, whatever its length."""
        for length in (1, 64, 65, 128, 129, 200):
            prompt = english(300)[:length]
            shown = self.succeed_json("generate", shared / "expire", "--prompt", prompt, "--tokens", 5, "--state", self.state)
            self.assertEqual((shown["prompt_tokens"], shown["tokens_seen"]), (length, length + 5))
            self.state.unlink()

    def test_an_interrupt_keeps_the_stream(self):
        process = start("generate", shared / "expire", "--tokens", 0, "--state", self.state, stdout=subprocess.PIPE)
        begun = process.stdout.read(500)
        process.send_signal(signal.SIGINT)
        begun += process.stdout.read()  # communicate() would pass over what the first read has taken beyond its 500
        self.assertEqual((process.wait(), process.stderr.read()), (0, ""))
        on = self.text("expire", 40, "--state", self.state)
        self.assertEqual(begun[:-1] + on, self.text("expire", len(begun) - 2 + 40))

    def test_windows_end(self):
        self.text("window", 20, "--prompt", "abc", "--state", self.state)
        self.refuse("generate", shared / "window", "--tokens", 20, "--state", self.state, says="of at most")
        self.text("window", 9, "--state", self.state)
        self.refuse("generate", shared / "window", "--state", self.state, says="is full")

    def test_what_is_refused(self):
        run = shared / "expire"
        self.text("expire", 20, "--state", self.state)
        good = self.state.read_bytes()
        self.refuse("generate", shared / "fixed", "--state", self.state, says=[str(self.state), "checkpoint = "])
        self.refuse("generate", checkpoints(run)[1], "--state", self.state, says="checkpoint = ")
        self.refuse("generate", run, "--max-span", 9, "--state", self.state, says="this one has 'max_span = 9'")
        self.refuse("generate", run, "--state", checkpoints(run)[1], says="not a stream")
        self.refuse("generate", run, "--state", "", says="--state: the name is empty")
        self.refuse("generate", run, "--state", self.folder, says=str(self.folder))
        self.refuse("generate", run, "--state", self.folder / "no" / "stream", says="there is no folder")
        self.assertEqual(self.state.read_bytes(), good)
        for damaged in (good[:1000], good[:3000] + b"x" + good[3001:], b"", b"hello"):
            self.state.write_bytes(damaged)
            self.refuse("generate", run, "--state", self.state, says=[str(self.state), "--state goes on from a stream that was kept before"])
            self.assertEqual(self.state.read_bytes(), damaged)

    def test_forged_numbers_are_refused(self):
        self.text("expire", 20, "--state", self.state)
        good = self.state.read_bytes()
        for name, form, value in (("more.seen", "q", 1 << 62), ("more.seen", "q", 3), ("logits", "f", math.nan), ("clock", "q", 1 << 40)):
            self.state.write_bytes(forged(good, name, form, value))
            self.refuse("generate", shared / "expire", "--state", self.state, "--remembered", says=[f"{self.state}: ", "damaged"])

    @unittest.skipUnless(os.environ.get("LAPSE_STREAMS"), "LAPSE_STREAMS is not set")
    def test_the_example_reads_on(self):
        """examples/streams: three times 1,000 tokens of two files, of which one ends meanwhile."""

        def read(*files):
            done = subprocess.run([os.environ["LAPSE_STREAMS"], shared / "expire", self.state, *files], capture_output=True, text=True)
            return done.returncode, done.stdout, done.stderr

        files = self.write("one.txt", english(9000)), self.write("two.txt", english(1500, seed=2))
        shown = [read(*files) for _ in range(3)]
        for (status, text, error), places in zip(shown, ((1000, 1000), (2000, 500), (3000, 1500))):
            self.assertEqual(status, 0, error)
            found = re.findall(r"up to token (\d+), (\d\.\d+) bits", text)
            self.assertEqual(tuple(int(place) for place, _ in found), places)
            for _, bits in found:
                self.assertLess(float(bits), 5)
        status, _, error = read(files[0])
        self.assertEqual((status, error), (1, f"streams: {self.state}: it has other streams\n"))


if __name__ == "__main__":
    unittest.main()
