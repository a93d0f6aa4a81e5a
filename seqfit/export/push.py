"""Sends an exported folder to the Hub, or says what would be sent.

The token is huggingface_hub's business (HF_TOKEN, or `hf auth login`): it is neither read nor printed here, and errors
are masked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from seqfit.errors import ModelError, SeqfitError
from seqfit.hub import hub_address, is_offline_by_setting, reach_hub
from seqfit.rundir import mask_text

_NAME = re.compile(r"^[\w.-]+/[\w.-]+$")


@dataclass(frozen=True)
class PushPlan:
    name: str
    files: list[tuple[str, int]]  # with their bytes
    is_private: bool

    @property
    def total_bytes(self) -> int:
        return sum(size for _, size in self.files)


def plan_push(folder: Path, name: str, *, is_private: bool = True) -> PushPlan:
    check_name(name)
    found = sorted(file for file in folder.rglob("*") if file.is_file())
    return PushPlan(name, [(str(file.relative_to(folder)), file.stat().st_size) for file in found], is_private)


def check_name(name: str) -> None:
    if not _NAME.match(name) or ".." in name or "--" in name:
        raise ModelError(
            f"--push is '{name}'",
            "a model on the Hub is named OWNER/NAME: letters, digits, '-', '_' and '.', no '--' and no '..'",
            "Write it as in --push ada/qa",
        )


def upload(folder: Path, plan: PushPlan) -> str:
    """Creates the repository if it is not there yet, and uploads the folder as one commit; returns its address."""
    if is_offline_by_setting():
        raise ModelError(
            f"--push is '{plan.name}', and HF_HUB_OFFLINE is set",
            "a push needs the Hub",
            "Unset it, or look at what would be sent with --dry-run",
        )
    why = reach_hub()
    if why is not None:
        raise _failed(plan, f"{hub_address()} does not answer: {why}")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    api = HfApi()
    try:
        api.create_repo(plan.name, private=plan.is_private, exist_ok=True)
        api.upload_folder(repo_id=plan.name, folder_path=folder, commit_message="Upload by seqfit export")
    except LocalTokenNotFoundError as error:
        raise _failed(plan, "no token is found") from error
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise _failed(plan, (str(error).strip() or type(error).__name__).splitlines()[0]) from error
    return f"{hub_address()}/{plan.name}"


def _failed(plan: PushPlan, why: str) -> SeqfitError:
    return ModelError(
        mask_text(f"'{plan.name}' was not uploaded ({why})"),
        "a push needs the network and a token that may write there",
        "Run `hf auth login` or set HF_TOKEN, and try again; the exported folder is complete without it",
    )
