"""scripts/data.sh with a stand-in for apt, and the experiments' scripts: what they say before any work starts."""

import gzip
import os
import pathlib
import subprocess
import tempfile
import unittest

from program import ROOT

DATA = ROOT / "scripts" / "data.sh"
EXPERIMENTS = sorted((ROOT / "experiments").glob("*/run.sh")) + [ROOT / "experiments" / "stream_tasks.sh"]
# What they read first.
READ_TEXTS = dict.fromkeys(("bf16", "compare", "enwik8-head", "paper", "positions", "selective", "units"), "enwik8-head.txt") | dict.fromkeys(("documents", "patterns", "t5", "text"), "wikipedia.txt.gz") | {"instruction": "light/complex_world_2020-09.json", "pg19": "novels/train.txt.gz", "wikitext2": "wikitext-2/wiki.train.tokens"}

# Downloads what FAKE_PACKAGES holds: `apt-get download NAME` copies a folder, `dpkg-deb -x FILE DIR` unpacks it.
APT_GET = """#!/bin/bash
echo "$@" >>"$FAKE_PACKAGES/log"
[[ $1 == download && -d $FAKE_PACKAGES/$2 ]] || { echo "E: Unable to locate package $2"; exit 100; }
tar cf "$2_1.0_all.deb" -C "$FAKE_PACKAGES/$2" .
"""
DPKG_DEB = '#!/bin/bash\n[[ $1 == -x ]] && tar xf "$2" -C "$3"\n'
SUDO = "#!/bin/bash\nexit 1\n"


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def call(self, *command, **variables):
        environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
        done = subprocess.Popen(
            [str(word) for word in command],
            env=environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            done.stdout, done.stderr = done.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(done.pid, 9)
            done.communicate()
            self.fail(f"{command} began to work")
        return done

    def refuse(self, done, *says, status=1):
        self.assertEqual(done.returncode, status, done.stderr)
        for words in says:
            self.assertIn(words, done.stderr.splitlines()[-1])


class Data(Script):
    def setUp(self):
        super().setUp()
        self.packages, tools = self.folder / "packages", self.folder / "bin"
        for folder in (self.packages, tools):
            folder.mkdir()
        for name, text in {"apt-get": APT_GET, "dpkg-deb": DPKG_DEB, "sudo": SUDO}.items():
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        self.path = f"{tools}:{os.environ['PATH']}"
        self.out = self.folder / "a folder" / "texts"

    def package(self, name, file, content):
        path = self.packages / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def data(self, *arguments, **variables):
        variables = {"PATH": self.path, "FAKE_PACKAGES": self.packages, "LAPSE_DATA": self.out, **variables}
        return self.call(DATA, *arguments, **variables)

    def fetched(self):
        log = self.packages / "log"
        return log.read_text().splitlines() if log.exists() else []

    def test_help_and_list_do_nothing(self):
        done = self.data("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("scripts/data.sh NAME...", done.stdout)
        done = self.data("--list")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for words in ("jargon", "public domain", "GPL", "enwik8", "wikitext-103", "pg19", "c4", "light", "data.train"):
            self.assertIn(words, done.stdout)
        self.assertEqual((self.fetched(), self.out.exists()), ([], False))

    def test_a_dictionary(self):
        text = "naïve words\n" * 50
        self.package("dict-jargon", "usr/share/dictd/jargon.dict.dz", gzip.compress(text.encode()))
        done = self.data()  # jargon is the default
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.out / "jargon.txt").read_text(), text)
        self.assertEqual(self.fetched(), ["download dict-jargon"])
        self.assertEqual(self.data("jargon").returncode, 0)
        self.assertEqual(self.fetched(), ["download dict-jargon"], "what is there is kept")
        self.assertEqual([path.name for path in self.out.iterdir()], ["jargon.txt"])

    def test_several_and_what_is_no_utf8(self):
        self.package("dict-gcide", "usr/share/dictd/gcide.dict.dz", gzip.compress(b"haven\x92t\n"))
        self.package("wamerican", "usr/share/dict/american-english", b"A\nB\n")
        for name, page in {"b": b"second\n", "a": b"first\n"}.items():
            self.package("anarchism", f"usr/share/doc/anarchism/markdown/{name}.md.gz", gzip.compress(page))
        done = self.data("gcide", "wordlist", "anarchism")
        self.assertEqual(done.returncode, 0, done.stderr)
        read = lambda name: (self.out / f"{name}.txt").read_text()
        self.assertEqual((read("gcide"), read("wordlist"), read("anarchism")), ("havent\n", "A\nB\n", "first\nsecond\n"))

    def test_a_broken_package_leaves_nothing(self):
        whole = gzip.compress(os.urandom(5000))
        self.package("dict-devil", "usr/share/dictd/devil.dict.dz", whole[:2000])
        self.refuse(self.data("devil"), "devil")
        self.package("wamerican", "usr/share/dict/other", b"A\n")
        self.refuse(self.data("wordlist"), "wordlist")
        self.assertEqual(list(self.out.iterdir()), [])

    def test_it_removes_only_what_it_wrote(self):
        self.out.mkdir(parents=True, exist_ok=True)
        for name in ("mine.txt.partial", "devil.txt.partial"):
            (self.out / name).write_text("kept")
        self.package("dict-devil", "usr/share/dictd/devil.dict.dz", b"broken")
        self.refuse(self.data("devil"), "devil")
        self.assertEqual(sorted(path.name for path in self.out.iterdir()), ["devil.txt.partial", "mine.txt.partial"])

    def test_no_network_and_no_apt(self):
        self.refuse(self.data("foldoc"), "dict-foldoc", "--data FILE")
        bare = self.folder / "bare"
        bare.mkdir()
        for tool in "bash sed awk cut grep id mkdir mktemp rm paste dirname".split():
            os.symlink(subprocess.check_output(["which", tool], text=True).strip(), bare / tool)
        self.refuse(self.data("foldoc", PATH=bare), "apt is not here", "--data FILE")

    def test_wrong_names(self):
        self.refuse(self.data("jargons"), "unknown text 'jargons'", "jargon")
        self.refuse(self.data("jargon", "enwik8"), "enwik8", "--list")
        self.refuse(self.data("--lst"), "unknown option --lst")
        self.refuse(self.data("jargon", LAPSE_DATA="/proc/none"), "/proc/none")
        self.assertEqual(self.fetched(), [])


