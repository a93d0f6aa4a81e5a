"""Which model is taken for data that none is given for, from facts about texts, from files, and from what is here."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.cli.main import main
from seqfit.errors import ModelError
from seqfit.inspection.data import read_given
from seqfit.inspection.model_choice import DeviceMemory, ModelChoice, _estimate_bytes, choose_model, find_device_memory
from seqfit.inspection.text_facts import TextFacts, TextLengths
from seqfit.model_configs import load_known_models

T5 = Path(__file__).parents[2] / "seqfit" / "recipe" / "library" / "demo" / "model"
GIB = 2**30
LAPTOP = find_device_memory(["rtx3060-laptop-6gb"])
CPU = DeviceMemory("this machine's CPU", 16 * GIB, is_cpu=True)
ENGLISH = TextFacts(("en", "en"), "", TextLengths(60, 100, 120), TextLengths(10, 20, 30))
UNKNOWN = replace(ENGLISH, languages=(None, None))
LONG = replace(ENGLISH, source=TextLengths(700, 1500, 2000))


def choose(task: str, facts: TextFacts, device: DeviceMemory = LAPTOP) -> ModelChoice:
    return choose_model(task, facts, device, data="my.csv", name_it=lambda choice: choice.location, may_download=True)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hub cache."""
    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    return folder


def download(cache: Path, name: str, model: Path = T5) -> Path:
    """As the Hub's client leaves it."""
    place = cache / f"models--{name.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("d7d2")
    shutil.copytree(model, place / "snapshots" / "d7d2")
    return place / "snapshots" / "d7d2"


@pytest.mark.parametrize(
    ("task", "facts", "device", "expected"),
    [
        ("qa", ENGLISH, LAPTOP, "google/flan-t5-base"),
        ("qa", ENGLISH, CPU, "google/flan-t5-small"),
        ("qa", UNKNOWN, LAPTOP, "google/mt5-small"),
        ("qa", UNKNOWN, find_device_memory(["t4"]), "google/mt5-base"),
        ("generate", replace(ENGLISH, lost_by_t5="{}"), LAPTOP, "facebook/bart-base"),
        ("generate", replace(LONG, lost_by_t5="{}"), CPU, "google/mt5-small"),  # BART has 1,024 positions
        ("classify", ENGLISH, LAPTOP, "FacebookAI/roberta-base"),
        ("classify", ENGLISH, CPU, "distilbert/distilbert-base-uncased"),
        ("classify", LONG, find_device_memory(["t4"]), "answerdotai/ModernBERT-base"),  # RoBERTa has 512
        ("classify", replace(UNKNOWN, languages=("sw",)), LAPTOP, "jhu-clsp/mmBERT-small"),
        ("translate", replace(ENGLISH, languages=("en", "de")), LAPTOP, "Helsinki-NLP/opus-mt-en-de"),
        ("translate", replace(ENGLISH, languages=("de", "sw")), find_device_memory(["t4"]), "google/mt5-base"),
        ("summarize", replace(ENGLISH, languages=("es", "es")), CPU, "google/mt5-small"),
    ],
)
def test_a_model_suits_task_language_and_machine(
    task: str, facts: TextFacts, device: DeviceMemory, expected: str
) -> None:
    assert choose(task, facts, device).location == expected


def test_an_unknown_language_gets_a_multilingual_model_and_says_so() -> None:
    choice = choose("qa", UNKNOWN)
    assert choice.reason == "the language is not certain (task.language=en would say it), so it is multilingual"
    assert choice.optimizer == "adafactor"  # with AdamW's moments it would need more than 6 GB
    assert "with Adafactor, because AdamW's moments would not fit" in choice.describe()
    assert choice.needs_bytes < LAPTOP.usable_bytes < 6 * GIB


# The least that `seqfit plan` predicted for bf16 without gradient checkpointing on the laptop GPU: source and target
# tokens of one row, and GiB.
PLANNED = [
    ("google/mt5-small", 512, 64, 6.71),
    ("google/flan-t5-base", 512, 64, 5.41),
    ("FacebookAI/xlm-roberta-base", 512, 0, 5.88),
]


@pytest.mark.parametrize(("name", "source", "target", "planned"), PLANNED, ids=[row[0] for row in PLANNED])
def test_the_estimate_of_memory_is_near_the_planners(name: str, source: int, target: int, planned: float) -> None:
    facts = replace(ENGLISH, source=TextLengths(source, source, source), target=TextLengths(target, target, target))
    model = load_known_models()[name]
    assert _estimate_bytes(model.config, model.parameters, "adamw", facts, LAPTOP) / GIB == pytest.approx(planned, 0.1)


