"""Do lm-evaluation-harness and peft take a run's checkpoint unchanged, and an exported folder with transformers 4.5x?

    python benchmarks/handover/measure.py RUN --python ENV/bin/python --folder RUN/checkpoint

RUN is a run of `seqfit train demo`. ENV is an environment of its own, without seqfit: torch, transformers, peft,
lm-eval, sentencepiece, protobuf. The harness answers the validation rows of the local task demo_qa.yaml; its texts are
compared with those that seqfit generates here. Then peft adds adapters to the same folder and trains them briefly.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

ROWS = 200
HERE = Path(__file__).parent
_PEFT = """
import json, sys
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1]).eval()
rows = [json.loads(line) for line in open(sys.argv[2])][:8]
batch = tokenizer([row["source"] for row in rows], return_tensors="pt", padding=True)
inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
labels = tokenizer([row["target"] for row in rows], return_tensors="pt", padding=True).input_ids
labels[labels == tokenizer.pad_token_id] = -100
with torch.no_grad():
    before = model(**inputs, labels=labels)
adapted = get_peft_model(model, LoraConfig(task_type="SEQ_2_SEQ_LM", r=4, target_modules=["q", "v"]))
with torch.no_grad():
    start = adapted(**inputs, labels=labels)
optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=1e-3)
for _ in range(5):
    loss = adapted(**inputs, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(json.dumps({
    "logits_apart": float((before.logits - start.logits).abs().max()),
    "loss": [float(start.loss), float(adapted(**inputs, labels=labels).loss)],
}))
"""
_VERSIONS = (
    "import torch, transformers, peft, lm_eval; print(transformers.__version__, peft.__version__, lm_eval.__version__)"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--python", help="of an environment with lm-eval and peft")
    parser.add_argument("--folder", type=Path, help="RUN/checkpoint or an exported folder")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "handover.jsonl")
    parser.add_argument("--table", action="store_true", help="only write the table again")
    given = parser.parse_args()
    if given.table:
        write_table(HERE / "README.md", given.out)
        return
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        own = write_rows(given.run, work / "rows.jsonl")
        versions = run(given.python, ["-c", _VERSIONS], work).split()[-3:]
        score, texts = evaluate(given.python, given.folder.resolve(), work)
        adapted = json.loads(
            run(given.python, ["-c", _PEFT, str(given.folder.resolve()), "rows.jsonl"], work).splitlines()[-1]
        )
    record = {
        "folder": given.folder.name,
        "transformers": versions[0],
        "peft": versions[1],
        "lm_eval": versions[2],
        "rows": len(own),
        "same_texts": sum(one["text"].strip() == other.strip() for one, other in zip(own, texts, strict=True)),
        "harness_exact_match": score,
        "seqfit_exact_match": sum(row["text"] == row["target"] for row in own) / len(own),
        **adapted,
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(record) + "\n")
    print(json.dumps(record, indent=2))


def write_table(page: Path, results: Path) -> None:
    lines = [
        "| folder | transformers | lm-eval | peft | same texts | match: harness | seqfit | peft: logits | loss |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for record in map(json.loads, results.read_text("utf-8").splitlines()):
        cells = [record[name] for name in ("folder", "transformers", "lm_eval", "peft")]
        cells += [f"{record['same_texts']} of {record['rows']}"]
        cells += [f"{100 * record[f'{side}_exact_match']:.1f}%" for side in ("harness", "seqfit")]
        cells += [f"{record['logits_apart']:g}", " -> ".join(f"{loss:.4f}" for loss in record["loss"])]
        lines.append("| " + " | ".join(cells) + " |")
    before, _, rest = page.read_text("utf-8").partition("<!-- table: begin -->")
    after = rest.partition("<!-- table: end -->")[2]
    text = "\n".join(["<!-- table: begin -->", *lines, "<!-- table: end -->"])
    page.write_text(before + text + after, "utf-8")


def write_rows(path: Path, file: Path) -> list[dict[str, str]]:
    """Source, target and seqfit's own text of each validation row."""
    from seqfit.data import prepare_data
    from seqfit.evaluation.predictor import build_generator
    from seqfit.evaluation.scoring import spread_over_rows
    from seqfit.generation.texts import generate_split
    from seqfit.model import Checkpoint, build_text_encoder
    from seqfit.rundir import Run
    from seqfit.strategy import Strategy

    found = Run(path)
    checkpoint = Checkpoint.load(found.checkpoint)
    encoder = build_text_encoder(checkpoint.tokenizer)
    split = prepare_data(found.recipe, checkpoint.tokenizer, ("validation",), encoder=encoder).splits["validation"]
    numbers = spread_over_rows(len(split), ROWS)
    texts = generate_split(build_generator(checkpoint, Strategy(), [], 8192), split, numbers).texts
    rows = []
    for number, text in zip(numbers.tolist(), texts, strict=True):
        example = split.text(number)
        rows.append({"source": example.source, "target": example.target, "text": text})
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return rows


def evaluate(python: str, folder: Path, work: Path) -> tuple[float, list[str]]:
    """The harness's score and texts."""
    task = (HERE / "demo_qa.yaml").read_text("utf-8").replace("rows.jsonl", str(work / "rows.jsonl"))
    (work / "tasks").mkdir()
    (work / "tasks" / "demo_qa.yaml").write_text(task, "utf-8")
    argv = ["-m", "lm_eval", "--model", "hf", "--model_args", f"pretrained={folder},backend=seq2seq,dtype=float32"]
    argv += ["--tasks", "demo_qa", "--include_path", str(work / "tasks"), "--batch_size", "16", "--device", "cpu"]
    run(python, [*argv, "--output_path", str(work / "out"), "--log_samples"], work)
    (results,) = (work / "out").rglob("results_*.json")
    (samples,) = (work / "out").rglob("samples_*.jsonl")
    lines = sorted(map(json.loads, samples.read_text("utf-8").splitlines()), key=lambda line: line["doc_id"])
    score = json.loads(results.read_text("utf-8"))["results"]["demo_qa"]["exact_match,none"]
    return float(score), [str(line["resps"][0][0]) for line in lines]


def run(python: str, argv: list[str], folder: Path) -> str:
    hidden = ("PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(folder / "cache")}
    ended = subprocess.run([python, *argv], cwd=folder, env=environment, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(ended.stderr[-3000:])
    return ended.stdout


if __name__ == "__main__":
    main()
