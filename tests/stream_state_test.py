"""`lapse generate --state`: a stream that is kept in a file, and goes on from there."""

import os
import re
import signal
import subprocess
import unittest

from program import TINY, ProgramTest, checkpoints, english, merged, shared_folder, start, train_run

shared = None  # the folder of runs that the tests read


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
        self.refuse("generate", run, "--max-span", 9, "--state", self.state, says="now 'max_span = 9'")
        self.refuse("generate", run, "--state", checkpoints(run)[1], says="not a stream")
        self.refuse("generate", run, "--state", "", says="--state: the name is empty")
        self.refuse("generate", run, "--state", self.folder, says=str(self.folder))
        self.refuse("generate", run, "--state", self.folder / "no" / "stream", says="there is no folder")
        self.assertEqual(self.state.read_bytes(), good)
        for damaged in (good[:1000], good[:3000] + b"x" + good[3001:], b"", b"hello"):
            self.state.write_bytes(damaged)
            self.refuse("generate", run, "--state", self.state, says=str(self.state))
            self.assertEqual(self.state.read_bytes(), damaged)

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
