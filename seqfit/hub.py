"""The Hub, online or offline: one short attempt, where its clients would retry for half a minute and log each failure.

`use_hub` is called before the Hub is used. If the Hub does not answer, its clients are switched to offline mode: what
was downloaded before still loads, and anything else fails at once. A run records this fallback (`went_offline`).
"""

from __future__ import annotations

import os
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

RULE = "a model is a local folder, or a name on the Hub that can be reached or was downloaded before"
ADVICE = (
    "Set model.path (or --model) to a folder with config.json, weights and tokenizer, or check the name and the network"
)
_PATIENCE_SECONDS = 5.0


def use_hub() -> None:
    """Let the Hub's clients work online if the Hub answers, else offline; tried once per process."""
    if "tried" in _state or is_offline_by_setting():
        return
    _state.add("tried")
    if reach_hub() is None:
        return
    import huggingface_hub.constants

    os.environ["HF_HUB_OFFLINE"] = "1"  # for clients imported later, and for child processes
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    if "datasets" in sys.modules:
        sys.modules["datasets"].config.HF_HUB_OFFLINE = True
    _state.add("offline")


def went_offline() -> bool:
    return "offline" in _state


def trust_remote_code() -> None:
    """From now on, models and tokenizers may run code that comes with them. Only a user's own option sets this."""
    _state.add("trusted")


def is_remote_code_trusted() -> bool:
    """Whether the user allowed it in this process; a recipe can't, because recipes are passed on."""
    return "trusted" in _state


def is_path(location: str) -> bool:
    """Whether the location of a model or tokenizer is a local path, existing or not, and not a name on the Hub."""
    return location.startswith((".", "/", "~")) or location.count("/") > 1 or Path(location).exists()


def reach_hub(seconds: float = _PATIENCE_SECONDS) -> str | None:
    """None where the Hub answers within that time, with any status, else what went wrong.

    In a thread, because resolving the host name may take half a minute, and the connection's timeout does not cover it.
    """
    results: list[str | None] = []
    attempt = threading.Thread(target=lambda: results.append(_try_hub(seconds)), daemon=True)
    attempt.start()
    attempt.join(seconds)
    return results[0] if results else f"no answer within {seconds:g} s"


def _try_hub(seconds: float) -> str | None:
    try:
        with urllib.request.urlopen(urllib.request.Request(hub_address(), method="HEAD"), timeout=seconds):
            return None
    except urllib.error.HTTPError:
        return None
    except (OSError, ValueError) as error:
        return str(error)


def hub_address() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co")


def describe_absence(name: str) -> str | None:
    """What is wrong with a model's name that was not downloaded before; None where the Hub could be asked."""
    if not went_offline() and not is_offline_by_setting():
        return None
    why = "the Hub does not answer" if went_offline() else "HF_HUB_OFFLINE is set"
    return f"model.name is '{name}', which was not downloaded before, and {why}"


def is_offline_by_setting() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


_state: set[str] = set()
