"""The Hub, reached or not: one short attempt, where its clients would try for half a minute and print every failure.

`use_hub` is called before anything is asked of the Hub. Where it does not answer, the clients are set to work offline:
what was fetched before still loads, and anything else fails at once. That is a fallback, so `went_offline` tells a run
to record it.
"""

from __future__ import annotations

import os
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

RULE = "a model is a local folder, or a name on the Hub that can be reached or was fetched before"
ADVICE = (
    "Set model.path (or --model) to a folder with config.json, weights and tokenizer, or check the name and the network"
)
_PATIENCE_SECONDS = 5.0


def use_hub() -> None:
    """Let the Hub's clients work online if the Hub answers, else offline; asked once a process."""
    if "asked" in _state or is_offline_by_setting():
        return
    _state.add("asked")
    if reach_hub() is None:
        return
    import huggingface_hub.constants

    os.environ["HF_HUB_OFFLINE"] = "1"  # for clients that are not imported yet, and for worker processes
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    if "datasets" in sys.modules:
        sys.modules["datasets"].config.HF_HUB_OFFLINE = True
    _state.add("offline")


def went_offline() -> bool:
    """Whether `use_hub` found that the Hub does not answer."""
    return "offline" in _state


def trust_remote_code() -> None:
    """From now on, models and tokenizers may run code that comes with them. Only a user's own word sets this."""
    _state.add("trusted")


def is_remote_code_trusted() -> bool:
    """Whether the user has said so in this process. Never by a recipe: those are passed on."""
    return "trusted" in _state


def is_path(location: str) -> bool:
    """Whether a model's or tokenizer's place is one on this machine, there or not, and no name on the Hub."""
    return location.startswith((".", "/", "~")) or location.count("/") > 1 or Path(location).exists()


def reach_hub(seconds: float = _PATIENCE_SECONDS) -> str | None:
    """None where the Hub answers within that time, whatever it says, else what went wrong.

    In a thread: looking up a name takes as long as the resolver likes, half a minute where no server answers it, and
    no timeout of the connection counts there.
    """
    said: list[str | None] = []
    attempt = threading.Thread(target=lambda: said.append(_try_hub(seconds)), daemon=True)
    attempt.start()
    attempt.join(seconds)
    return said[0] if said else f"no answer within {seconds:g} s"


def _try_hub(seconds: float) -> str | None:
    try:
        with urllib.request.urlopen(urllib.request.Request(hub_address(), method="HEAD"), timeout=seconds):
            return None
    except urllib.error.HTTPError:
        return None
    except (OSError, ValueError) as error:
        return str(error)


def hub_address() -> str:
    """Where the clients look for the Hub."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co")


def is_offline_by_setting() -> bool:
    """Whether the user has switched the Hub off."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


_state: set[str] = set()
