"""`lapse generate`: where its prompt may come from, and what a person types line by line (--interactive)."""

import gzip
import os
import re
import signal
import subprocess
import unittest

from program import TINY, ProgramTest, english, lapse, merged, shared_folder, start, train_run
from terminal import Terminal

shared = None  # the folder of runs that the tests read


def setUpModule():
    global shared
    shared = shared_folder()
    (shared / "text.txt").write_text(english(6000))
    (shared / "line.txt").write_text(english(6000).replace("\n", " "))
    window = {"data": {"windows": True}, "model": {"positions": "absolute"}, "train": {"block": 32}}
    runs = {
        "run": {},
        "words": {"data": {"unit": "word"}},
        "characters": {"data": {"unit": "character", "path": "line.txt"}},
        "window": merged(window, {"forgetting": {"method": "fixed_span"}, "fixed_span": {"max_span": 32}}),
    }
    for name, changes in runs.items():
        # So long that it writes letters, and that what was said before makes a difference.
        train = {"updates": 150, "batch": 8, "validate_every": 0, "checkpoint_every": 0}
        base = {"data": {"path": "text.txt"}, "train": train, "optimiser": {"rate": 1e-2}}
        train_run(shared / name, merged(TINY, base, changes))


class Prompt(ProgramTest):
    def test_file_and_standard_input(self):
        arguments = ("generate", shared / "run", "--tokens", 5, "--json")
        typed = self.succeed(*arguments, "--prompt", "The river\n and").stdout
        prompt = b"The river\n and"

        def same(json):
            return re.sub(r'"(ms_per_token|peak_memory)".*', "", json)

        for content in (prompt, prompt + b"\n", prompt + b"\r\n", gzip.compress(prompt + b"\n")):
            file = self.write("prompt.txt", content)
            self.assertEqual(same(self.succeed(*arguments, "--prompt-file", file).stdout), same(typed))
        for content in (prompt, prompt + b"\n"):
            with open(self.write("prompt.txt", content)) as file:
                self.assertEqual(same(self.succeed(*arguments, "--prompt", "-", stdin=file).stdout), same(typed))
        two = self.succeed(*arguments, "--prompt-file", self.write("prompt.txt", "a\n\n")).stdout
        self.assertIn('"prompt": "a\\n"', two, "one line end is left out, not all")

    def test_what_is_refused(self):
        run = shared / "run"
        none = self.folder / "none.txt"
        empty = self.write("empty.txt", "")
        self.refuse("generate", run, "--prompt", "a", "--prompt-file", empty, says=["--prompt and --prompt-file", "leave one out"])
        self.refuse("generate", run, "--prompt-file", none, says=[str(none), "No such file"])
        self.refuse("generate", run, "--prompt-file", self.folder, says=str(self.folder))
        self.refuse("generate", run, "--prompt-file", empty, says=[str(empty), "has no token"])
        self.refuse("generate", run, "--prompt-file", "", says="--prompt-file")
        self.refuse("generate", run, "--interactive", "--prompt", "-", says=["--interactive", "--prompt-file"])
        self.refuse("generate", run, "--interactive", "--json", says=["--interactive has no --json", "/memory"])
        self.refuse("generate", run, "--interactive", "--remembered", says="--interactive has no --remembered")

    def test_standard_input_without_end(self):
        with open("/dev/zero") as zeros:
            done = lapse("generate", shared / "run", "--prompt", "-", stdin=zeros)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard input has more than", done.stderr)

    def test_not_utf8(self):
        for run in ("words", "characters"):
            says = ["--prompt: not UTF-8 at byte 4 (0xFF)"]
            done = self.refuse("generate", shared / run, "--prompt", b"The \xff".decode(errors="surrogateescape"), says=says)
            self.assertNotIn("unit = \"byte\"", done.stderr, "a trained model's unit cannot be chosen")
            file = self.write("prompt.txt", b"The \xff")
            self.refuse("generate", shared / run, "--prompt-file", file, says=[f"{file}: not UTF-8"])
        self.succeed("generate", shared / "run", "--prompt", b"The \xff".decode(errors="surrogateescape"), "--tokens", 1, text=False)


