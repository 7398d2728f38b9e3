#!/usr/bin/env python3
"""What the documents name must exist. Lists file:line and reason, and exits 1 where something does not.

  names      in backticks and in blocks of sh: files, functions (`Class::name`, `lapse.name` of Python), identifiers, keys of the
             configuration, `lapse VERB`, `--flag`, scripts and programs
  links      to files of the repository
  length     README.md has at most 120 lines of at most 160 characters
  tables     those that bench/summarise.py prints stand in bench/README.md, those of experiments/**/table.md in docs/

What holds a word in capitals (NAME, FILE, RUN) is a placeholder and is not looked for.

Usage: check_docs.py [ROOT]
"""
import pathlib
import re
import shlex
import subprocess
import sys

DOCS = ["README.md", "CONTRIBUTING.md", "bench/README.md", "docs/*.md"]
FOLDERS = "lapse bench tests examples scripts experiments cmake docs python".split()
SUFFIXES = {".h", ".cpp", ".inc", ".py", ".sh", ".toml", ".txt", ".cmake", ".in", ".js", ".css", ".html", ".proto"}
README_LINES, README_WIDTH = 120, 160

FENCE = re.compile(r"```(\w*)\n(.*?)```", re.S)
INLINE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PLACEHOLDER = re.compile(r"(?<![A-Za-z])(NAME|FILE|FILES|RUN|RUNS|VERB|PRESET|PYTHON|SECTION|CONFIG|DIR|TASK)(?![A-Za-z])")
PATH = re.compile(r"\.?[\w.*-]+(/[\w.*-]+)*/?")
SYMBOL = re.compile(r"([A-Z]\w*)::(~?\w+)(\(.*\))?")
PYTHON = re.compile(r"lapse((?:\.\w+)+)(\(.*\))?")
IDENTIFIER = re.compile(r"([A-Za-z_]\w*)(\(.*\))?")
KEY = re.compile(r"(?:[a-z]\w*\.)?([a-z]\w*)( = (?:[\[\"\d-].*|true|false))?")
FILE_NAME = re.compile(r"[\w.*-]+\.(h|cpp|py|sh|md|toml|json|svg|png|txt|so|bin|safetensors)")
FOREIGN = ("torch.", "TORCH_", "at::", "std::", "../shared", "runs/", ".venv", ".demo", "/", "~", "<")
MADE = {"liblapse_ops.so", "liblapse_cuda.so", "liblapse_graphs.so", "lapse_kernels.bin", "my.toml", "report.html", "metrics.jsonl", "prune.json", "spiece.model"}  # by the build, or by a verb


