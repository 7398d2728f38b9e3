"""The completion scripts, loaded into shells: what they offer where."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import unittest

from program import PROGRAM, ProgramTest, lapse

scripts = {}


def setUpModule():
    for shell in ("bash", "zsh"):
        done = lapse("completion", shell)
        assert done.returncode == 0, done.stderr
        scripts[shell] = done.stdout


def break_words(line, breaks):
    """The words of a line as bash hands them to a completion: broken at blanks, and at '=' if that is a word break."""
    words = []
    for word in line.split(" "):
        words += [part for part in re.split("(=)", word) if part] or [""] if "=" in breaks else [word]
    return words


class Bash(ProgramTest):
    def offers(self, line, breaks="="):
        """What is offered at the end of a line."""
        words = break_words(line, breaks)
        shell = 'eval "$1"; COMP_WORDBREAKS=$2; shift 2; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lapse; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", shell, "bash", scripts["bash"], breaks, *words], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.stderr, "", line)
        return [offer for offer in done.stdout.split("\n") if offer]

    def test_as_a_user_loads_it(self):
        command = f"source <({PROGRAM} completion bash); complete -p lapse"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("complete -F _lapse lapse\n", ""))

    def test_verbs(self):
        verbs = re.findall(r"^  ([a-z]+)  +[A-Z]", self.succeed("help").stdout, re.M)
        self.assertEqual(sorted(self.offers("lapse ")), sorted(verbs))
        self.assertEqual(self.offers("lapse tr"), ["train"])
        self.assertEqual(self.offers("lapse tokenizer "), ["train"])
        self.assertEqual(self.offers("lapse completion "), ["bash", "zsh"])
        self.assertEqual(sorted(self.offers("lapse help ")), sorted(verbs))
        self.assertEqual(self.offers("lapse help tokenizer "), ["train"])

    def test_every_flag_of_every_verb(self):
        for words in [[verb] for verb in self.offers("lapse ")] + [["tokenizer", "train"]]:
            with self.subTest(verb=words):
                flags = set(re.findall(r"(?m)^  (?:-\w,)?(--[a-z-]+)", self.succeed("help", *words).stdout))
                self.assertTrue({"--help"} <= flags)
                self.assertEqual(set(self.offers(f"lapse {' '.join(words)} --")), flags)

    def test_values(self):
        splits = ["train", "valid", "test", "all"]
        self.assertEqual(self.offers("lapse eval run --split "), splits)
        self.assertEqual(self.offers("lapse eval --split t"), ["train", "test"])
        self.assertEqual(self.offers("lapse eval --split=t"), ["train", "test"])
        self.assertEqual(self.offers("lapse eval --split=t", breaks=" "), ["--split=train", "--split=test"])
        self.assertIn("h2o", self.offers("lapse generate --method "))
        self.assertNotIn("expire_span", self.offers("lapse generate --method "), "it would have to be trained")
        self.assertEqual(self.offers("lapse generate --tokens "), [])
        self.write("a file", "")
        self.assertEqual(self.offers("lapse train a.toml --device "), [])
        self.assertEqual(self.offers("lapse generate run --prompt "), [])
        self.assertEqual(self.offers("lapse init de"), ["demo"])
        self.assertEqual(self.offers("lapse eval --json --split v"), ["valid"])

    def test_files(self):
        for name in ("book.toml", "book.txt", "two words.txt"):
            self.write(name, "")
        (self.folder / "runs").mkdir()
        self.assertEqual(sorted(self.offers("lapse train ")), ["book.toml", "runs"])
        self.assertEqual(sorted(self.offers("lapse eval --data ")), ["book.toml", "book.txt", "runs", "two words.txt"])
        self.assertEqual(self.offers("lapse eval ru"), ["runs"])
        self.assertEqual(self.offers("lapse eval runs ru"), [], "it takes one")
        self.assertEqual(self.offers("lapse plot runs ru"), ["runs"], "it takes several")
        self.assertIn("corridor", self.offers("lapse play "))
        self.assertEqual(self.offers("lapse play corridor ru"), ["runs"])
        self.assertEqual(self.offers("lapse eval --data=tw"), ["two words.txt"])
        self.assertEqual(self.offers("lapse tokenizer train --data a.txt book.tx"), ["book.txt"], "one of several")
        self.assertEqual(self.offers("lapse plot runs -o book.to"), ["book.toml"])

    def test_sections_and_keys(self):
        sections = re.findall(r"(?m)^\[(\w+)\]", self.succeed("train", "--help", "all").stdout)
        for line in ("lapse train --help ", "lapse help train "):
            self.assertEqual(self.offers(line), sections + ["all"])
        self.assertEqual(self.offers("lapse train --help opt"), ["optimiser"])
        self.assertIn("optimiser.rate=", self.offers("lapse train a.toml --set "))
        self.assertEqual(self.offers("lapse train --set model.norm"), ["model.norm=", "model.norm_kind=", "model.norm_epsilon=", "model.normed_heads="])
        self.assertEqual(self.offers("lapse train --set model.norm="), ["post", "pre"])
        self.assertEqual(self.offers("lapse train --set model.norm=po"), ["post"])
        self.assertEqual(self.offers("lapse train --set=model.norm=po"), ["post"])
        self.assertEqual(self.offers("lapse train --set model.norm=po", breaks=" "), ["model.norm=post"])
        self.assertEqual(self.offers("lapse train --set=model.norm=po", breaks=" "), ["--set=model.norm=post"])
        self.assertEqual(self.offers("lapse train --set optimiser.rate="), [])
        self.assertIn("expire_span", self.offers("lapse train --set forgetting.method="))


class Zsh(ProgramTest):
    def test_form(self):
        self.assertTrue(scripts["zsh"].startswith("#compdef lapse\n"))
        functions = re.findall(r"(?m)^(_lapse\w*)\(\)", scripts["zsh"])
        for verb in re.findall(r"^  ([a-z]+)  +[A-Z]", self.succeed("help").stdout, re.M):
            self.assertIn(f"_lapse_{verb}", functions)

    def shell(self):
        found = os.environ.get("LAPSE_ZSH") or shutil.which("zsh")
        if not found:
            print("completion_test: there is no zsh here: what its completion offers is NOT tested", file=sys.stderr)
            self.skipTest("no zsh: apt-get install zsh")
        return found

    def offers(self, *lines):
        """What zsh offers at the end of each line, of a shell with a terminal of its own, which zsh's completion needs."""
        zsh = self.shell()
        self.write("_lapse", scripts["zsh"])
        driver = self.write("driver", ZSH_DRIVER)
        done = subprocess.run([zsh, "-f", driver, self.folder, *lines], capture_output=True, text=True, cwd=self.folder, timeout=100, env={**os.environ, "LAPSE_ZSH": zsh})
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        answers = re.findall(r"<<<(.*?)>>>", done.stdout, re.S)
        self.assertEqual(len(answers), len(lines), done.stdout)
        return [answer.split() for answer in answers]

    def test_syntax(self):
        done = subprocess.run([self.shell(), "-n", self.write("_lapse", scripts["zsh"])], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_offers(self):
        for name in ("book.toml", "book.txt"):
            self.write(name, "")
        lines = {
            "lapse to": ["tokenizer"],
            "lapse tokenizer ": ["train"],
            "lapse eval --spl": ["--split"],
            "lapse eval --split ": ["all", "test", "train", "valid"],
            "lapse eval --split=t": ["--split=test", "--split=train"],
            "lapse train ": ["book.toml"],
            "lapse eval --data book.tx": ["book.txt"],
            "lapse help train opt": ["optimiser"],
            "lapse train --help opt": ["optimiser"],
            "lapse train --set model.norm": ["model.norm=", "model.norm_kind=", "model.norm_epsilon=", "model.normed_heads="],
            "lapse train --set model.norm=": ["model.norm=post", "model.norm=pre"],
            "lapse completion ": ["bash", "zsh"],
        }
        for line, answer in zip(lines, self.offers(*lines)):
            self.assertEqual(sorted(set(answer)), sorted(lines[line]), line)


# Types each line into a shell of its own, presses Tab, and prints what the completion functions gave to compadd. The shell stays until it is
# deleted: of one that ends by itself zpty may not read the last words.
ZSH_DRIVER = r"""
zmodload zsh/zpty || exit 1
folder=$1; shift
setup='
PROMPT= RPROMPT=
fpath=($FOLDER $fpath)
autoload -Uz compinit && compinit -u -D
bindkey "^I" complete-word
setopt rcexpandparam
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
  local -a hits
  builtin compadd -A hits "$@"
  ((! $#hits)) || print -rl -- $IPREFIX$hits
  builtin compadd "$@"
}
begin() { print -rn -- "<<""<" }
finish() { print -rn -- ">"">>" }
compprefuncs=(begin) comppostfuncs=(finish)
print -r -- "rea""dy"
'
export FOLDER=$folder
for line in "$@"; do
  zpty shell 'stty -echo; $LAPSE_ZSH -f -i'
  zpty -w shell "$setup"
  zpty -r shell answer '*ready*'
  zpty -w -n shell "$line"$'\t'
  zpty -r shell answer '*>>>*'
  print -r -- ${${answer##*<<<}/#/<<<}
  zpty -d shell
done
"""


if __name__ == "__main__":
    unittest.main()
