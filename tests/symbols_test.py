"""No library of the process takes a symbol of libtorch's. A variable that two libraries define is one variable for the
whole process: Debian's SentencePiece once wrote over libc10's settings in that way (lapse/data/sentencepiece.h)."""

import collections
import os
import pathlib
import re
import subprocess
import unittest

from program import PROGRAM, ProgramTest, english, environment

TORCH = re.compile(r"/(libc10|libtorch\w*)\.so")
RUNTIME = re.compile(r"/(libstdc\+\+|libgcc_s|libgomp|libc|libm|ld-linux\S*)[.-]")  # the compiler's, which torch carries parts of
SENTENCEPIECE = re.compile(r"sentencepiece")
BINDING = re.compile(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: \w+ symbol `(.+?)'")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def libraries():
    """What the dynamic linker loads with the program, the program included."""
    return [PROGRAM] + [os.path.realpath(path) for path in re.findall(r"=> (/\S+)", output("ldd", PROGRAM))]


def defined(library):
    """The symbols that a library defines for others. Not those that every user of a header has a copy of: weak ones (W,
    V) and unique ones (u) are meant to be one for the process, nor a linker's own marks."""
    lines = output("nm", "-D", "--defined-only", library).splitlines()
    symbols = {line.split()[-1] for line in lines if line.split()[-2] in "TDBRGS"}
    return {symbol.split("@")[0] for symbol in symbols} - {"_init", "_fini", "_edata", "_end", "__bss_start"}


class Symbols(ProgramTest):
    def test_no_library_defines_what_torch_defines(self):
        owners = collections.defaultdict(list)
        for library in libraries():
            if RUNTIME.search(library):
                continue
            for symbol in defined(library):
                owners[symbol].append(library)
        self.assertTrue(any(TORCH.search(library) for library in libraries()), "libtorch was looked at")
        clashes = {
            symbol: all_of_them
            for symbol, all_of_them in owners.items()
            if len(all_of_them) > 1 and any(TORCH.search(library) for library in all_of_them)
        }
        self.assertEqual(clashes, {})
        self.assertFalse([library for library in libraries() if SENTENCEPIECE.search(library)])

    def test_no_library_is_looked_for_in_the_working_directory(self):
        """The loader takes an empty entry of a path, or a relative one, for it."""
        files = [PROGRAM, *pathlib.Path(PROGRAM).parent.glob("liblapse*.so")]
        self.assertGreater(len(files), 3)
        for file in files:
            for path in re.findall(r"R(?:UN)?PATH.*\[(.*)\]", output("readelf", "-d", file)):
                self.assertEqual([entry for entry in path.split(":") if not re.match(r"/|\$ORIGIN", entry)], [], file)

    def test_sentencepiece_is_by_itself(self):
        text, log = self.write("text.txt", english(20000)), self.folder / "bindings"
        watched = {**environment(), "LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(log)}
        out = self.folder / "a.model"
        self.succeed("tokenizer", "train", "--data", text, "--vocabulary", 300, "-o", out, env=watched)
        between = collections.Counter()
        for file in self.folder.glob("bindings.*"):
            for user, owner, symbol in BINDING.findall(file.read_text(errors="replace")):
                ours, theirs = SENTENCEPIECE.search(user), SENTENCEPIECE.search(owner)
                between["own"] += bool(ours and theirs)
                self.assertFalse(theirs and not ours, f"{user} uses {symbol} of {owner}")
                self.assertFalse(ours and TORCH.search(owner), f"{user} uses {symbol} of {owner}")
        self.assertGreater(between["own"], 100, "the plugin was seen")

    def test_a_failed_allocation_is_one_line(self):
        """libc10 has its own setting of what a failed check does: an exception, not the end of the process."""
        config = self.config(self.write("text.txt", english(4000)))
        big = [f"--set=model.{key}={value}" for key, value in {"heads": 1024, "head_dim": 4096, "width": 65536}.items()]
        self.refuse("train", config, "--out", self.folder / "run", *big, says="memory", status=1)
        self.assertFalse((self.folder / "run").exists())


if __name__ == "__main__":
    os.environ.pop("LD_DEBUG", None)
    unittest.main()