class Interactive(ProgramTest):
    def talk(self, lines, *arguments, run="run", returncode=0):
        """What the model and the commands write, and what is noted beside it."""
        process = start("generate", shared / run, "--interactive", "--temperature", 0, *arguments, stdin=subprocess.PIPE)
        out, err = process.communicate("".join(f"{line}\n" for line in lines), timeout=100)
        self.assertEqual(process.returncode, returncode, err)
        return out, err

    def written(self, prompt, tokens, run="run"):
        """What the model writes after a prompt, without it."""
        return self.succeed_json("generate", shared / run, "--temperature", 0, "--prompt", prompt, "--tokens", tokens)["text"]

    def test_memory_is_carried_from_turn_to_turn(self):
        first = self.written("The river", 12)
        second = self.written(f"The river{first}\nth", 12)
        self.assertNotEqual(second, self.written("th", 12), "else this test shows nothing")
        out, err = self.talk(["The river", "th"], "--tokens", 12)
        self.assertEqual((out, err), (f"{first}\n{second}\n", ""))
        self.assertEqual(self.talk(["th"], "--tokens", 12, "--prompt", f"The river{first}")[0], f"{second}\n")

    def test_reset(self):
        out, err = self.talk(["The river", "/reset", "th"], "--tokens", 12)
        self.assertEqual(out, f"{self.written('The river', 12)}\n{self.written('th', 12)}\n")
        self.assertIn("everything is forgotten", err)

    def test_an_empty_line_goes_on(self):
        whole = self.written("The river", 24)
        out, _ = self.talk(["The river", ""], "--tokens", 12)
        self.assertEqual(out, f"{whole[:12]}\n{whole[12:]}\n")
        self.assertEqual(self.talk([""], "--tokens", 12)[0], self.written("\n", 12) + "\n")

    def test_memory(self):
        out, _ = self.talk(["The river", "/memory", "/reset", "/memory"], "--tokens", 40, "--method", "local", "--budget", 12)
        first, second = out.split("rows held, layer by layer: ")[1:]
        self.assertTrue(first.startswith("12, 12 ("), out)
        self.assertIn("of 49 tokens, 12 are remembered in some layer, 12 in every layer", first)
        self.assertIn("of 0 tokens, 0 are remembered", second)

    def test_text(self):
        out, _ = self.talk(["The river", "/text"], "--tokens", 20)
        first = self.written("The river", 20)
        self.assertEqual(out[len(first) + 1 :].replace("[", "").replace("]", ""), f"The river{first}\n")
        self.assertIn("\x1b[30;48;5;", self.talk(["The river", "/text"], "--tokens", 2, "--color", "always")[0])

    def test_commands(self):
        out, err = self.talk(["/help", "/memroy", "//river"], "--tokens", 5)
        self.assertIn("/reset ", out)
        self.assertIn("there is no /memroy (did you mean '/memory'?)", err)
        self.assertTrue(out.endswith(self.written("/river", 5) + "\n"))

    def test_a_bad_line_is_no_end(self):
        process = start("generate", shared / "characters", "--interactive", "--tokens", 3, stdin=subprocess.PIPE, text=False)
        out, err = process.communicate(b"The \xff\nThe\n", timeout=100)
        self.assertEqual((process.returncode, len(out.decode())), (0, 4))
        self.assertIn(b"your line: not UTF-8 at byte 4", err)

    def test_no_line_end_in_the_vocabulary(self):
        """What was said and the next line then follow each other without one."""
        first = self.written("The river", 8, run="characters")
        second = self.written(f"The river{first}A stone", 8, run="characters")
        self.assertEqual(self.talk(["The river", "A stone"], "--tokens", 8, run="characters")[0], f"{first}\n{second}\n")

    def test_words(self):
        self.assertEqual(self.talk(["the river"], "--tokens", 4, run="words")[0], self.written("the river", 4, run="words") + "\n")

    def test_a_window_that_is_full(self):
        out, err = self.talk(["x" * 20, "more", "/memory", "/reset", "y" * 40, "z"], "--tokens", 15, run="window")
        self.assertIn("the model's window of 32 tokens is full; /reset begins anew", err)
        notes = err.splitlines()
        self.assertEqual(sum("is full" in note for note in notes), 2, "at the answer that fills it, and at the next line")
        self.assertIn("windows of 32 tokens, of which 0 are used: these 41 do not fit", err)
        self.assertIn("the window has 32 tokens in all", out)
        self.assertEqual(len(out.splitlines()[0]), 32 - 21 + 1, "one token more than can be read")

    def test_a_line_without_end(self):
        endless = self.write("endless.txt", "x" * (1 << 20) + "x")
        with endless.open() as file:
            done = lapse("generate", shared / "run", "--interactive", stdin=file)
        self.assertEqual(done.returncode, 0)
        self.assertIn("a line of more than 1048576 bytes is passed over", done.stderr)

    def test_two_interrupts(self):
        """The first stops the answer; the second, when nothing is being written, ends."""
        process = start("generate", shared / "run", "--interactive", "--tokens", 0, stdin=subprocess.PIPE, text=False)
        try:
            process.stdin.write(b"The river\n")
            process.stdin.flush()
            process.stdout.read(100)
            process.send_signal(signal.SIGINT)
            process.stdin.write(b"/memory\n")
            process.stdin.flush()
            seen = b""
            while b"every layer\n" not in seen:  # it listens again
                chunk = os.read(process.stdout.fileno(), 4096)
                self.assertTrue(chunk, seen)
                seen += chunk
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=60), -signal.SIGINT)
        finally:
            process.kill()
            process.communicate()

    def test_on_a_terminal(self):
        with Terminal(self, "generate", shared / "run", "--interactive", "--tokens", 5) as terminal:
            terminal.until(b"/help lists the commands")
            terminal.until(b"> ")
            terminal.write(b"The river\n")
            terminal.until(b"\n")
            terminal.until(b"> ")
            terminal.write(b"\x04")  # Ctrl-D
            self.assertEqual(terminal.process.wait(timeout=60), 0)


if __name__ == "__main__":
    unittest.main()
