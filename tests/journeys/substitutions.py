"""The one table of what a journey types instead of what a document says: small models and data for large ones.

A row is a document (a glob), a regular expression and its replacement; rows apply in order, all that match. `{t5}` and
the like stand for files of the journey (conftest's `belongings`). A row that matches nothing any more fails a test, so
the table never says more than it does. What a command must do besides ending with 0 stands below it.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass

from tests.journeys.markdown import Typed

_FEW_STEPS = "train.steps=4 train.batch_examples=8 eval.every_steps=4 eval.limit=4"
_SIX_STEPS = _FEW_STEPS.replace("train.steps=4", "train.steps=6")  # of which a comparison takes three to warm up
# Of runs that are killed in their middle: to go on, a command says the same.
STOPPED_RUN = "train.steps=12 train.batch_examples=8 train.log_every=1 train.snapshot.every_steps=2 eval.limit=4"
_FEW_TRIALS = "--steps 3 --warm-up 1 --repeats 1"


@dataclass(frozen=True)
class Substitution:
    """In these documents, this becomes that."""

    documents: str
    pattern: str
    replacement: str


SUBSTITUTIONS = (
    # Names that stand for whatever the reader has.
    Substitution("docs/cluster.md", r"RECIPE \.\.\.", "RECIPE --gpus-per-node 0 --time 10"),
    Substitution("docs/*", r"\bRECIPE\b", "mine.yaml"),
    Substitution("docs/*", r"\bRUN(\.\.\.)?(?= )", "runs/demo"),
    Substitution("docs/profiling.md", r"\bFILE\b", "profile/trace.json.gz"),
    Substitution("README.md", r"\bMINILM\b", "{minilm}"),
    Substitution("README.md", r"\bAG_NEWS\b", "{ag_news}"),
    Substitution("docs/studies.md", r"study (classic-strategies|t5-memory)( --full)?", "study my.yaml"),
    # Models and data of the Hub.
    Substitution("docs/planning.md", r"google/flan-t5-large", "{t5}"),
    Substitution("docs/planning.md", r"--all-gpus", "--all-gpus --batch 2 --source-tokens 32 --target-tokens 8"),
    Substitution("docs/planning.md", r'--gpu t4 --gpu "2x RTX 3090"', '--batch 2 --gpu t4 --gpu "2x RTX 3090"'),
    Substitution("*", r"google/mt5-small", "{t5}"),
    Substitution(
        "docs/*",
        r"(?<= )t5-gsm8k\b",
        f"t5-gsm8k model.path={{t5}} data.path={{gsm8k}} {_FEW_STEPS} task.max_target_tokens=32",
    ),
    Substitution(
        "docs/trimming.md",
        r"train mt5-squad-es",
        f"train mt5-squad-es model.path={{t5}} data.path={{squad_es}} {_FEW_STEPS}",
    ),
    Substitution(
        "docs/trimming.md", r"--recipe mt5-squad-es", "--recipe mt5-squad-es model.path={t5} data.path={squad_es}"
    ),
    Substitution("docs/trimming.md", r" mt5-es --recipe", " mt5-es-10000 --recipe"),  # mt5-es is there by then
    Substitution(
        "docs/*",
        r"(compare|submit) bert-agnews",
        rf"\1 bert-agnews model.path={{minilm}} data.path={{ag_news}} {_SIX_STEPS}",
    ),
    Substitution("docs/coming-from-trainer.md", r"train t5-summarize(.*) --out \S+", r"show t5-summarize\1"),
    Substitution("docs/serving.md", r" --port 8000", ""),  # another program may have it
    # The reader's own script.
    Substitution("docs/profiling.md", r"^from torch", "exec(open('{trainer_script}').read())\nfrom torch"),
    # Long runs.
    Substitution("docs/reliability.md", r"train demo\b", f"train demo {STOPPED_RUN}"),
    Substitution("docs/strategies.md", r"train demo\b", f"train demo {_FEW_STEPS}"),
    Substitution("README.md", r"train --data my.csv", f"train {_FEW_STEPS} --data my.csv"),
    Substitution("docs/guide.md", r"train --data my.csv", f"train {_FEW_STEPS} --data my.csv"),
    Substitution("docs/guide.md", r"train (my.csv|answers.yaml)", rf"train \1 {_FEW_STEPS}"),
    Substitution("docs/guide.md", r"train\(data=frame", f'train(overrides="{_FEW_STEPS}".split(), data=frame'),
    Substitution("README.md", r'"train.steps=100"', '"train.steps=10", "eval.limit=8"'),
    Substitution("docs/parallel.md", r"scale demo", "scale demo train.batch_examples=8 --steps 2 --repeats 1"),
    Substitution("docs/parallel.md", r"scale mine.yaml --nproc", "scale mine.yaml --steps 2 --repeats 1 --nproc"),
    Substitution("README.md", r"--budget 13m", f"--budget 13m {_FEW_TRIALS}"),
    Substitution("README.md", r"compare bert-agnews", f"compare bert-agnews {_FEW_STEPS}"),
    Substitution("README.md", r"train: 1000, validation: 100, test: 100", "train: 60, validation: 10, test: 10"),
    Substitution("docs/comparing.md", r"(compare .*(--strategies|--vary) \S+)", rf"\1 {_FEW_TRIALS}"),
    Substitution(
        "docs/comparing.md", r"--strategies classic", "--strategies baseline,accumulation"
    ),  # README's are six
    Substitution("docs/comparing.md", r"--matrix matrix.yaml --repeats 8", f"--matrix matrix.yaml {_FEW_TRIALS}"),
    Substitution("docs/comparing.md", r"repeats=5, steps=40", "repeats=1, steps=3, warm_up=1"),
    # A cluster of two small machines without GPUs.
    Substitution("docs/*", r"--gpus-per-node [1-9]", "--gpus-per-node 0"),
    Substitution("docs/cluster.md", r"--array sweep.txt", "--array sweep.txt --gpus-per-node 0"),
    Substitution("docs/*", r"--partition gpu", "--partition main"),
    Substitution("docs/comparing.md", r"--compare classic --time", "--compare classic --gpus-per-node 0 --time"),
    Substitution(
        "docs/cluster.md", r"train.steps=4 (.*--out runs/gsm8k)", r"train.steps=4000 \1"
    ),  # to be followed and cancelled
    Substitution("docs/parallel.md", r"(--nproc|--ntasks) 4\b", r"\1 2"),
    Substitution("docs/parallel.md", r"--nproc 1,2,4", "--nproc 1,2"),
    # Runs of the same name would meet in one folder.
    Substitution("docs/parallel.md", r"(torchrun .*)--out runs/mine", r"\1--out runs/by-torchrun"),
    Substitution("docs/parallel.md", r"(srun .*)--out runs/mine", r"\1--out runs/by-srun"),
    # What is not among the tests' packages.
    Substitution("docs/tracking.md", r"--to mlflow", "--to tensorboard"),
    # The packages that seqfit depends on are those of the tests.
    Substitution("README.md", r"pip install", "pip install --no-deps"),
)


@dataclass(frozen=True)
class Expected:
    """What a command has to do, where that is more than to end with 0."""

    documents: str
    pattern: str  # of the command, substituted
    prints: str | None = None  # a pattern
    leaves: tuple[str, ...] = ()  # files, as globs
    exit_code: int = 0
    until: str | None = None  # it goes on until Ctrl-C, which comes as soon as this is printed


EXPECTED = (
    Expected("README.md", r"^seqfit train demo", prints=r"step 250/250", leaves=("runs/demo/summary.html",)),
    Expected(
        "README.md",
        r"^seqfit evaluate",
        prints=r"em +│ +1?\d\.\d+ │ +([89]\d\.\d+|100\.0)",
        leaves=("runs/demo/evaluation-test.json",),
    ),
    Expected("README.md", r"^seqfit predict", prints=r"(?m)^Maseru$"),
    Expected("README.md", r"^seqfit serve", until=r"API: http://127\.0\.0\.1:\d+/docs"),
    Expected("README.md", r"^seqfit compare", prints=r"recompute", leaves=("comparisons/*/report.html",)),
    Expected("README.md", r"^seqfit data", prints=r"to train: +seqfit train --data my.csv --task qa"),
    Expected("README.md", r"^seqfit train .*--data", prints=r"guessed: ", leaves=("runs/my-*/summary.html",)),
    Expected("README.md", r"^seqfit validate", prints=r"(?m)^ok: "),
    Expected("README.md", r"^seqfit ls", prints=r"bert-agnews"),
    Expected("README.md", r"^import seqfit", prints=r"\['"),
    Expected("docs/coming-from-trainer.md", r"--fp16", prints=r"All of it together: train.batch", exit_code=2),
    Expected(
        "docs/coming-from-trainer.md",
        r"seqfit convert",
        prints=r"train.batch_examples: 64",
        leaves=("dialogsum.yaml",),
    ),
    Expected("docs/coming-from-trainer.md", r"t5-summarize", prints=r"micro_batch_examples: 8"),
    Expected("docs/generation.md", r"--n-best 3", prints=r"(?m)(^[01]\.\d{3}\t.*\n){3}"),
    Expected("docs/generation.md", r"^from seqfit.evaluation", prints=r"-\d+\.\d+ 0\.\d+"),
    Expected("docs/cluster.md", r"--dry-run", prints=r"#SBATCH"),
    Expected("docs/cluster.md", r"logs runs.*--follow", until=r"step \d+/"),
    Expected("docs/cluster.md", r"logs comparisons", until=r"PENDING|baseline"),  # other jobs may have the nodes
    Expected("docs/comparing.md", r"^seqfit compare", prints=r"baseline"),
    Expected("docs/comparing.md", r"^seqfit audit runs", prints=r"(?m)^Fair, as far as can be read"),
    Expected("docs/comparing.md", r"^seqfit audit comparisons", prints=r"as meant", leaves=("audit.html",)),
    Expected("docs/comparing.md", r"^seqfit audit train", prints=r"nothing unequal besides precision"),
    Expected("docs/comparing.md", r"^seqfit audit .*--json", prints=r'"is_fair": false'),
    Expected("docs/comparing.md", r"^seqfit audit published", prints=r"accumulation is inverted"),
    Expected("docs/parallel.md", r"zero3", prints=r"deepspeed", exit_code=2),
    Expected("docs/parallel.md", r"^(seqfit|torchrun|srun|accelerate).* train ((?!zero3).)*$", prints=r"step 4/4"),
    Expected("docs/parallel.md", r"--out report", leaves=("report/scaling.json", "report/scaling.md")),
    Expected("docs/export.md", r"--to onnx", leaves=("runs/demo/export/onnx/decoder_with_past_model.onnx",)),
    Expected("docs/export.md", r"--to ct2$", leaves=("runs/demo/export/ct2/model.bin",)),
    Expected("docs/export.md", r"--dry-run", prints=r"dry run: ada/qa would get these"),
    Expected("docs/evaluation.md", r"evaluate runs/demo", prints=r"95% CI"),
    Expected("docs/evaluation.md", r"evaluate runs/a runs/b", prints=r"the difference is not significant: f1 0\.00"),
    Expected("docs/evaluation.md", r"train .*my_metrics", prints=r"fuzzy_match", leaves=("runs/fuzzy/summary.html",)),
    Expected("docs/evaluation.md", r"train .*prep.py", prints=r"step 4/4"),
    Expected("docs/guide.md", r"^seqfit data my.csv$", prints=r"to train: +seqfit train --data my.csv --task qa"),
    Expected("docs/guide.md", r"--html", prints=r"source tokens", leaves=("my.html",)),
    Expected("docs/guide.md", r"--write-recipe", leaves=("first.yaml",)),
    Expected("docs/guide.md", r"--try", prints=r"human baseline on 0 validation rows"),  # nobody answers
    Expected("docs/guide.md", r"^seqfit train .*my.csv", prints=r"guessed: ", leaves=("runs/my-*/summary.html",)),
    Expected("docs/guide.md", r"^seqfit train my.csv", prints=r"(?s)chosen: google/flan-t5-small.*step 4/4"),
    Expected("docs/guide.md", r"^seqfit plan my.csv", prints=r"(?s)chosen: google/flan-t5-small.*(?m:^Fits: )"),
    Expected("docs/guide.md", r"^seqfit new", prints=r"nothing is asked; options: ", leaves=("answers.yaml",)),
    Expected("docs/guide.md", r"^seqfit train answers", prints=r"step 4/4", leaves=("runs/answers/summary.html",)),
    Expected("docs/guide.md", r"^seqfit evaluate", prints=r"em", leaves=("runs/answers/evaluation-test.json",)),
    Expected("docs/guide.md", r"^seqfit predict", prints=r"\S"),
    Expected("docs/guide.md", r"^import pandas", prints=r"guessed: .*(.*\n)*.*step 4/4"),
    Expected("docs/planning.md", r"--html", leaves=("plan.html",)),
    Expected("docs/planning.md", r"--gpu", prints=r"GiB|MiB"),
    Expected("docs/planning.md", r"--price", prints=r"(?m)^Fits: .* for 50,000 rows \(3 epochs\)\. Cost: \d"),
    Expected("docs/planning.md", r"--compare", prints=r"ratio: measured over predicted"),
    Expected("docs/planning.md", r"calibration export", leaves=("calibration.yaml",)),
    Expected("docs/planning.md", r"calibration import", prints=r"RTX 3090: 1 run"),
    Expected("docs/planning.md", r"calibration remove", prints=r"imported calibration removed"),
    Expected("docs/planning.md", r"--all-gpus", prints=r"(?s)B200.*GTX 1080 Ti"),
    Expected("docs/profiling.md", r"^seqfit profile", prints=r"expected gain|no findings"),
    Expected("docs/profiling.md", r"^exec", leaves=("trace.json.gz",)),
    Expected("docs/reliability.md", r"--resume", prints=r"step \d+/\d+"),
    Expected("docs/reports.md", r"--figures", leaves=("figures/*.svg", "figures/*.png", "figures/*.pdf")),
    Expected("docs/reports.md", r"--watch", until=r"http://127\.0\.0\.1:\d+"),
    Expected("docs/reports.md", r"report runs/demo +#", leaves=("runs/demo/summary.html",)),
    Expected("docs/serving.md", r"^seqfit serve", until=r"API: http://127\.0\.0\.1:\d+/docs"),
    Expected("docs/strategies.md", r"^seqfit train", prints=r"step 4/4"),
    Expected("docs/tracking.md", r"tensorboard", leaves=("tensorboard/seqfit/*/events*",)),
    Expected("docs/trimming.md", r"^seqfit trim", leaves=("mt5-es/config.json",)),
)

NEEDS_SLURM = r"^srun |^seqfit (submit|status|logs|cancel)\b"
NEEDS_BROWSER = r"--figures"


def substitute(typed: Typed, belongings: dict[str, str]) -> str:
    """What is typed instead."""
    text = typed.text
    for row in SUBSTITUTIONS:
        if fnmatch.fnmatch(typed.document, row.documents):
            text = re.sub(row.pattern, row.replacement, text)
    for name, path in belongings.items():
        text = text.replace(f"{{{name}}}", path)
    return text


def find_expected(typed: Typed, text: str) -> list[Expected]:
    """The rows that say something about it."""
    return [row for row in EXPECTED if fnmatch.fnmatch(typed.document, row.documents) and re.search(row.pattern, text)]