class Tree:
    """The files of the repository, and what is declared in them."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        files = [p for folder in FOLDERS for p in sorted((root / folder).rglob("*")) if p.is_file()]
        files += [p for p in root.iterdir() if p.is_file()]
        self.paths = {str(p.relative_to(root)) for p in files}
        self.folders = {str(parent) for path in self.paths for parent in pathlib.PurePath(path).parents}
        self.text = {}
        for p in files:
            if p.suffix in SUFFIXES and not p.name.startswith("check_docs"):
                self.text[str(p.relative_to(root))] = p.read_text(encoding="utf-8", errors="replace")
        everything = "\n".join(self.text.values())
        self.words = set(re.findall(r"\w+", everything))
        self.fields = set(re.findall(r'\bfield\(\s*"(\w+)"', everything))
        python = [(path, text) for path, text in self.text.items() if path.startswith("python/lapse/")]
        # Packages, modules, functions and classes.
        self.python = {part for path, _ in python for part in pathlib.PurePath(path).with_suffix("").parts[2:]}
        self.python |= {name for _, text in python for name in re.findall(r"^ *(?:def|class) (\w+)", text, re.M)}
        cli = self.join("lapse/cli/")
        self.verbs = set(re.findall(r'"([a-z]+)"', cli))
        self.lapse_flags = self.flags_in(cli) | {f.replace("_", "-") for f in self.fields}
        self.bench_flags = self.flags_in(self.join("bench/"))

    def join(self, folder: str) -> str:
        return "\n".join(text for path, text in self.text.items() if path.startswith(folder))

    @staticmethod
    def flags_in(text: str) -> set[str]:
        return set(re.findall(r"--([a-z][\w-]*)", text)) | {"help"}

    def has_path(self, name: str, beside: str = "") -> bool:
        name = name.rstrip("/")
        for base in ("", "lapse/", beside):
            path = str(pathlib.PurePath(base) / name)
            path = path.removeprefix("build/release/")
            if path in self.paths or path in self.folders or f"{path}.cpp" in self.paths:  # bench/step is a program
                return True
            if "*" in name and any(pathlib.PurePath(p).match(path) for p in self.paths):
                return True
        return "/" not in name and any(p.rsplit("/", 1)[-1] == name for p in self.paths)

    def has_symbol(self, owner: str, name: str) -> bool:
        """Whether a class or struct `owner` names `name` in its body, or a source defines owner::name."""
        for path, text in self.text.items():
            if not path.endswith((".h", ".cpp", ".inc")):
                continue
            if re.search(rf"\b{owner}::{name}\b", text):
                return True
            for found in re.finditer(rf"\b(?:class|struct)\s+{owner}\b[^;{{]*\{{", text):
                if re.search(rf"\b{name}\b", body_at(text, found.end())):
                    return True
        return False


def body_at(text: str, begin: int) -> str:
    """The text up to the brace that closes the one before `begin`."""
    depth, end = 1, begin
    while depth and end < len(text):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return text[begin:end]


def check_words(words: list[str], tree: Tree, flags: set[str], where: str):
    """The arguments of a command: flags, and files of the repository."""
    for word in words:
        if word.startswith("--"):
            if word[2:].split("=")[0] not in flags:
                yield f"{where} has no {word.split('=')[0]}"
        elif "/" in word and word.split("/")[0] in FOLDERS and not tree.has_path(word):
            yield f"{word} does not exist"


def check_command(words: list[str], tree: Tree):
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    if words and re.fullmatch(r"\S*python3?", words[0]):
        words = words[1:]
    if not words:
        return
    program, arguments = words[0], words[1:]
    if program in ("lapse", "build/release/lapse"):
        verb = arguments[0] if arguments else ""
        if verb and not verb.startswith("-") and verb not in tree.verbs:
            yield f"there is no `lapse {verb}`"
        yield from check_words(arguments, tree, tree.lapse_flags, f"`lapse {verb}`")
    elif program.startswith("build/release/"):
        name = program.removeprefix("build/release/")
        if not tree.has_path(name) and name not in tree.words:
            yield f"{program} is not built"
        yield from check_words(arguments, tree, tree.bench_flags | {"gtest_filter"}, program)
    elif program.split("/")[0] in FOLDERS and "/" in program:
        if not tree.has_path(program):
            yield f"{program} does not exist"
            return
        text = tree.text.get(program, "")
        flags = Tree.flags_in(text) | (tree.bench_flags if program.startswith("bench/") else set())
        yield from check_words(arguments, tree, flags, program)
        if program == "bench/run.sh" and arguments and not re.search(rf"\b{re.escape(arguments[0])}\b", text):
            yield f"bench/run.sh knows no {arguments[0]}"


def is_command(span: str) -> bool:
    words = [w for w in span.split() if not re.match(r"[A-Z_]+=", w)]
    return bool(words) and (words[0] == "lapse" or (len(words) > 1 or words[0].endswith(".sh")) and words[0].split("/")[0] in (*FOLDERS, "build"))


def split(command: str) -> list[str]:
    try:
        return shlex.split(command, comments=True)
    except ValueError:
        return command.split()


def check_span(span: str, tree: Tree, folder: str):
    """A text in backticks."""
    span = " ".join(span.replace("\\|", "|").split())
    if is_command(span):
        yield from check_command([w for w in split(span) if not PLACEHOLDER.search(w)], tree)
    elif span.startswith("--"):
        flag = span[2:].split()[0].split("=")[0]
        if flag not in tree.lapse_flags | tree.bench_flags | tree.flags_in(tree.text.get("CMakeLists.txt", "")):
            yield f"no program has --{flag}"
    elif PLACEHOLDER.search(span) or span.startswith(FOREIGN) or span in MADE:
        return
    elif found := PYTHON.fullmatch(span):
        for name in found[1][1:].split("."):
            if name not in tree.python:
                yield f"the Python package has no {name}"
    elif found := SYMBOL.fullmatch(span):
        if not tree.has_symbol(found[1], found[2]):
            yield f"{found[1]} has no {found[2]}"
    elif PATH.fullmatch(span) and (FILE_NAME.fullmatch(span.rsplit("/", 1)[-1]) or "/" in span):
        if not tree.has_path(span, folder):
            yield f"{span} does not exist"
    elif found := IDENTIFIER.fullmatch(span):
        if len(found[1]) > 2 and found[1] not in tree.words:
            yield f"{found[1]} is named nowhere in the sources"
    elif (found := KEY.fullmatch(span)) and found[1] not in tree.fields:
        yield f"{found[1]} is no key of the configuration"


def check_block(text: str, tree: Tree):
    """The lines of a block of sh, with their numbers in it."""
    for number, line in enumerate(text.splitlines()):
        for command in re.split(r"\s[|;]\s|\|$|&&|\s>\s", re.sub(r"\s#.*|^#.*", "", line)):
            words = [w for w in split(command) if not PLACEHOLDER.search(w) and w != "\\"]
            for reason in check_command(words, tree):
                yield number, reason


def check_text(path: str, text: str, tree: Tree):
    folder = str(pathlib.PurePath(path).parent)
    for block in FENCE.finditer(text):
        if block[1] in ("sh", "bash"):
            first = text.count("\n", 0, block.start(2)) + 1
            yield from ((first + number, reason) for number, reason in check_block(block[2], tree))
    prose = FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)
    for span in INLINE.finditer(prose):
        line = prose.count("\n", 0, span.start()) + 1
        yield from ((line, reason) for reason in check_span(span[1], tree, folder))
    for link in LINK.finditer(prose):
        target = link[1].split("#")[0]
        if target and "://" not in target and not (tree.root / folder / target).exists():
            yield prose.count("\n", 0, link.start()) + 1, f"the link to {target} leads nowhere"


def check_length(path: str, text: str):
    lines = text.splitlines()
    if len(lines) > README_LINES:
        yield README_LINES + 1, f"{len(lines)} lines; at most {README_LINES}"
    for number, line in enumerate(lines, 1):
        if len(line) > README_WIDTH:
            yield number, f"{len(line)} characters; at most {README_WIDTH}"


def missing_tables(root: pathlib.Path, docs: dict[str, str]):
    """Lines of tables that a program made and no document shows."""
    summary = root / "bench" / "summarise.py"
    if summary.is_file():
        done = subprocess.run([sys.executable, summary], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            yield f"bench/summarise.py:1: it fails: {done.stderr.strip().splitlines()[-1]}"
        yield from absent(done.stdout, "bench/README.md", docs.get("bench/README.md", ""), "bench/summarise.py prints")
    shown = "\n".join(text for path, text in docs.items() if path.startswith("docs/"))
    for table in sorted((root / "experiments").rglob("table.md")):
        yield from absent(table.read_text(encoding="utf-8"), "docs", shown, f"{table.relative_to(root)} has")


def absent(made: str, place: str, shown: str, maker: str):
    lines = set(shown.splitlines())
    for line in made.splitlines():
        if line.startswith(("|", "\\*", "AMD")) and line not in lines:
            yield f"{place}:1: {maker} a line that is not here: {line}"


def check(root: pathlib.Path) -> list[str]:
    """All that is wrong, as "file:line: reason"."""
    tree = Tree(root)
    docs = {}
    for pattern in DOCS:
        for file in sorted(root.glob(pattern)):
            docs[str(file.relative_to(root))] = file.read_text(encoding="utf-8")
    found = []
    for path, text in docs.items():
        problems = list(check_text(path, text, tree))
        if path == "README.md":
            problems += check_length(path, text)
        found += [f"{path}:{number}: {reason}" for number, reason in sorted(problems)]
    return found + list(missing_tables(root, docs))


def main() -> int:
    if len(sys.argv) > 2 or any(a.startswith("-") for a in sys.argv[1:]):
        print(__doc__)
        return 0 if sys.argv[1:] in (["--help"], ["-h"]) else 2
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else pathlib.Path(__file__).resolve().parent.parent
    found = check(root)
    for line in found:
        print(line)
    if found:
        print(f"check_docs: {len(found)} problem(s)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
