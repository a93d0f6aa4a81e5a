"""The schema of a recipe: what is to be learnt, and nothing about how.

A recipe is frozen: what is derived from it (a schedule, the splits, the strategy) is a new object with a name of
its own. Every field has a sentence, which is its help. `None` means "not given".

`strategy` stays as the user wrote it here; `seqfit.strategy` gives it its meaning, for HOW builds on WHAT.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

Fraction = Annotated[float, Field(ge=0, lt=1)]
LocalPath = Annotated[str, AfterValidator(os.path.expanduser)]
SPLITS = ("train", "validation", "test")
HEAD_TASKS = ("classify", "regression", "multilabel")  # what an encoder with a head can do
LABEL_JOINT = ", "  # multilabel: what stands between the labels of one row in a text
NO_LABEL = "none"  # multilabel: the text of a row without labels, unless task.missing_target names another
DEFAULT_ALLOW = ["bf16"]
DEFAULT_EPOCHS = 3.0


class RecipePart(BaseModel):
    """Frozen, and unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LoraRecipe(RecipePart):
    """Low-rank adapters beside the frozen weights (PEFT)."""

    rank: Annotated[int, Field(ge=1)] = Field(16, description="Rank of the two small matrices of each adapter.")
    alpha: Annotated[float, Field(gt=0)] | None = Field(
        None, description="An adapter's output is scaled by alpha / rank; default: twice the rank."
    )
    dropout: Fraction = Field(0.0, description="Dropout before an adapter.")
    targets: list[str] | None = Field(
        None, description="Names of the linear layers that get one; default: all in attention and feed-forward."
    )


class ModelRecipe(RecipePart):
    """The model to fine-tune."""

    name: str | None = Field(None, description="Name on the Hub, such as google/mt5-small.")
    path: LocalPath | None = Field(
        None, description="A local folder in Hugging Face layout; taken instead of the name."
    )
    tokenizer: LocalPath | None = Field(
        None, description="Folder or Hub name of the tokenizer; default: the model's own."
    )
    kind: Literal["text-to-text", "classifier"] = Field(
        "text-to-text",
        description="text-to-text generates the answer; classifier puts a head on an encoder (BERT).",
    )
    weights: Literal["pretrained", "random"] = Field(
        "pretrained", description="random starts from the model's config alone, without its weights."
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None,
        description="Dropout rate; default: what the model's config says. 0 also keeps all layers where the config "
        "drops some (layerdrop).",
    )
    untested: bool = Field(
        False,
        description="Train an encoder-decoder of a type that seqfit is not tested with, padded and as transformers "
        "runs it.",
    )
    lora: LoraRecipe | None = Field(None, description="Train low-rank adapters instead of the weights.")
    freeze: list[Literal["embeddings", "encoder"]] = Field(
        default_factory=list, description="Parts whose weights stay as they are."
    )
    trim_vocabulary: Literal["data", "language"] | Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Keep only the words that the data uses (data), those of its writing systems (language), or the "
        "data's and so many more; lossy, needs allow: [trim].",
    )

    @model_validator(mode="after")
    def _named(self) -> ModelRecipe:
        if self.name is None and self.path is None:
            raise ValueError("neither name nor path is given; set model.name to a Hub name or model.path to a folder")
        return self

    @property
    def location(self) -> str:
        """The folder, or else the Hub name."""
        return self.path or self.name or ""


