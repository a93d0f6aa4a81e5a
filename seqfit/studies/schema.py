"""The schema of a study: one YAML file, frozen and checked like a recipe.

    title, question    what is asked
    published          the account: its source described, and its figures, each with a unit
    quantities         the columns: time, memory, accuracy, ...
    candidates         the rows: how each ran there (`script`), and what trains it here (`strategy`)
    prediction         the hardware, model and lengths that the published runs had, and what is assumed of them
    quick, full        what is measured: on any machine in minutes; with the real model and data on a GPU
    shows              the pictures, by quantity

Rows that differ in `script` are predicted as transformers' Trainer ran them; a row without one is only published.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from seqfit.recipe import schema


class PublishedAccount(schema.RecipePart):
    source: str = Field(description="The account in a sentence: what it is, of when, on what hardware.")
    figures: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Candidate -> quantity -> figure with its unit, such as 7.0 GB, or OOM."
    )
    conditions: dict[str, Any] = Field(
        default_factory=dict,
        description="What all rows share, for the audit: arguments, data (name, train, test), gpus.",
    )
    facts: dict[str, Any] = Field(default_factory=dict, description="What else it says; the study's own text uses it.")


class StudyCandidate(schema.RecipePart):
    """A row of the study."""

    about: str = Field("", description="What it does, in a few words.")
    script: dict[str, Any] | None = Field(
        None, description="How the published script ran: settings on top of prediction.script; default: not predicted."
    )
    arguments: dict[str, Any] = Field(
        default_factory=dict, description="The published arguments of this row, word for word; the audit compares them."
    )
    strategy: list[str] | None = Field(
        None, description="What trains it here, as in seqfit compare: [fp16, recompute]; default: not measured."
    )


class AssumedText(schema.RecipePart):
    """How long the texts were: shares of a hundred from short to long, or a log-normal distribution."""

    quantiles: list[schema.Count] | None = Field(
        None, min_length=2, description="Tokens of the shortest, ..., the longest text, evenly spaced by rank."
    )
    mean: float | None = Field(None, gt=0, description="Mean of a log-normal distribution, in tokens.")
    sigma: float | None = Field(None, gt=0, description="Standard deviation of the lengths' logarithm.")
    longest: schema.Count | None = Field(
        None, description="Tokens of the longest text; default: as the distribution has it."
    )
    target: schema.CountOrZero = Field(0, description="Target tokens of every row; 0 for a classifier.")

    @model_validator(mode="after")
    def _is_one_of_them(self) -> AssumedText:
        if (self.quantiles is None) == (self.mean is None or self.sigma is None):
            raise ValueError("lengths are either quantiles, or mean and sigma; give one of them")
        return self


class StudyPrediction(schema.RecipePart):
    """What the planner predicts: the published runs, on the hardware of the account."""

    gpu: str = Field(description="The account's GPU as in seqfit plan --gpu, or the one that is assumed.")
    gpus: schema.Count = Field(1, description="How many of them.")
    recipe: str | dict[str, Any] = Field(description="Recipe with the published model and task; no data is read.")
    overrides: list[str] = Field(default_factory=list, description="Changes to it.")
    script: dict[str, Any] = Field(default_factory=dict, description="Settings that all published rows share.")
    lengths: AssumedText = Field(description="Assumed lengths of the rows.")
    rows: schema.Count = Field(description="Training rows.")
    epochs: schema.Positive = Field(description="Epochs.")
    draws: schema.Count = Field(3, description="Random orders of the rows; the mean counts.")
    torch_version: str | None = Field(None, description="torch of that time, such as 2.0; default: the present one.")
    context_mib: schema.Count | None = Field(
        None, description="CUDA context of each GPU in MiB; default: the planner's own."
    )
    assumptions: list[str] = Field(default_factory=list, description="What the account does not say, each once.")


class StudyRun(schema.RecipePart):
    """What is measured: one recipe, trained with each candidate's strategy."""

    recipe: str | dict[str, Any] = Field(description="Library recipe, file or the recipe itself.")
    overrides: list[str] = Field(default_factory=list, description="Changes to it.")
    data: str | None = Field(
        None, description="Data set: a path in the folder of data (SEQFIT_DATA, ../shared/data); sets data.path."
    )
    package: str | None = Field(None, description="Python package whose folder 'model' is the model; sets model.path.")
    candidates: dict[str, list[str]] | None = Field(
        None, description="Other strategies than the candidates' own, by candidate; default: their own."
    )
    steps: schema.Count = Field(15, description="Steps of every trial.")
    repeats: schema.Count = Field(1, description="Trials of every candidate.")
    warm_up: schema.CountOrZero = Field(3, description="Steps excluded from timing.")
    about: str = Field("", description="Model and data in a few words, for the report.")
    otherwise: StudyRun | None = Field(None, description="Where data or package are not there: what runs instead.")


class StudySpec(schema.RecipePart):
    """A study."""

    title: str = Field(description="A line.")
    question: str = Field(description="What is asked, as one question.")
    quantities: dict[str, str] = Field(
        min_length=1,
        description="Column -> what is measured for it: step_seconds, memory, accuracy, evaluation_loss, ...; '' is a "
        "column that is only published.",
    )
    candidates: dict[str, StudyCandidate] = Field(min_length=1, description="The rows, by their published names.")
    baseline: str = Field(description="The candidate that others are compared with.")
    published: PublishedAccount = Field(description="The account and its figures.")
    prediction: StudyPrediction | None = Field(None, description="What is predicted; default: nothing.")
    quick: StudyRun | None = Field(None, description="What is measured on any machine; default: nothing.")
    full: StudyRun | None = Field(None, description="What is measured with --full; default: nothing.")
    shows: list[str] = Field(default_factory=list, description="Quantities that get a picture; default: all.")


StudyMode = Literal["quick", "full"]
