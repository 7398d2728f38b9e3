#!/usr/bin/env python3
"""The house rules that a compiler does not check. Lists file:line and reason, and exits 1 where one is broken.

  levels     a file under lapse/ includes only from its own level or below (docs/architecture.md)
  names      a forgetting method is named nowhere but in lapse/forgetting/, lapse/ops/, the mapping of golden files
             (lapse/interop/golden_table.cpp, golden_selective.*) and tests
  once       every header begins with #pragma once
  heavy      no header includes all of torch or ATen: that costs every file that includes it 10 to 19 s
  one name   no two types of one namespace, outside the anonymous one, have the same name: linkers keep one's destructor
  length     no header or source is longer than 400 lines

Usage: check_house.py [ROOT]
"""
import pathlib
import re
import sys

LEVELS = "core ops memory forgetting nn model data tasks rl train read interop observe serve cli".split()  # lowest first
FOLDERS = "lapse bench tests examples".split()
HEADERS = {".h", ".hpp", ".cuh"}
SOURCES = {".cpp", ".cc", ".cu"}
METHODS_LIVE_IN = re.compile(r"lapse/((forgetting|ops)/|interop/golden_(table|selective)\.)")
METHOD_TABLE = "lapse/forgetting/registry.cpp"
HEAVY = {"torch/torch.h", "torch/extension.h", "torch/all.h", "ATen/ATen.h", "lapse/ops/aten.h"}
OTHERS_WORDS = re.compile("thread_local|get_local_ip_and_port|LOCAL_(RANK|WORLD_SIZE)")  # of the language, libraries and torchrun
LONGEST = 400

INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')
WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")  # the words of expire_span, ExpireSpan, H2OCache


def method_names(table: str) -> list[str]:
    """The first elements of the table's rows: {"expire_span", ...}."""
    without_comments = re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', lambda m: m[1] or " ", table, flags=re.S)
    return re.findall(r'\{\s*"([A-Za-z0-9_-]+)"\s*,', without_comments)


def names_in(line: str, joined: dict[str, str]) -> list[str]:
    """Which methods a line names, in whatever spelling: expire_span, ExpireSpan, expire-span, EXPIRE_SPAN, expirespan.
    `joined`: "expirespan" -> "expire_span". A space is no joint: "a fixed span" is plain English."""
    words = list(WORD.finditer(line))
    found = []
    for i in range(len(words)):
        text = ""
        for j in range(i, len(words)):
            if j > i and line[words[j - 1].end() : words[j].start()] not in ("", "-", "_"):
                break
            text += words[j][0].lower()
            if text in joined:
                found.append(joined[text])
    return found


def check_includes(path: pathlib.PurePath, lines: list[str]):
    level = path.parts[1] if path.parts[0] == "lapse" else None
    for number, line in enumerate(lines, 1):
        include = INCLUDE.match(line)
        if not include:
            continue
        target = include[1]
        if path.suffix in HEADERS and target in HEAVY:
            yield number, f"a header includes <{target}>; include single headers, such as <ATen/core/Tensor.h>"
        if level is None:
            continue
        if ".." in target.split("/"):
            yield number, f'"{target}": includes are written from the root, as "lapse/LEVEL/file.h"'
        parts = target.split("/")
        if parts[0] != "lapse" or level not in LEVELS:
            continue
        if len(parts) < 3 or parts[1] not in LEVELS:
            yield number, f'"{target}" is on no level; the levels are: {" ".join(LEVELS)}'
        elif LEVELS.index(parts[1]) > LEVELS.index(level):
            yield number, f'{level} includes "{target}", from a level above its own'


def check_file(path: pathlib.PurePath, text: str, joined: dict[str, str]):
    lines = text.splitlines()
    if path.parts[0] == "lapse" and (len(path.parts) < 3 or path.parts[1] not in LEVELS):
        yield 1, f'this file is on no level; the levels are: {" ".join(LEVELS)}'
    yield from check_includes(path, lines)
    if path.suffix in HEADERS and not any(line.strip() == "#pragma once" for line in lines):
        yield 1, "a header without #pragma once"
    if len(lines) > LONGEST:
        yield LONGEST + 1, f"{len(lines)} lines; at most {LONGEST}: one idea per file"
    is_test = path.stem.endswith("_test")
    if path.parts[0] == "lapse" and not METHODS_LIVE_IN.match(path.as_posix()) and not is_test:
        for number, line in enumerate(lines, 1):
            for name in names_in(OTHERS_WORDS.sub("", line), joined):
                yield number, f"names the method {name}; only lapse/forgetting, lapse/ops and the mapping of golden files may"


NAMESPACE = re.compile(r"(?:inline )?namespace ?([\w:]*) ?\{$")
TYPE = re.compile(r"(?:struct|class) (\w+)(?: final)?(?: : [^;]*)?(?: \{.*)?$")  # its definition, at the beginning of a line


def types_in(lines: list[str]):
    """(line, full name) of every type that a file defines outside the anonymous namespace."""
    inside = []
    for number, line in enumerate(lines, 1):
        line = line.rstrip()
        if opened := NAMESPACE.match(line):
            inside.append(opened[1])
        elif line.startswith("}  // namespace") and inside:
            inside.pop()
        elif (found := TYPE.match(line)) and "" not in inside:
            yield number, "::".join([*inside, found[1]])


def check_types(files: dict[pathlib.PurePath, str]):
    """Of files under lapse/, which one program may link together."""
    known = {}
    for path, text in files.items():
        for number, name in types_in(text.splitlines()):
            first = known.setdefault(name, path)
            if first != path:
                yield f"{path}:{number}: {name} is the name of a type in {first} too; linkers keep one's destructor for both"


def check(root: pathlib.Path) -> list[str]:
    """All violations, as "file:line: reason"."""
    table = root / METHOD_TABLE
    if not table.is_file():
        return [f"{METHOD_TABLE}:1: not found; it tells the methods' names"]
    methods = method_names(table.read_text(encoding="utf-8"))
    if not methods:
        return [f'{METHOD_TABLE}:1: no row such as {{"name", ...}} found; the names of the methods are read from here']
    joined = {re.sub("[-_]", "", name).lower(): name for name in methods}

    found, texts = [], {}
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in HEADERS | SOURCES or not file.is_file():
                continue
            path = file.relative_to(root)
            try:
                text = file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                found.append(f"{path}:1: not UTF-8")
                continue
            found += [f"{path}:{number}: {reason}" for number, reason in check_file(path, text, joined)]
            if folder == "lapse":
                texts[path] = text
    return found + list(check_types(texts))


def main() -> int:
    if len(sys.argv) > 2 or any(a.startswith("-") for a in sys.argv[1:]):
        print(__doc__)
        return 0 if sys.argv[1:] in (["--help"], ["-h"]) else 2
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else pathlib.Path(__file__).resolve().parent.parent
    found = check(root)
    for line in found:
        print(line)
    if found:
        print(f"check_house: {len(found)} violation(s)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
