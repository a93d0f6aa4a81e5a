"""A script, notebook, command line or argument file -> a `ScriptReading`, and what names the place of a line.

train.py                         followed as Python (interpreter.py, calls.py)
train.ipynb                      its code cells; '!python run_summarization.py ...' is a command line
train.sh, "python train.py ..."  the command; a script that it names and that is there is followed with its options
args.json, args.yaml             what HfArgumentParser reads
training_args.bin                refused: a pickle runs code when it is read
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from seqfit.conversion.calls import ScriptCalls
from seqfit.conversion.commands import Command, read_argument_file, read_commands
from seqfit.conversion.found import read_scalar
from seqfit.conversion.interpreter import Interpreter
from seqfit.conversion.outcome import TrainedParts
from seqfit.conversion.reading import FILE, ScriptReading
from seqfit.conversion.values import Unknown
from seqfit.errors import RecipeError
from seqfit.recipe import trainer_names
from seqfit.yaml_text import read_yaml

Locate = Callable[[int | None], str]
_SWITCH = {
    "true": True,
    "yes": True,
    "t": True,
    "y": True,
    "1": True,
    "false": False,
    "no": False,
    "f": False,
    "n": False,
    "0": False,
}
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
# Of which a command has at least one if it starts a Trainer; other programs have --fp16 and --seed, too.
_OF_A_TRAINER = {
    *("model_name_or_path", "per_device_train_batch_size", "per_gpu_train_batch_size", "gradient_accumulation_steps"),
    *("num_train_epochs", "output_dir", "do_train", "train_file", "dataset_name", "predict_with_generate"),
}
NO_TRAINER = "'seqfit convert' reads scripts with transformers' TrainingArguments or Trainer"


@cache
def load_table(name: str) -> dict[str, Any]:
    return dict(read_yaml(resources.files("seqfit.conversion").joinpath(name).read_text("utf-8"))[0])


def is_there(script: str | Path) -> bool:
    """Whether it is a path, and not a command line, which may be too long for one."""
    try:
        return Path(script).expanduser().exists()
    except (OSError, RuntimeError):
        return False


def read_source(script: str | Path | Mapping[str, Any]) -> tuple[ScriptReading, Locate]:
    """Everything that can be read of it; a RecipeError where it has no Trainer."""
    if isinstance(script, Mapping):
        return _with_lines(_take_arguments(script, {}, "the mapping"))
    path = Path(script).expanduser()
    if not is_there(script) and isinstance(script, str) and re.search(r"\s", script.strip()):
        return _with_lines(_read_shell(script, Path(), "the command line"))
    if path.suffix.lower() in _PICKLES:
        dump = (
            f"python -c \"import torch; print(torch.load('{path}', weights_only=False).to_json_string())\" > args.json"
        )
        raise RecipeError(
            f"'{script}' is a pickle, and '{path.name}' is not read",
            "reading a pickle runs code that is in it",
            f"Convert the script that wrote it; or, if you trust the file, write it as JSON and convert that: {dump}",
        )
    if path.is_dir():
        raise RecipeError(
            f"'{script}' is a folder", "one script is converted at a time", "Name the script in it that has the Trainer"
        )
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError as error:
        rule = "'seqfit convert' takes a Python script, a notebook, a shell script, a JSON or YAML file of arguments"
        raise RecipeError(
            f"'{script}': {error.strerror}", rule, "Check the path, or put a command line in quotes"
        ) from error
    if not text.strip():
        raise _refuse(str(script), "is empty")
    match path.suffix.lower():
        case ".py":
            return _with_lines(_read_python(text, path, None))
        case ".ipynb":
            return _read_notebook(text, path)
        case ".json" | ".yaml" | ".yml":
            return _with_lines(_read_arguments(text, path))
        case _:
            return _with_lines(_read_shell(text, path.parent, str(script)))


def locate_line(reading: ScriptReading, line: int | None) -> str:
    """'line 12', or 'model.py, line 12' in a module next to the script."""
    if line is None:
        return ""
    number, line = divmod(line, FILE)
    return f"{reading.modules[number - 1]}, line {line}" if number else f"line {line}"


def _with_lines(reading: ScriptReading) -> tuple[ScriptReading, Locate]:
    return reading, lambda line: locate_line(reading, line)


def _refuse(name: str, what: str = "has no Trainer") -> RecipeError:
    change = "Name the script, notebook or shell script that starts training; for data, see 'seqfit data FILE'"
    return RecipeError(f"'{name}' {what}", NO_TRAINER, change)


# Python and notebooks.


def _clean(text: str) -> tuple[str, str]:
    """Without the lines that only IPython understands, and those, as shell text."""
    lines, shell = [], []
    is_continued = False
    for line in text.split("\n"):
        stripped = line.lstrip()
        indent = line[: len(line) - len(stripped)]
        if is_continued or re.match(r"[!%?]", stripped):
            shell.append(stripped.lstrip("!%") if not is_continued else stripped)
            is_continued = stripped.rstrip().endswith("\\")
            lines.append(f"{indent}pass")
        else:
            shell.append("")
            lines.append(line)
    return "\n".join(lines), "\n".join(shell)


def _read_python(text: str, path: Path, options: Mapping[str, Any] | None) -> ScriptReading:
    cleaned, shell = _clean(text)
    try:
        module = ast.parse(cleaned)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        raise RecipeError(
            f"'{path}'{line}: {what}", "it is read as Python 3", "Correct the line, and try again"
        ) from error
    reading = _follow(module, path.parent, options)
    if not reading.has_trainer:
        if options is None and (commands := read_commands(shell)):
            return _read_command(commands, path.parent, str(path))
        raise _refuse(str(path))
    return reading


def _follow(module: ast.Module, folder: Path, options: Mapping[str, Any] | None) -> ScriptReading:
    """A second time where a flag that is off by default hides the Trainer."""
    for flags_known in (True, False):
        reading = ScriptReading()
        interpreter = Interpreter(reading, folder)
        calls = ScriptCalls(interpreter, options, flags_known=flags_known)
        interpreter.calls = calls
        interpreter.run(module)
        if calls.found.arguments or not flags_known:
            break
    TrainedParts(interpreter, calls.found).finish()
    for name in sorted(set(options or {}) - calls.options.used):
        if trainer_names.find_argument(name) is None:
            reading.leave(f"--{name}", None, "the script does not use it where it could be followed")
        elif options is not None and not reading.has(name):
            _take_option(reading, name, options[name], None)
    return reading


def _read_notebook(text: str, path: Path) -> tuple[ScriptReading, Locate]:
    try:
        notebook = json.loads(text)
        cells = notebook.get("cells") or [cell for sheet in notebook.get("worksheets", []) for cell in sheet["cells"]]
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise RecipeError(
            f"'{path}' is not a notebook: {error}", "a notebook is JSON with cells", "Save it again"
        ) from error
    starts: list[tuple[int, int]] = []
    statements: list[ast.stmt] = []
    shells: list[str] = []
    broken: list[tuple[int, str]] = []
    line = 0
    for number, cell in enumerate(cells, 1):
        source = cell.get("source", cell.get("input", ""))
        source = "".join(source) if isinstance(source, list) else str(source)
        if cell.get("cell_type") != "code":
            continue
        starts.append((line, number))
        is_shell = re.match(r"\s*%%(bash|sh|script)", source) is not None
        body, shell = ("", source.partition("\n")[2]) if is_shell else _clean(re.sub(r"\A\s*%%.*", "", source))
        shells.append(shell)
        try:
            tree = ast.parse(body)
        except (SyntaxError, ValueError) as error:
            broken.append((line + 1, str(error)))
        else:
            statements += [ast.increment_lineno(statement, line) for statement in tree.body]
        line += source.count("\n") + 1

    def locate(found: int | None) -> str:
        if found is None:
            return ""
        if found >= FILE:
            return locate_line(reading, found)
        start, number = next((one for one in reversed(starts) if one[0] < found), (0, 1))
        return f"cell {number}, line {found - start}"

    reading = _follow(ast.Module(statements, []), path.parent, None)
    if not reading.has_trainer:
        commands = read_commands("\n".join(shells))
        if not commands:
            raise _refuse(str(path))
        return _read_command(commands, path.parent, str(path)), lambda line: "" if line is None else "a command"
    for where, why in broken:
        reading.leave("a cell", where, f"it is not Python: {why}")
    return reading, locate


# Command lines.


def _read_shell(text: str, folder: Path, name: str) -> ScriptReading:
    return _read_command(read_commands(text), folder, name)


def _read_command(commands: list[Command], folder: Path, name: str) -> ScriptReading:
    useful = [one for one in commands if {*one.options, *one.unknown} & _OF_A_TRAINER]
    useful = useful or [one for one in commands if _find_script(one.script, folder) is not None]
    if not useful:
        raise _refuse(name)
    command, script = useful[0], _find_script(useful[0].script, folder)
    reading = ScriptReading()
    options: dict[str, Any] = {key: read_scalar(text) if text else True for key, text in command.options.items()}
    if command.positional and command.positional[0].endswith((".json", ".yaml", ".yml")):
        file = _find_file(command.positional[0], folder)
        if file is not None:
            options = {**read_argument_file(file.read_text("utf-8"), file.name)[0], **options}
    for key, value in command.unknown.items():
        options[key] = Unknown(f"'{value}' is not in the shell script")
    is_example = Path(command.script).name in load_table("example_scripts.yaml")
    if script is not None and not is_example:
        try:
            reading = _read_python(script.read_text("utf-8", errors="replace"), script, options)
        except RecipeError:
            if not any(trainer_names.find_argument(key) for key in options):
                raise
            script = None
    reading.script = Path(command.script).name
    reading.visible_gpus = command.visible_gpus or reading.visible_gpus
    _read_launcher(reading, command, folder)
    if script is None or is_example:
        for key, value in options.items():
            _take_option(reading, key, value, command.line)
    reading.has_trainer = True
    for other in commands:
        if other is not command:
            what = f"another command, {other.script}"
            reading.leave(
                what, other.line, f"the one in line {command.line} is taken; put this one in quotes to convert it"
            )
    return reading


def _read_launcher(reading: ScriptReading, command: Command, folder: Path) -> None:
    """Processes and precision, by the command or by accelerate's file of both."""
    processes, precision, said = command.processes, command.mixed_precision, "--mixed_precision"
    if command.accelerate_config is not None:
        file = _find_file(command.accelerate_config, folder)
        if file is None:
            why = "the file is not there; it may have the number of processes and the precision"
            reading.leave(f"--config_file {command.accelerate_config}", command.line, why)
        else:
            config, _ = read_argument_file(file.read_text("utf-8"), file.name)
            count = config.get("num_processes")
            processes = processes or (count if isinstance(count, int) else None)
            precision, said = precision or config.get("mixed_precision"), f"{file.name}: mixed_precision"
    reading.processes = processes
    reading.starts_all = command.starts_all and processes is None
    if precision in ("bf16", "fp16") and not (reading.has("bf16") or reading.has("fp16")):
        reading.take(precision, True, command.line, f"{said} {precision}")