def test_what_does_not_fit_at_all_is_an_error_with_figures() -> None:
    with pytest.raises(ModelError, match=r"fits a toaster \(256\.0 MiB\)\. The smallest, google-t5/t5-small, needs"):
        choose("qa", ENGLISH, DeviceMemory("a toaster", GIB // 4, is_cpu=False))


def csv(folder: Path, rows: Sequence[str]) -> str:
    file = folder / "my.csv"
    file.write_text("\n".join(rows) + "\n", "utf-8")
    return str(file)


def english(folder: Path) -> str:
    rows = (f"Where does the train number {n} go to?,It goes to the end of the line {n}." for n in range(40))
    return csv(folder, ["question,answer", *rows])


def test_to_train_the_error_names_the_model_and_the_command(tmp_path: Path) -> None:
    data = english(tmp_path)
    with pytest.raises(ModelError) as caught:
        read_given(data, gpus=["rtx3060-laptop-6gb"])
    assert "google/flan-t5-base (248M parameters, not downloaded yet): the texts are English" in caught.value.rule
    assert caught.value.change.endswith(f"seqfit train --data {data} --task qa --model google/flan-t5-base")


def test_the_command_of_a_model_that_needs_adafactor_says_so(tmp_path: Path) -> None:
    rows = (f"umbuzo wezwe amanzi {n}?,impendulo yomfula intaba {n}" for n in range(40))
    data = csv(tmp_path, ["question,answer", *rows])
    with pytest.raises(ModelError) as caught:
        read_given(data, gpus=["rtx3060-laptop"])
    command = "--model google/mt5-small train.optimizer.name=adafactor train.learning_rate=1e-3"
    assert caught.value.change.endswith(command)


def test_a_downloaded_model_is_taken_and_the_better_one_named(tmp_path: Path, cache: Path) -> None:
    download(cache, "google/flan-t5-small")
    given = read_given(english(tmp_path), gpus=["rtx3060-laptop"])
    assert (given.model, given.task) == ("google/flan-t5-small", "qa")
    assert "(google/flan-t5-base would be the first choice, but is not here)" in given.notes[-1]
    assert isinstance(given.recipe, dict)
    assert given.recipe["model"] == {"name": "google/flan-t5-small", "kind": "text-to-text"}


def test_a_config_without_weights_is_not_taken(tmp_path: Path, cache: Path) -> None:
    (download(cache, "google/flan-t5-small") / "model.safetensors").unlink()  # planning alone leaves that
    with pytest.raises(ModelError, match="none that suits it is downloaded"):
        read_given(english(tmp_path))


def test_a_downloaded_model_of_another_language_is_not_taken(tmp_path: Path, cache: Path) -> None:
    download(cache, "google/flan-t5-small")
    rows = (f"¿Dónde está la casa número {n} de la calle?,Está al final de la calle y es la {n}." for n in range(40))
    with pytest.raises(ModelError) as caught:
        read_given(csv(tmp_path, ["pregunta,respuesta", *rows]), gpus=["t4"])
    assert "(google/flan-t5-small are for other tasks or languages" in caught.value.given
    assert "google/mt5-base" in caught.value.change


def test_of_a_folder_of_models_one_is_taken(tmp_path: Path) -> None:
    for name in ("mine", "flan-t5-small"):
        shutil.copytree(T5, tmp_path / "models" / name)
    given = read_given(english(tmp_path), model=str(tmp_path / "models"))
    assert given.model == str(tmp_path / "models" / "flan-t5-small")  # known by its name, so first
    shutil.rmtree(tmp_path / "models" / "flan-t5-small")
    assert read_given(english(tmp_path), model=str(tmp_path / "models")).model == str(tmp_path / "models" / "mine")


def test_a_model_that_is_given_is_not_chosen(tmp_path: Path) -> None:
    given = read_given(english(tmp_path), model=str(T5))
    assert given.choice is None
    assert given.model == str(T5)


def test_a_plan_without_a_tokenizer_estimates_lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    given = read_given(english(tmp_path), command="plan", gpus=["rtx3060-laptop"])
    assert given.assumed is not None
    assert given.assumed.rows == 32  # of 40, without the rows held out
    assert 8 <= given.assumed.source_tokens <= 15
    assert "lengths estimated from characters" in given.notes[-1]


def test_each_of_several_processes_would_choose_so_the_model_is_named(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    download(cache, "google/flan-t5-small")
    monkeypatch.setenv("RANK", "1")
    assert main(["train", english(tmp_path)]) == 2
    assert "several processes are running, and no model is given" in capsys.readouterr().err
