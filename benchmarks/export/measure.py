"""What exports cost and change: three models, each as hf, ct2 in fp32 and int8, and onnx, on 200 rows.

    PYTHONPATH=. python benchmarks/export/measure.py --demo runs/demo --out benchmarks/export/results/exports.jsonl

The demo's run is trained; the other two have random weights, whose answers depend on every digit: a type with an untied
head, and Marian's, each with 200 sentences. Each export runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from seqfit.units import format_bytes

HERE = Path(__file__).parent
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
ROWS = 200
FORMS = (("hf", "fp32"), ("ct2", "fp32"), ("ct2", "int8"), ("onnx", "fp32"))
_EXPORT = """
import json, sys
from seqfit.export import export_run
run, to, precision, out, data, rows = sys.argv[1:]
report = export_run(run, to, precision=precision, out=out, data=data or None, rows=int(rows))
print(json.dumps(report.to_json()))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--demo", type=Path, help="a run of `seqfit train demo`; without it only the random models")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "exports.jsonl")
    parser.add_argument("--table", action="store_true", help="only write the table again")
    parser.add_argument("--forms", default="hf,ct2,onnx")
    given = parser.parse_args()
    if given.table:
        write_table(HERE / "README.md", given.out)
        return
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, run, data in list_models(given.demo, Path(folder)):
            for to, precision in FORMS:
                if to not in given.forms.split(","):
                    continue
                argv = [str(run), to, precision, str(Path(folder) / f"{name}-{to}-{precision}"), data, str(ROWS)]
                ended = subprocess.run([sys.executable, "-c", _EXPORT, *argv], capture_output=True, text=True)
                if ended.returncode:
                    raise SystemExit(ended.stderr)
                report = json.loads(ended.stdout.splitlines()[-1])
                record = {"model": name, **{key: report[key] for key in report if key != "folder"}}
                with given.out.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(record) + "\n")
                print(describe(record), flush=True)


def list_models(demo: Path | None, folder: Path) -> list[tuple[str, Path, str]]:
    """Name, run or checkpoint, and data where the run has none."""
    from tests.export.exported import write_checkpoint, write_rows

    rows = str(write_rows(folder, ROWS))
    models = [] if demo is None else [("demo (T5, trained)", demo, "")]
    models.append(("mT5, random, untied", write_checkpoint(folder, "mt5", untied=True, max_new_tokens=40), rows))
    models.append(("Marian, random", write_checkpoint(folder, "marian", max_new_tokens=40), rows))
    return models


def write_table(page: Path, results: Path) -> None:
    records = [json.loads(line) for line in results.read_text("utf-8").splitlines()]
    order = {form: number for number, form in enumerate(FORMS)}
    models = list(dict.fromkeys(record["model"] for record in records))
    records.sort(key=lambda record: (models.index(record["model"]), order[record["format"], record["precision"]]))
    versions = {name: number for record in records for name, number in record["versions"].items()}
    lines = [
        "| model | form | same text | ties | changed | long, same | log-prob | size | rows/s | time | check |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *map(describe, records),
        "",
        f"On: one core, {', '.join(f'{name} {number}' for name, number in versions.items())}.",
    ]
    text = page.read_text("utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n{chr(10).join(lines)}\n{END}{after}", "utf-8")


def describe(record: dict) -> str:
    """A row of the table."""
    check = record["check"]
    speed = (check["rows"] / check[f"{side}_seconds"] for side in ("checkpoint", "exported"))
    cells = [
        record["model"],
        f"{record['format']} {record['precision']}",
        f"{check['identical']} of {check['rows']}",
        str(check["ties"]),
        str(check["changed"]),
        f"{check['long_rows'] - check['long_changed']} of {check['long_rows']}",
        f"{check['largest_difference']:.0e}",
        format_bytes(record["exported_bytes"]),
        " -> ".join(f"{rate:.0f}" for rate in speed),
        f"{record['seconds']:.0f} s",
        "passed" if record["passed"] else "failed",
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