class TaskRecipe(RecipePart):
    """How a row becomes source and target text, and generated text an answer.

    Templates name columns in braces; `{a.b}` reaches into a nested column; a list is joined by spaces;
    `[[ ... ]]` is left out where a column inside is empty. Of several templates the first whose columns
    the row has is taken.
    """

    name: Literal[
        "qa", "summarize", "translate", "classify", "math", "generate", "regression", "multilabel", "multiple-choice"
    ] = Field(description="The kind of task; generate is any text from any text.")
    prefix: str = Field("", description="Put before every source text, such as 'summarize: '.")
    source: str | list[str] = Field(description="Template of the source text, or several to choose from.")
    label_columns: list[str] | None = Field(
        None,
        description="multilabel: columns named after their label that hold 1, true or yes where it applies and 0, "
        "false or no where not; instead of target.",
    )
    target: str | list[str] = Field(
        "", validate_default=True, description="Template of the target text, or several to choose from."
    )
    references: list[str] | None = Field(
        None,
        description="Templates of the reference answers for scoring (a list column gives several; where it is the "
        "target as well, the first is learnt); default: target.",
    )
    labels: list[str] | dict[str, list[str]] | None = Field(
        None,
        description="classify, multilabel: the label words, each with the values that stand for it in the data if they "
        "differ; multilabel takes those of label_columns where there are none.",
    )
    label_separator: str | None = Field(
        None, description="multilabel: what stands between the labels where the target is one text, such as ','."
    )
    annotations: Literal["majority", "mean"] | None = Field(
        None,
        description="The target is a list with one entry per annotator: majority takes the most frequent one "
        "(classify, multiple-choice; of a tie the one that stands first in the list), mean the average (regression).",
    )
    choices: str | list[str] | None = Field(
        None,
        description="multiple-choice: template of a list column, or one template per choice (empty ones are left out); "
        "target is then the number, the letter or the text of the right one.",
    )
    choice_base: Literal[0, 1, "a", "text"] | None = Field(
        None,
        description="multiple-choice: how the target names the right choice: 0 or 1, by its number, counted from "
        "there; a, by its letter; text, by its text; default: by letter or text, where only one choice can be meant.",
    )
    missing_target: str | None = Field(
        None,
        description="The target of rows that have none; default: they are left out and counted. multilabel: the word "
        "for a row without labels; default: none.",
    )
    answer_after: str | None = Field(
        None,
        description="The answer is what follows the last of these in a text, such as ': ' where the target is "
        "'{subject}: {answer}'; default: the whole text.",
    )
    no_answer: str = Field("unanswerable", description="qa: the target where a question has no answer.")
    language: str | None = Field(
        None, description="Language of the answers; decides normalisation in scoring (en, es; default: en's)."
    )
    source_language: str | None = Field(
        None,
        description="NLLB, M2M100, mBART, PLBart: the tokenizer's code of the sources' language, such as eng_Latn, or "
        "the column that holds it in each row, '{lang}'.",
    )
    target_language: str | None = Field(
        None,
        description="The same of the targets' language; generated text begins with it as the model means it.",
    )
    max_source_tokens: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Longer sources are cut; default: not cut (T5 has no fixed positions)."
    )
    max_target_tokens: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Longer targets are cut in training; default: not cut."
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
        return (self.missing_target or NO_LABEL) if self.name == "multilabel" else None

    @property
    def label_values(self) -> dict[str, list[str]]:
        """Label word -> the values that stand for it in the data, itself included."""
        if self.labels is None:
            return {column: [column] for column in self.label_columns or ()}
        if isinstance(self.labels, list):
            return {word: [word] for word in self.labels}
        return {word: list(dict.fromkeys([word, *values])) for word, values in self.labels.items()}


