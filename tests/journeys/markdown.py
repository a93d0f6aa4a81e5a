"""What a document tells its reader to type: the commands and the Python snippets of its fenced and indented blocks.

    ```console                                  Typed(document, line 12, "command", "seqfit train demo --out runs/demo")
    $ seqfit train demo --out runs/demo
    step 10/250 ...                             (what is printed is left out)
    ```

In a console block a command follows `$ `; in any other block without a language it begins with a program's name. A
backslash at the end of a line joins the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = ("seqfit", "pip", "make", "python", "torchrun", "srun", "accelerate", "git", "sbatch")
_SHELLS = ("", "console", "sh", "bash", "shell")
_INDENT = "    "


@dataclass(frozen=True)
class Block:
    """Lines of code and where they begin."""

    line: int  # of the first line of code, from 1
    language: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Typed:
    """One command, or one snippet."""

    document: str
    line: int
    kind: str  # command, python
    text: str

    @property
    def title(self) -> str:
        """For a test's name."""
        return f"{self.document}:{self.line}: {self.text.splitlines()[0][:60]}"


def read_blocks(text: str) -> Iterator[Block]:
    """Fenced blocks, and indented ones that follow an empty line, a heading or another one."""
    fence: tuple[int, str] | None = None
    inside: list[str] = []
    first = 0
    before = ""
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if fence is not None:
            if line.startswith("```"):
                yield Block(fence[0], fence[1], tuple(inside))
                fence, inside = None, []
            else:
                inside.append(line)
        elif line.startswith(_INDENT) and (inside or not before.strip() or before.startswith("#")):
            first = first if inside else number
            inside.append(line.removeprefix(_INDENT))
        else:
            if inside:
                yield Block(first, "", tuple(inside))
                inside = []
            if line.startswith("```"):
                fence = (number + 1, line.removeprefix("```").strip())
        before = line


def read_typed(path: Path, name: str) -> list[Typed]:
    """All that the document lets one type, in its order."""
    found: list[Typed] = []
    for block in read_blocks(path.read_text("utf-8")):
        if block.language == "python":
            found.append(Typed(name, block.line, "python", "\n".join(block.lines)))
        elif block.language in _SHELLS:
            found += _read_commands(block, name)
    return found


def read_documents() -> list[Typed]:
    """All that README.md and docs/ let one type."""
    return [typed for path in DOCUMENTS for typed in read_typed(path, str(path.relative_to(ROOT)))]


def _read_commands(block: Block, name: str) -> Iterator[Typed]:
    lines = iter(enumerate(block.lines, start=block.line))
    for number, line in lines:
        text = line.removeprefix("$ ")
        is_prompted = text != line
        if block.language == "console" and not is_prompted:
            continue  # what a command prints
        if not is_prompted and not re.match(rf"({'|'.join(PROGRAMS)}) ", text):
            continue
        while text.endswith("\\"):
            _, more = next(lines)
            text = f"{text[:-1].rstrip()} {more.strip()}"
        yield Typed(name, number, "command", text)
