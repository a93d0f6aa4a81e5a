r"""Command lines that start a Trainer script, and the JSON and YAML that HfArgumentParser reads -> arguments by name.

    CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 run_summarization.py \
        --learning_rate=3e-4 --fp16 --output_dir $OUT
    ->  Command("run_summarization.py", {"learning_rate": "3e-4", "fp16": "true", "output_dir": "runs/x"}, processes=2)

Words are split as a shell does; variables that the script sets to plain text before are filled in, and one that is not
known ($1, $(date)) makes the argument unreadable.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from seqfit.conversion.reading import VISIBLE_GPUS, count_visible
from seqfit.errors import RecipeError
from seqfit.recipe import trainer_names
from seqfit.yaml_text import read_yaml

_ASSIGNED = re.compile(r"(?:export\s+|local\s+|declare\s+|readonly\s+)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::?-([^}]*))?\}|([A-Za-z_]\w*))")
_LEFT = re.compile(r"\$[\w{(@*#!?-]|`")
_PROCESSES = ("--nproc_per_node", "--nproc-per-node", "--num_processes", "--num_gpus", "--nproc")
_NUMBERS_OF_PROCESSES = {name.lstrip("-") for name in _PROCESSES}
_NODES = ("--nnodes", "--num_machines", "--num_nodes")


@dataclass(frozen=True)
class Command:
    """The options are texts, as typed; an empty one is a flag."""

    script: str
    options: dict[str, str]
    line: int
    positional: list[str] = field(default_factory=list)
    processes: int | None = None
    mixed_precision: str | None = None
    visible_gpus: int | None = None
    starts_all: bool = False  # a launcher without a number of processes: one for each GPU
    accelerate_config: str | None = None  # a file with processes and precision
    unknown: dict[str, str] = field(default_factory=dict)  # options whose text the shell script does not have


def read_commands(text: str) -> list[Command]:
    """Every command of a shell script that starts a Python script with options."""
    variables: dict[str, str] = {}
    found = []
    for line, statement in _statements(text):
        assigned = _ASSIGNED.fullmatch(statement.strip())
        words = _split(statement)
        if assigned and words and words[0] in ("export", "local", "declare", "readonly"):
            words = words[1:]
        if assigned and len(words) == 1:
            value = _fill(words[0].partition("=")[2], variables)
            if not _LEFT.search(value):
                variables[assigned[1]] = value
            continue
        if assigned and words and "=" in words[0] and not any(_is_python(word) for word in words):
            continue
        command = _read_command([word for one in words for word in _expand(one, variables)], line, variables)
        if command is not None:
            found.append(command)
    return found


def _expand(word: str, variables: Mapping[str, str]) -> list[str]:
    """A word; a variable that is a word of its own may hold several ($ARGS)."""
    filled = _fill(word, variables)
    is_whole = _VARIABLE.fullmatch(word) is not None
    return _split(filled) if is_whole and " --" in f" {filled}" else [filled]


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without comments; the number is that of the first line."""
    held, start = "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        line = raw.rstrip()
        if not held and line.lstrip().startswith("#"):
            continue
        if not held:
            start = number
        if held and line.lstrip().startswith("#"):
            continue  # a line of the command that is commented out
        if re.search(r"(?<!\\)\\$", line):
            held += f"{line[:-1]} "
            continue
        statement = held + line
        if statement.count('"') % 2 and statement.count('"') - statement.count('\\"') and number < start + 200:
            held = f"{statement} "
            continue
        held = ""
        yield from ((start, part) for part in _parts(statement) if part.strip())
    if held.strip():
        yield start, held


def _parts(statement: str) -> list[str]:
    """Commands of one line, which ; && || and | separate outside of quotes."""
    lexer = shlex.shlex(statement, posix=False, punctuation_chars=";&|")
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    try:
        for token in lexer:
            if set(token) <= set(";&|"):
                parts.append([])
            else:
                parts[-1].append(token)
    except ValueError:
        return [statement]
    return [" ".join(part) for part in parts]


def _split(statement: str) -> list[str]:
    try:
        return shlex.split(statement, comments=True)
    except ValueError:  # quotes that are not closed
        return statement.split()


def _fill(word: str, variables: Mapping[str, str]) -> str:
    for _ in range(5):
        filled = _VARIABLE.sub(
            lambda match: variables.get(match[1] or match[3], match[2] if match[2] is not None else match[0]), word
        )
        if filled == word:
            break
        word = filled
    return word


