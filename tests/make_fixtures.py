"""Makes the checkpoints of this version that every later one must open (tests/fixtures/VERSION).

    .venv/bin/python tests/make_fixtures.py

Once for each version, before it is released; what is there is never made anew. tests/fixtures_test.py reads all of them.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from fixture_kinds import FIXTURES, KINDS, config_of, reading, succeed
from program import checkpoints, english


def main():
    version = succeed(Path.cwd(), "--version").split()[1]
    folder = FIXTURES / version
    if folder.exists():
        sys.exit(f"{folder}: there already; a version's files are never made anew")
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / version
        made.mkdir()
        (made / "text.txt").write_text(english(4000))
        succeed(made, "tokenizer", "train", "--data", "text.txt", "--vocabulary=320", "--out=a.model")
        expected = {}
        for kind in KINDS:
            (made / "config.toml").write_text(config_of(kind))
            succeed(made, "train", "config.toml", "--out", "run", "--quiet")
            shutil.copy(checkpoints(made / "run")[0], made / f"{kind}.safetensors")
            shutil.rmtree(made / "run")
            with tempfile.TemporaryDirectory() as place:
                for name in ("text.txt", "a.model"):
                    shutil.copy(made / name, place)
                expected[kind] = reading(Path(place), made / f"{kind}.safetensors")
        (made / "config.toml").unlink()
        (made / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        shutil.copytree(made, folder)


if __name__ == "__main__":
    main()
