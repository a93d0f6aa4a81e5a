"""What a manifest says of where a run came from: versions and the commit of the working directory."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess

_PACKAGES = (
    *("seqfit", "torch", "transformers", "tokenizers", "datasets", "safetensors", "numpy", "pyarrow", "peft"),
    *("bitsandbytes", "torchao", "deepspeed"),
)


def collect_versions() -> dict[str, str]:
    """Python's and the packages' versions; one that is not installed as a package is left out."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def find_commit() -> str | None:
    """Commit of the working directory's repository, with '+changes' where files differ from it; None outside one."""
    try:
        commit = _git("rev-parse", "HEAD")
        return f"{commit}+changes" if _git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    answer = subprocess.run(["git", *words], capture_output=True, text=True, check=True, timeout=10)
    return answer.stdout.strip()