def _is_python(word: str) -> bool:
    return word.endswith(".py") or re.fullmatch(r"(.*/)?(python[\d.]*|torchrun|accelerate|deepspeed)", word) is not None


def _read_command(words: Sequence[str], line: int, variables: Mapping[str, str]) -> Command | None:
    script = next((index for index, word in enumerate(words) if word.endswith(".py")), None)
    module = next(
        (i for i, word in enumerate(words[:-1]) if word == "-m" and not words[i + 1].startswith("torch.")), None
    )
    if script is None and module is not None and any(word.startswith("--") for word in words[module:]):
        script = module + 1
    if script is None or not any(map(_is_python, words[: script + 1])):
        return None
    processes, precision = _read_launcher(words[:script])
    options, unknown, positional = _read_options(words[script + 1 :])
    for name, value in _pairs(words[:script]):
        if name in _PROCESSES and not value.isdecimal():
            unknown[name.lstrip("-")] = value
    before = dict(_pairs(words[:script])) if VISIBLE_GPUS in " ".join(words[:script]) else variables
    gpus = count_visible(before.get(VISIBLE_GPUS))
    is_counted = processes is not None or any(name in _NUMBERS_OF_PROCESSES for name in unknown)
    starts_all = not is_counted and any(re.fullmatch(r"(.*/)?(accelerate|deepspeed)", word) for word in words[:script])
    config = dict(_pairs(words[:script])).get("--config_file")
    return Command(words[script], options, line, positional, processes, precision, gpus, starts_all, config, unknown)


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each word as a name, with the value after = or the next word."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        yield name, value if equals else following


def _read_launcher(words: Sequence[str]) -> tuple[int | None, str | None]:
    counts: dict[str, int] = {}
    precision = None
    for name, value in _pairs(words):
        if name in (*_PROCESSES, *_NODES) and value.isdecimal():
            counts["processes" if name in _PROCESSES else "nodes"] = int(value)
        elif name == "--mixed_precision":
            precision = value
        elif name == "--include" and ":" in value:
            counts["processes"] = value.count(",") + 1
    is_accelerate = "accelerate" in words
    nodes = 1 if is_accelerate else counts.get("nodes", 1)  # accelerate counts the processes of all machines
    return (counts["processes"] * nodes if "processes" in counts else None), precision


def _read_options(words: Sequence[str]) -> tuple[dict[str, str], dict[str, str], list[str]]:
    options: dict[str, str] = {}
    unknown: dict[str, str] = {}
    positional: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if re.match(r"\d?>|<", word):
            if word.rstrip("&") in (">", ">>", "2>", "1>", "<"):
                left = left[1:]
            continue
        if not re.match(r"--?[A-Za-z]", word):
            positional.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        values = [value] if equals else []
        while not equals and left and not re.match(r"--?[A-Za-z]|\d?>", left[0]):
            values.append(left.pop(0))
        argument = trainer_names.find_argument(name)
        if argument is not None and argument.is_flag and values and values[0].lower() not in _SWITCH:
            positional += values
            values = []
        text = " ".join(values)
        if _LEFT.search(text):
            unknown[name] = text
        else:
            options[name] = text
    return options, unknown, positional


_SWITCH = ("true", "false", "yes", "no", "1", "0", "t", "f", "y", "n")


def read_argument_file(text: str, name: str) -> tuple[dict[str, Any], dict[str, int]]:
    """What HfArgumentParser's JSON or YAML gives, and the lines; one level of sections is opened."""
    try:
        values, _ = (json.loads(text), []) if name.endswith(".json") else read_yaml(text)
    except (ValueError, yaml.YAMLError) as error:
        what = " ".join(str(error).split())
        raise RecipeError(f"{name}: {what}", "it is read as JSON or YAML", "Correct the file there") from error
    if not isinstance(values, Mapping):
        raise RecipeError(f"{name} is a {type(values).__name__}", "arguments are names with values", "Give a mapping")
    flat: dict[str, Any] = {}
    for key, value in values.items():
        is_section = isinstance(value, Mapping) and trainer_names.find_argument(key) is None
        flat |= dict(value) if is_section else {str(key): value}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"""\s*["']?([\w.]+)["']?\s*:""", line)
        if match:
            lines.setdefault(match[1], number)
    return flat, lines