class SourceRecipe(RecipePart):
    """Where rows come from: a Hub data set, or a file or folder."""

    label: str | None = Field(None, description="Name in reports; default: the file's or data set's name.")
    hub: str | None = Field(None, description="Data set on the Hub, such as knkarthick/dialogsum.")
    hub_config: str | None = Field(None, description="Configuration of the Hub data set, such as v1.1.0.")
    path: LocalPath | None = Field(None, description="A file or folder; taken instead of the Hub data set.")
    format: Literal[
        "auto", "json", "jsonl", "csv", "tsv", "psv", "parquet", "excel", "squad", "labelled", "classes", "parallel"
    ] = Field(
        "auto",
        description="File format; auto looks at name and content. psv is separated by |; labelled has one text per "
        "line behind its label; classes is a folder with a file or folder of texts per class.",
    )
    encoding: str = Field("auto", description="Text encoding, such as cp1252; auto: UTF-8, else by content.")
    header: bool | None = Field(None, description="Whether the first line names the columns; default: by its content.")
    columns: list[str] | None = Field(
        None, description="Column names of a file without a header line (or instead of it, with header: true)."
    )
    sheet: str | None = Field(None, description="Excel: name of the sheet; default: the only one that has rows.")
    each: str | None = Field(
        None, description="Column that holds a list of records: each becomes a row, with the others' values repeated."
    )
    turns: str | None = Field(
        None,
        description="Column that holds the turns of a conversation: each reply becomes a row with the columns "
        "'history', what was said before, and 'reply'.",
    )
    files: dict[str, str] = Field(
        default_factory=dict,
        description="Column -> file in the folder whose line n is row n, {source: dev.src, target: dev.ref0}; a * "
        "stands for the split's word, as in *_text.txt.",
    )
    max_bad_rows: Fraction = Field(
        0.05, description="Rows that can't be used are left out and counted; a larger share stops before training."
    )
    splits: dict[Literal["train", "validation", "test"], str] = Field(
        default_factory=dict,
        description="Split -> file in the folder, or split of the Hub data set; default: found by name.",
    )
    split_column: str | None = Field(
        None,
        description="Column that names the split of each row (train, dev, test, ...) where the data is one piece; "
        "other values are train.",
    )
    ids: dict[Literal["train", "validation", "test"], str] = Field(
        default_factory=dict, description="Split -> file in the folder that lists the ids of its rows."
    )
    languages: tuple[str, str] | None = Field(
        None, description="parallel: file endings of the two languages, [en, de]."
    )
    group: str | None = Field(
        None, description="Column whose equal values stay in one split; default: the task's context."
    )
    holdout: dict[Literal["validation", "test"], Fraction] = Field(
        default={"validation": 0.1, "test": 0.1},
        description="Fractions of the rows held out for splits that the data lacks.",
    )
    limit: dict[Literal["train", "validation", "test"], Annotated[int, Field(ge=1)]] = Field(
        default_factory=dict, description="At most so many rows of a split, chosen by seed."
    )
    balance: str | None = Field(None, description="With limit: take equally many rows of each value of this column.")
    weight: Annotated[float, Field(gt=0)] = Field(
        1.0, description="How often an epoch takes each of its rows: 2 is twice, 0.5 is every other epoch."
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
        """How reports name this source."""
        return self.label or (self.path or self.hub or "").rstrip("/").split("/")[-1]


class ScheduleRecipe(RecipePart):
    """How the learning rate moves."""

    name: Literal["constant", "linear", "cosine", "inverse_sqrt", "plateau"] = Field(
        "linear",
        description="Shape after warm-up; plateau halves the rate when the evaluation stops improving.",
    )
    warmup_steps: Annotated[int, Field(ge=0)] = Field(0, description="Steps over which the rate rises from zero.")
    floor: Fraction = Field(0.0, description="linear, cosine: the rate at the end, as a share of the peak.")
    patience: Annotated[int, Field(ge=1)] = Field(
        2, description="plateau: evaluations without improvement before a cut."
    )
    factor: Annotated[float, Field(gt=0, lt=1)] = Field(0.5, description="plateau: what the rate is multiplied by.")


class OptimizerRecipe(RecipePart):
    """Which update rule, with its constants."""

    name: Literal["adamw", "adafactor"] = Field("adamw", description="The update rule.")
    weight_decay: Annotated[float, Field(ge=0)] = Field(
        0.0, description="Decoupled weight decay (not on norms, biases)."
    )
    beta1: Fraction = Field(0.9, description="adamw: decay of the first moment.")
    beta2: Fraction = Field(0.999, description="adamw: decay of the second moment.")
    epsilon: Annotated[float, Field(gt=0)] = Field(1e-8, description="adamw: added to the denominator.")
    relative_step: bool = Field(
        False,
        description="adafactor: false is T5's fine-tuning setting (a constant rate such as 1e-3); true lets the rate "
        "fall as 1/sqrt(step) relative to each weight's size, as in T5's pre-training; the learning rate and schedule "
        "are then not used.",
    )


class SnapshotRecipe(RecipePart):
    """How often all that an exact resume needs is saved."""

    every_steps: Annotated[int, Field(ge=1)] | None = Field(None, description="Steps between two snapshots.")
    every_minutes: Annotated[float, Field(gt=0)] | None = Field(
        10.0, description="Minutes between two snapshots; null: no clock decides."
    )
    keep: Annotated[int, Field(ge=1)] = Field(2, description="The last so many are kept, and that of the best model.")


class TrainRecipe(RecipePart):
    """The budget, the global batch and the update rule."""

    epochs: Annotated[float, Field(gt=0)] | None = Field(None, description="Passes over the training data.")
    steps: Annotated[int, Field(ge=1)] | None = Field(None, description="Optimizer steps; wins over epochs.")
    batch_examples: Annotated[int, Field(ge=1)] | None = Field(None, description="Examples of one step (global batch).")
    batch_tokens: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Instead of batch_examples: source plus target tokens of one step, at most."
    )
    learning_rate: Annotated[float, Field(gt=0)] = Field(3e-4, description="Peak learning rate.")
    optimizer: OptimizerRecipe = Field(default_factory=OptimizerRecipe, description="The update rule.")
    schedule: ScheduleRecipe = Field(default_factory=ScheduleRecipe, description="How the rate moves.")
    label_smoothing: Fraction = Field(
        0.0, description="Share of the target's probability that goes to all words alike."
    )
    z_loss: Annotated[float, Field(ge=0)] = Field(
        0.0, description="Weight of the squared log of the softmax's normaliser, which keeps logits small."
    )
    log_every: Annotated[int, Field(ge=1)] = Field(10, description="Steps between two records of loss and speed.")
    clip_norm: Annotated[float, Field(gt=0)] | None = Field(
        1.0, description="Gradient norm is clipped to this; null: not."
    )
    when_not_finite: Literal["stop", "skip", "higher-precision-retry"] = Field(
        "stop",
        description="What a loss or gradient that is no number does: end the run, leave the update out, or make the "
        "step again in fp32.",
    )
    snapshot: SnapshotRecipe = Field(default_factory=SnapshotRecipe, description="What an exact resume goes on from.")

    @model_validator(mode="after")
    def _one_batch_size(self) -> TrainRecipe:
        if self.batch_examples is not None and self.batch_tokens is not None:
            raise ValueError("batch_examples and batch_tokens are both given; keep one (remove the other with ~)")
        return self

    @property
    def passes(self) -> float:
        """Epochs; three where nothing is said."""
        return self.epochs or DEFAULT_EPOCHS

    @property
    def examples_per_step(self) -> int | None:
        """Global batch in examples (32 where nothing is said), or None where it is counted in tokens."""
        return None if self.batch_tokens is not None else self.batch_examples or 32


