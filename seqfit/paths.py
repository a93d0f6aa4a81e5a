"""Paths that must exist: an error about one that does not lists what its folder has instead."""

from __future__ import annotations

from pathlib import Path

from seqfit.errors import DataError, did_you_mean


def require_file(path: Path, field: str = "data.path") -> Path:
    if path.exists():
        return path
    folder = path.parent
    if not folder.is_dir():
        raise DataError(f"{path} does not exist", "Neither does its folder", f"Set {field} to an existing path")
    names = list_folder(folder)
    if not names:
        raise DataError(f"{path} does not exist", "Its folder is empty", f"Set {field} to an existing path")
    has = f"The folder has: {', '.join(names)}"
    known = [entry.name for entry in folder.iterdir()]  # all, because the listing is shortened
    raise DataError(f"{path} does not exist", has, f"Set {field} to one of them", hint=did_you_mean(path.name, known))


def list_folder(folder: Path, most: int = 20) -> list[str]:
    """Names in a folder, for a message: folders end in /, hidden files are left out."""
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    names = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries[:most]]
    return [*names, f"and {len(entries) - most} more"] if len(entries) > most else names
