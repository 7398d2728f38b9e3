"""Checkpoints of runs as the command reads them (lapse/train/checkpoint.cpp): a damaged file is noticed, and of a run the
newest that is whole is taken."""

import mmap
import os
import pathlib
import re
import warnings
import zlib

from torch import Tensor

CHECKSUM = "lapse.checksum"
Content = tuple[pathlib.Path, dict[str, str], dict[str, Tensor]]  # path, metadata, weights


class DamagedFile(ValueError):
    """A file that is not what was written."""


def checkpoints_of(run: pathlib.Path) -> list[pathlib.Path]:
    """A run's checkpoints, the newest first. Files of other names in their folder are the user's: the number has 8 digits, or
    more where it needs them (lapse/train/run_folder.cpp)."""
    try:
        named = re.compile(r"update-([0-9]{8}|[1-9][0-9]{8,})\.safetensors")
        files = {path: named.fullmatch(path.name) for path in (run / "checkpoints").iterdir()}
    except FileNotFoundError:
        return []
    updates = {path: int(name[1]) for path, name in files.items() if name and int(name[1]) < 2**63}
    return sorted(updates, key=lambda path: updates[path], reverse=True)


def _one_edit(a: str, b: str) -> bool:
    """Whether one letter was changed, added or left out, or two neighbours swapped."""
    n = len(os.path.commonprefix([a, b]))
    swapped = a[n : n + 2][::-1] + a[n + 2 :]
    return a != b and (a[n + 1 :] in (b[n + 1 :], b[n:]) or b[n + 1 :] == a[n:] or b[n:] == swapped)


def _require_checksum(path: pathlib.Path, told: dict[str, str]) -> None:
    """The CRC-32 of the file with zeros in the checksum's place, if it has one: lapse/core/safetensors.cpp."""
    for key in told:  # the checksum's own name may be what changed
        if _one_edit(key, CHECKSUM):
            raise DamagedFile(f"{path}: metadata has the unknown key {key!r} (truncated or altered file)")
    if CHECKSUM not in told:
        return
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        own = f'"{CHECKSUM}":"'.encode()  # in a string the quotes would be escaped
        found = content.find(own, 0, 8 + int.from_bytes(content[:8], "little"))
        at = found + len(own)
        with memoryview(content)[at + 8 :] as rest:
            actual = zlib.crc32(rest, zlib.crc32(b"0" * 8, zlib.crc32(content[:at])))
    if found < 0 or told[CHECKSUM] != f"{actual:08x}":
        raise DamagedFile(f"{path}: its checksum does not agree with its content (truncated or altered file)")


def _read(path: pathlib.Path) -> Content:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise DamagedFile(f"{path}: not a file that is there")
    try:
        with safe_open(str(path), "pt") as file:
            told = file.metadata() or {}
            _require_checksum(path, told)
            if told.get("lapse.format") != "1":
                raise ValueError(f"{path}: not a checkpoint of lapse that this version reads")
            return path, told, {name: file.get_tensor(name) for name in file.keys() if name.startswith("weight.")}
    except (SafetensorError, FileNotFoundError) as error:
        raise DamagedFile(f"{path}: not a checkpoint of lapse, or not all of one ({error})") from error


def open_checkpoint(path: pathlib.Path) -> Content:
    """A checkpoint, or a run's newest one that is whole: as Checkpoint::open of lapse/train/checkpoint.cpp."""
    if path.is_file():
        try:
            return _read(path)
        except DamagedFile as error:
            raise ValueError(f"{error}; put a good copy there, or load another checkpoint") from error
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such run or checkpoint")
    files = checkpoints_of(path)
    if not files:
        raise FileNotFoundError(
            f"{path}: no checkpoint in its folder checkpoints/; is this a folder that `lapse train --out` made?"
        )
    for file in files:
        try:
            return _read(file)
        except DamagedFile as error:
            if checkpoints_of(path)[:1] not in ([], files[:1]):  # a run that goes on removes old ones for newer ones
                return open_checkpoint(path)
            warnings.warn(f"{error}; trying the checkpoint before it", stacklevel=3)
    raise ValueError(
        f"{path}: no usable checkpoint among the {len(files)} of its folder checkpoints/; put good copies there, or "
        "train anew with another --out"
    )