class EarlyStopping(RecipePart):
    """When to stop before the budget is used."""

    patience: Annotated[int, Field(ge=1)] = Field(3, description="Evaluations without improvement before stopping.")
    min_delta: Annotated[float, Field(ge=0)] = Field(0.0, description="What counts as an improvement.")


class EvalRecipe(RecipePart):
    """When and how the model is scored."""

    metrics: list[str] | None = Field(None, description="Metrics to compute; default: the task's.")
    best: str | None = Field(
        None, description="Score that chooses the best checkpoint; default: the task's main one, or loss."
    )
    every_steps: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Evaluate every so many steps; default: each epoch."
    )
    limit: Annotated[int, Field(ge=1)] | None = Field(
        None, description="At most so many validation rows during training."
    )
    at_start: bool = Field(False, description="Score the model before the first step, too.")
    early_stopping: EarlyStopping | None = Field(None, description="Stop when the best score no longer improves.")
    beams: Annotated[int, Field(ge=1)] = Field(1, description="Beams of the search; 1 is greedy.")
    max_new_tokens: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Longest generated answer; default: a quarter more than train's and validation's longest target.",
    )
    batch_tokens: Annotated[int, Field(ge=1)] = Field(
        8192, description="Source plus target tokens of one evaluation batch, padding included, at most."
    )


class Recipe(RecipePart):
    """One recipe: model, data, task, training, evaluation."""

    description: str = Field("", description="One line on what it learns.")
    model: ModelRecipe = Field(description="The model to fine-tune.")
    task: TaskRecipe = Field(description="How rows become text.")
    data: SourceRecipe | list[SourceRecipe] = Field(description="Where rows come from; a list mixes weighted sources.")
    train: TrainRecipe = Field(default_factory=TrainRecipe, description="Budget, global batch, update rule.")
    eval: EvalRecipe = Field(default_factory=EvalRecipe, description="When and how the model is scored.")
    strategy: str | dict[str, Any] | None = Field(None, description="How to train: a strategy's name or its fields.")
    allow: list[str] = Field(
        default_factory=lambda: list(DEFAULT_ALLOW),
        description="Lossy strategies that may be used where they help; [] is strict.",
    )
    seed: Annotated[int, Field(ge=0)] = Field(0, description="Seed of everything random.")

    @field_validator("data")
    @classmethod
    def _told_apart(cls, data: SourceRecipe | list[SourceRecipe]) -> SourceRecipe | list[SourceRecipe]:
        if data == []:
            raise ValueError("data is an empty list; give at least one source")
        titles = [source.title for source in data] if isinstance(data, list) else []
        if len(set(titles)) < len(titles):
            raise ValueError(f"two sources are both called {titles}; give each a data.N.label of its own")
        return data

    @property
    def sources(self) -> list[SourceRecipe]:
        """The data as a list, also where there is only one source."""
        return self.data if isinstance(self.data, list) else [self.data]

    @model_validator(mode="after")
    def _agrees(self) -> Recipe:
        if self.model.kind == "classifier" and self.task.name not in HEAD_TASKS:
            raise ValueError(
                f"model.kind is classifier but task.name is {self.task.name}; only {', '.join(HEAD_TASKS)} have a "
                "head of their own. Set model.kind=text-to-text, with a model that generates text, such as "
                "model.name=google/flan-t5-small"
            )
        return self