class Experiments(Script):
    def test_help_helps(self):
        for script in EXPERIMENTS:
            for flag in ("--help", "-h"):
                done = self.call(script, flag)
                self.assertEqual((done.returncode, done.stderr), (0, ""), script)
                for words in ("Takes ", "cores", "Writes experiments/"):
                    self.assertIn(words, " ".join(done.stdout.split()), script)
            name = script.parent.name
            self.assertIn("LAPSE_DATA=DIR" if name in READ_TEXTS else "Needs no text", done.stdout, script)

    def test_unknown_arguments(self):
        for script in EXPERIMENTS:
            self.refuse(self.call(script, "--bogus"), "error: ", "--help", status=2)
        stream = ROOT / "experiments" / "stream_tasks.sh"
        self.refuse(self.call(stream), "which task", status=2)
        self.refuse(self.call(stream, "collision", "none"), "there is no experiments/collision/none.toml")

    def test_a_missing_text_is_one_line_before_any_work(self):
        for name, text in sorted(READ_TEXTS.items()):
            done = self.call(ROOT / "experiments" / name / "run.sh", LAPSE_DATA="texts")
            self.refuse(done, f"{text} is missing", str(self.folder / "texts"), "LAPSE_DATA=DIR", "scripts/data.sh")
            self.assertEqual((len(done.stderr.splitlines()), done.stdout), (1, ""), name)
        (self.folder / "enwik8-head.txt").write_text("x")
        done = self.call(ROOT / "experiments" / "selective" / "run.sh", LAPSE_DATA=self.folder)
        self.refuse(done, "wikitext-2/wiki.train.tokens is missing")


if __name__ == "__main__":
    unittest.main()