def _find_script(name: str, folder: Path) -> Path | None:
    return _find_file(name if name.endswith(".py") else f"{name.replace('.', '/')}.py", folder)


def _find_file(name: str, folder: Path) -> Path | None:
    return next((place for place in (folder / name, Path(name)) if place.is_file()), None)


def _take_option(reading: ScriptReading, key: str, value: Any, line: int | None) -> None:
    name = key
    if trainer_names.find_argument(name) is None:
        if name.startswith("no_") and trainer_names.find_argument(name[3:]) is not None:
            name, value = name[3:], False
        else:  # argparse takes the beginning of a name that is unique
            longer = {full for rows in trainer_names.load_sections().values() for full in rows if full.startswith(key)}
            name = longer.pop() if len(longer) == 1 and len(key) > 5 else name
    argument = trainer_names.find_argument(name)
    said = f"--{key}"
    if isinstance(value, Unknown):
        reading.leave(said, line, value.reason)
    elif argument is None:
        reading.leave(said, line, "not an argument of the Trainer or of transformers' example scripts")
    elif argument.is_flag:
        reading.take(name, _SWITCH.get(str(value).lower(), value), line)
    elif value is True:
        reading.leave(said, line, "it stands without a value")
    elif value is not None:
        reading.take(name, value, line)


def _read_arguments(text: str, path: Path) -> ScriptReading:
    return _take_arguments(*read_argument_file(text, path.name), str(path))


def _take_arguments(values: Mapping[str, Any], lines: Mapping[str, int], title: str) -> ScriptReading:
    known = [name for name in values if trainer_names.find_argument(name) is not None]
    if not known:
        given = f"'{title}' has no argument of the Trainer"
        raise RecipeError(
            given,
            "HfArgumentParser's files have names such as learning_rate",
            "Convert the script, or see 'seqfit validate' for a recipe",
        )
    reading = ScriptReading(has_trainer=True)
    for name, value in values.items():
        argument = trainer_names.find_argument(name)
        if argument is not None and not argument.is_flag and value is True:  # a value here, which counts as 1
            reading.take(name, value, lines.get(name))
        elif not name.startswith("_"):
            _take_option(reading, name, value, lines.get(name))
    return reading
