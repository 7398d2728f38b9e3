"""What a program of this folder has measured, in a file of several sittings: each case with the commit that it ran on."""

import json
import subprocess


def keep(file, name, found):
    """Writes the figures of one case into the file, if there is one; those of other cases stay."""
    if file is None:
        return
    said = json.loads(file.read_text()) if file.exists() else {}
    commit = subprocess.run(["git", "describe", "--always", "--exclude=*", "--abbrev=10", "--dirty=+changes"], capture_output=True, text=True, check=False)
    said[name] = found | {"commit": commit.stdout.strip() or "unknown"}
    beside = file.with_name(file.name + ".partial")
    beside.write_text(json.dumps(said, indent=1) + "\n")
    beside.rename(file)
