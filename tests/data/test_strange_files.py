"""Peculiarities of files that strangers brought: once read wrongly, or refused with a message that led nowhere."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from seqfit.data.splits import SourceSplits
from seqfit.data.tables import find_tables
from seqfit.data.text_files import recognise
from seqfit.errors import DataError, RecipeError
from seqfit.inspection.guess import Guess, guess_recipe
from seqfit.inspection.task_guess import Unsure
from seqfit.recipe.schema import SourceRecipe

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "lazy",
    "dogs",
    "while",
    "old",
    "men",
    "walk",
    "home",
    "slowly",
]


def text(number: int) -> str:
    draw = random.Random(number)
    return " ".join(draw.choice(WORDS) for _ in range(9)) + f" {number}"


def write(folder: Path, name: str, rows: list[dict[str, Any]]) -> str:
    path = folder / name
    if name.endswith(".jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return str(path)


def guess(path: str, task: str | None, *overrides: str) -> Guess:
    return guess_recipe(path, task, "bert-base-uncased", overrides)


def test_several_columns_of_numbers_are_an_open_question(tmp_path: Path) -> None:
    rows = [{"text": text(n), "V": n * 0.07, "A": n * 0.03, "D": n * 0.05} for n in range(60)]
    with pytest.raises(Unsure, match="V, A, D hold numbers, and no name says which is the score"):
        guess(write(tmp_path, "emotions.csv", rows), "regression")


def test_a_label_among_its_siblings_is_a_label_whatever_its_name(tmp_path: Path) -> None:
    names = ["HS", "HS_Race", "HS_Gender", "HS_Religion", "HS_Other"]
    rows = [{"Tweet": text(n)} | {name: (n + at) % 2 for at, name in enumerate(names)} for n in range(60)]
    assert guess(write(tmp_path, "hate.csv", rows), "multilabel").recipe["task"]["label_columns"] == names


def test_a_column_that_decides_between_equal_texts_is_an_open_question(tmp_path: Path) -> None:
    rows = [
        {"text": text(n), "emotion": emotion, "score": score}
        for n in range(40)
        for emotion, score in (("anger", f"0.{n % 9 + 1}"), ("fear", f"1.{n % 9 + 1}"))
    ]
    with pytest.raises(Unsure, match=r"rows with the same \{text\} have different \{score\}, depending on 'emotion'"):
        guess(write(tmp_path, "emotions.csv", rows), "regression")
    stated = guess(write(tmp_path, "emotions.csv", rows), "regression", "task.source={text} {emotion}")
    assert stated.recipe["task"]["target"] == "{score}"


def test_a_column_that_decides_nothing_is_left_out(tmp_path: Path) -> None:
    rows = [{"text": text(n), "site": ("a", "b")[n % 2], "score": f"0.{n % 9 + 1}"} for n in range(60)]
    assert guess(write(tmp_path, "scores.csv", rows), "regression").recipe["task"]["source"] == "{text}"


def test_a_column_of_splits_divides_the_rows(tmp_path: Path) -> None:
    splits = ["train"] * 8 + ["dev", "test"]
    rows = [{"text": text(n), "label": ("good", "bad")[n % 2], "split": splits[n % 10]} for n in range(100)]
    found = guess(write(tmp_path, "reviews.csv", rows), "classify")
    source = SourceRecipe.model_validate(found.recipe["data"])
    assert source.split_column == "split"
    assert "splits: from the column 'split': train, validation, test" in " ".join(found.notes)
    divided = SourceSplits(source, 0, lambda row: str(row["text"]), None)
    counts = {name: sum(1 for _ in divided.select(name).rows()) for name in divided.names}
    assert counts == {"train": 80, "validation": 10, "test": 10}


def test_a_split_column_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "reviews.csv", [{"text": text(n), "label": n % 2} for n in range(10)])
    with pytest.raises(DataError, match=r"data.split_column is 'split'.*text, label"):
        find_tables(SourceRecipe(path=path, split_column="split"))


def test_bytes_that_iso_8859_has_no_letters_for_are_of_windows() -> None:
    sample = "Sepp+Æl+Æ L+Ænnen J+Ærvi-Suomen \u2013 \u201cquoted\u201d".encode("cp1252")
    assert recognise(sample) == "cp1252"


@pytest.mark.parametrize("spans", ["[8, 9, 10]", "[]"])
def test_spans_of_a_text_are_an_error_that_names_the_column(tmp_path: Path, spans: str) -> None:
    rows = [{"spans": json.loads(spans), "text": text(n)} for n in range(20)]
    with pytest.raises(DataError, match="has spans of its texts"):
        guess_recipe(write(tmp_path, "toxic.jsonl", rows), None, "t5-small")


def test_a_turn_per_row_is_refused_by_name(tmp_path: Path) -> None:
    rows = [{"text": text(n), "dialogue_id": n // 4, "turn_id": n % 4, "type": ("HS", "CN")[n % 2]} for n in range(80)]
    with pytest.raises(DataError, match=r"one turn of a dialogue per row.*messages"):
        guess_recipe(write(tmp_path, "dialogues.csv", rows), "generate", "t5-small")


def test_labels_in_a_second_file_are_mentioned(tmp_path: Path) -> None:
    rows = [{"goal": text(n), "sol1": text(100 + n), "sol2": text(200 + n)} for n in range(30)]
    write(tmp_path, "valid.jsonl", rows)
    (tmp_path / "valid-labels.lst").write_text("0\n1\n" * 15)
    with pytest.raises(RecipeError, match=r"valid-labels\.lst has as many lines \(30\) as the data has rows"):
        guess_recipe(str(tmp_path / "valid.jsonl"), "multiple-choice", "t5-small")


def test_turns_by_agent_and_message_are_a_conversation(tmp_path: Path) -> None:
    turns = [{"message": text(n), "agent": f"agent_{n % 2 + 1}", "sentiment": "Happy"} for n in range(4)]
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({f"t_{n}": {"content": turns, "config": "A"} for n in range(20)}))
    found = guess_recipe(str(path), "generate", "t5-small").recipe
    assert (found["data"]["turns"], found["task"]["source"], found["task"]["target"]) == (
        "content",
        "{history}",
        "{reply}",
    )


def test_classes_with_lists_of_examples_become_a_row_per_example(tmp_path: Path) -> None:
    """As chat bots have it: intents.json with tag, patterns and responses."""
    intents = [
        {"tag": tag, "patterns": [text(10 * n + k) for k in range(6)], "responses": [text(900 + n)]}
        for n, tag in enumerate(("greeting", "goodbye", "thanks"))
    ]
    path = tmp_path / "intents.json"
    path.write_text(json.dumps({"intents": intents}))
    found = guess(str(path), "classify").recipe
    assert found["data"]["each"] == "patterns"
    assert (found["task"]["source"], found["task"]["target"]) == ("{patterns}", "{tag}")


# ---- a second blind trial: 68 files ----


def guess_t5(path: str, task: str | None, *overrides: str) -> Guess:
    return guess_recipe(path, task, "google/flan-t5-small", overrides)


def test_votes_and_deviations_are_never_the_score(tmp_path: Path) -> None:
    rows = [
        {"Sentence": text(n), "Vote_Difficulty": n % 7 + 9, "MOS_Difficulty": n * 0.05, "Std_Difficulty": n * 0.01}
        for n in range(60)
    ]
    found = guess(write(tmp_path, "ratings.csv", rows), "regression")
    assert found.recipe["task"]["target"] == "{MOS_Difficulty}"


def test_a_task_that_the_user_names_is_not_changed_silently(tmp_path: Path) -> None:
    rows = [{"text": text(n), "hate_comb": n % 2, "hate_G1": n % 3 % 2, "hate_G2": n % 5 % 2} for n in range(60)]
    with pytest.raises(Unsure, match="hate_comb, hate_G1, hate_G2 hold yes or no") as asked:
        guess(write(tmp_path, "hate.csv", rows), "classify")
    assert "1. classify: {text} -> {hate_comb}" in str(asked.value)


def test_what_annotators_agreed_on_comes_before_what_each_said(tmp_path: Path) -> None:
    names = ("entailment", "neutral", "contradiction")
    rows = [
        {"premise": text(n), "hypothesis": text(n + 99), "gold_label": names[n % 3], "label1": names[n % 3]}
        | {"label2": names[(n + n % 5 // 4) % 3]}
        for n in range(60)
    ]
    found = guess(write(tmp_path, "nli.csv", rows), "classify")
    assert found.recipe["task"]["target"] == "{gold_label}"


@pytest.mark.parametrize("is_stated", [False, True])
def test_a_file_per_class_and_split_are_splits_of_the_same_classes(tmp_path: Path, is_stated: bool) -> None:
    for split, rows in {"train": 30, "test": 10}.items():
        for label in ("neg", "pos"):
            (tmp_path / f"{split}_{label}.txt").write_text("".join(f"{text(n)}\n" for n in range(rows)))
    tables = find_tables(SourceRecipe(path=str(tmp_path), format="classes" if is_stated else "auto"))
    assert list(tables) == ["train", "test"]
    assert {row["label"] for row in tables["train"].read()} == {"neg", "pos"}
    assert sum(1 for _ in tables["test"].read()) == 20


def test_files_in_gbk_with_broken_bytes_are_not_taken_for_latin(tmp_path: Path) -> None:
    texts = [
        "房间还不如三星的而且设施非常陈旧",
        "我们去公园散步天气很好",
        "这个酒店的服务是不错的",
        "他们说的和我们看到的都不一样",
    ]
    for n in range(60):
        path = tmp_path / ("neg" if n % 2 else "pos") / f"{n}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(texts[n % 4].encode("gb18030") + (b"\xff\xff" if n % 20 == 0 else b""))
    table = find_tables(SourceRecipe(path=str(tmp_path)))["all"]
    assert "read as gb18030" in table.notes[1]
    assert texts[1] in {row.get("text") for row in table.read()}


def test_a_label_that_stands_in_its_text_is_warned_about(tmp_path: Path) -> None:
    for n in range(60):
        path = tmp_path / str(n % 5 + 1) / f"{n}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"Some Author\n{n % 5 + 1}\n{text(n)}\n")
    found = guess(str(tmp_path), "classify")
    assert any("in 100.0% of the sampled rows the text contains its own label" in note for note in found.notes)


def test_a_word_of_the_label_in_ordinary_texts_is_no_leak(tmp_path: Path) -> None:
    rows = [{"text": f"{text(n)} good bad", "label": ("good", "bad")[n % 2]} for n in range(60)]
    assert not any("stands in its own text" in note for note in guess(write(tmp_path, "a.csv", rows), "classify").notes)


def test_ids_of_people_are_no_labels(tmp_path: Path) -> None:
    lines = [f"2020-01-{n % 28 + 1:02} 10:00:00\t{528290000 + n % 30}\t{text(n)}\n" for n in range(200)]
    (tmp_path / "chat.tsv").write_text("".join(lines))
    with pytest.raises(RecipeError, match=r"column2 \(ids\).*needs a column for label"):
        guess(str(tmp_path / "chat.tsv"), "classify")


def test_rows_one_level_deeper_are_found_and_named(tmp_path: Path) -> None:
    rows = [{"text": text(n), "intent": ("greet", "bye", "ask")[n % 3], "entities": []} for n in range(60)]
    held = {"rasa_nlu_data": {"common_examples": rows, "regex_features": [], "lookup_tables": []}}
    (tmp_path / "nlu.json").write_text(json.dumps(held))
    found = guess(str(tmp_path / "nlu.json"), "classify")
    assert (found.recipe["task"]["source"], found.recipe["task"]["target"]) == ("{text}", "{intent}")
    assert any("the rows are read from rasa_nlu_data.common_examples" in note for note in found.notes)


def test_commas_in_an_unquoted_text_behind_its_label_are_part_of_it(tmp_path: Path) -> None:
    lines = [
        f"{'positive' if n % 3 else 'negative'},{text(n)}{', and more' if n % 4 == 0 else ''}\n" for n in range(80)
    ]
    (tmp_path / "tweets.csv").write_text("".join(lines))
    table = find_tables(SourceRecipe(path=str(tmp_path / "tweets.csv")))["all"]
    rows = list(table.read())
    assert len(rows) == 80
    assert rows[0]["column2"].endswith(", and more")
    assert any("every further , is part of the text" in note for note in table.notes)


def test_labels_joined_by_a_bar_are_the_target_and_their_vector_is_left_out(tmp_path: Path) -> None:
    labels = ("价格", "服务", "位置", "卫生")
    rows = [
        {
            "用户问题": f"请问这个酒店的早餐和停车位怎么样{n}",
            "label_text": f"{labels[n % 4]}|{labels[(n + 1 + n // 4 % 3) % 4]}",
        }
        | {"label": " ".join(str(int(k in (n % 4, (n + 1 + n // 4 % 3) % 4))) for k in range(4))}
        for n in range(80)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = guess(str(tmp_path / "rows.jsonl"), "multilabel").recipe["task"]
    assert (task["source"], task["target"], task["label_separator"]) == ("{用户问题}", "{label_text}", "|")


def test_decimal_commas_are_numbers() -> None:
    from seqfit.tasks.number import read_score

    assert [read_score(one) for one in ("-0,25", "3,8", "0,125", "12,5000")] == [-0.25, 3.8, 0.125, 12.5]
    assert read_score("1,125") is None


def test_choices_as_records_of_one_key_each_are_read_by_letter(tmp_path: Path) -> None:
    rows = [
        {
            "question": f"{text(n)}?",
            "options": [{letter: f"{letter.lower()} {n}"} for letter in "ABCD"],
            "answer": "ABCD"[n % 4],
        }
        for n in range(40)
    ]
    task = guess_t5(write(tmp_path, "mcq.jsonl", rows), "multiple-choice").recipe["task"]
    assert task["choices"] == ["{options.A}", "{options.B}", "{options.C}", "{options.D}"]
    assert task["choice_base"] == "a"


def test_explanations_of_the_choices_are_never_in_the_source(tmp_path: Path) -> None:
    rows = [
        {"stem": f"{text(n)}?", "options": ["a", "b", "c", "d"], "answerIndex": n % 4, "optExplanations": [text(n)] * 4}
        for n in range(40)
    ]
    assert (
        guess_t5(write(tmp_path, "mcq.jsonl", rows), "multiple-choice").recipe["task"]["source"] == "question: {stem}"
    )


def test_a_model_that_can_not_do_the_task_is_named_before_any_question(tmp_path: Path) -> None:
    rows = [{"question": f"{text(n)}?", "answer": "x"} for n in range(40)]
    with pytest.raises(RecipeError, match=r"is a BERT-type encoder .* and the task is multiple-choice"):
        guess(write(tmp_path, "mcq.jsonl", rows), "multiple-choice")


def test_the_only_context_belongs_to_the_source(tmp_path: Path) -> None:
    context = " ".join(text(n) for n in range(20))
    rows = [{"question": f"{text(n)}?", "context": context, "answers": {"text": [text(n)[:9]]}} for n in range(40)]
    assert "{context}" in guess_t5(write(tmp_path, "qa.jsonl", rows), "qa").recipe["task"]["source"]


def test_lists_of_lists_of_records_are_rows_with_records_inside(tmp_path: Path) -> None:
    rows = [
        [
            {
                "context": text(n) * 3,
                "questions": [{"question": f"{text(k)}?", "answer": {"text": text(k)[:9]}} for k in (n, n + 50)],
            }
        ]
        for n in range(40)
    ]
    (tmp_path / "qa.json").write_text(json.dumps(rows))
    found = guess_t5(str(tmp_path / "qa.json"), "qa")
    assert found.recipe["data"]["each"] == "questions"
    assert found.recipe["task"]["target"] == "{questions.answer.text}"


def test_answers_that_are_positions_in_the_context_are_an_error(tmp_path: Path) -> None:
    rows = [{"question": f"{text(n)}?", "context": text(n) * 4, "answers": [n % 9, n % 9 + 1]} for n in range(40)]
    with pytest.raises(DataError, match=r"are lists of whole numbers.*positions in the context"):
        guess_t5(write(tmp_path, "qa.jsonl", rows), "qa")


def test_questions_without_an_answer_are_noted(tmp_path: Path) -> None:
    rows = [
        {"question": f"{text(n)}?", "context": text(n) * 4, "answers": [] if n % 4 == 0 else [text(n)[:9]]}
        for n in range(40)
    ]
    found = guess_t5(write(tmp_path, "qa.jsonl", rows), "qa")
    assert any("10 of 40 sampled rows have none" in note for note in found.notes)


def test_workings_and_masked_copies_stay_out_of_a_problem(tmp_path: Path) -> None:
    rows = [
        {
            "sQuestion": f"{text(n)} has {n} and {n + 2}",
            "sMasked": f"{text(n)[: -len(str(n))]}<NUM0> has <NUM1> and <NUM2>",
        }
        | {"reasoning": f"x = {n} + 2; print(x) # {text(n)}", "lSolutions": [n + 2]}
        for n in range(40)
    ]
    task = guess_t5(write(tmp_path, "math.jsonl", rows), "math").recipe["task"]
    assert (task["source"], task["target"]) == ("{sQuestion}", "{lSolutions}")


def test_turns_of_a_dialogue_are_shown_with_who_speaks(tmp_path: Path) -> None:
    turns = [{"speaker": 1, "text": "Hello there, my friend."}, {"speaker": 2, "text": "How are you today?"}]
    rows = [
        {"id": n, "dialogue": [*turns, {"speaker": 1, "text": text(n)}], "summary": text(n)[:20]} for n in range(40)
    ]
    found = guess_t5(write(tmp_path, "talks.jsonl", rows), "summarize")
    assert found.recipe["task"]["source"] == "{dialogue}"


def test_lists_of_references_in_the_evaluation_files_are_references(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        (tmp_path / f"{split}.src").write_text("".join(f"{text(n)}\n" for n in range(40)))
        target = [f"{text(n)}." if split == "train" else str([f"{text(n)}.", f"{text(n)}!"]) for n in range(40)]
        (tmp_path / f"{split}.tgt").write_text("\n".join(target) + "\n")
    found = guess_t5(str(tmp_path), "generate")
    assert found.recipe["task"]["references"] == ["{tgt}"]
    from seqfit.recipe.schema import TaskRecipe
    from seqfit.tasks import build_task

    example = build_task(TaskRecipe(**found.recipe["task"])).render({"src": "a b", "tgt": "['One.', 'Two.']"}, "1")
    assert (example.target, example.references) == ("One.", ("One.", "Two."))


def test_files_numbered_behind_a_dot_are_references(tmp_path: Path) -> None:
    for name in ("orig", "simp.0", "simp.1", "simp.2"):
        lines = [f"{text(n)} {name}" for n in range(40)]
        (tmp_path / f"corpus.valid.{name}").write_text("\n".join(lines) + "\n")
    task = guess_t5(str(tmp_path), "generate").recipe["task"]
    assert (task["source"], task["target"]) == ("{orig}", "{simp.0}")
    assert task["references"] == ["{simp.0}", "{simp.1}", "{simp.2}"]


def test_a_numbered_series_next_to_one_text_may_be_its_references(tmp_path: Path) -> None:
    series = ("variant_1", "variant_2", "variant_3")
    rows = [{"document": text(n)} | {name: text(n * 7 + k) for k, name in enumerate(series)} for n in range(60)]
    with pytest.raises(Unsure, match="variant_1 to variant_3 may be references for the same target") as asked:
        guess_t5(write(tmp_path, "variants.csv", rows), "generate")
    first, _, second = str(asked.value).partition("2. generate: ")
    assert "{document} -> {variant_1}" in first
    assert "{variant_1}[[ {variant_2}]][[ {variant_3}]] -> {document}" in second


def test_one_turn_per_row_is_refused_by_its_speaker_and_session(tmp_path: Path) -> None:
    rows = [{"speaker": ("Ann", "Bob")[n % 2], "content": text(n), "session": n // 20} for n in range(80)]
    with pytest.raises(DataError, match=r"one turn of a dialogue per row \('session', 'speaker'\)"):
        guess_t5(write(tmp_path, "talk.csv", rows), "generate")


def test_two_rows_of_one_pair_are_refused_with_how_to_join_them(tmp_path: Path) -> None:
    rows = [{"id": n // 2, "label": ("comp", "simp")[n % 2], "text": text(n)} for n in range(80)]
    with pytest.raises(DataError, match=r"two rows share each 'id' .*frame\.pivot\(index='id', columns='label'"):
        guess_t5(write(tmp_path, "pairs.csv", rows), "generate")


def test_the_headline_of_an_article_is_offered_before_its_description(tmp_path: Path) -> None:
    rows = [{"title": text(n)[:30], "description": text(n) * 4, "content": text(n) * 3} for n in range(40)]
    with pytest.raises(Unsure, match=r"1\. summarize: {content} -> {title}"):
        guess_t5(write(tmp_path, "news.jsonl", rows), "summarize")


def test_instruction_input_output_is_taken_whatever_stands_next_to_it(tmp_path: Path) -> None:
    rows = [
        {"instruction": "Name the illness.", "input": text(n), "output": f"code {n % 9}", "symptoms": text(n + 5)}
        for n in range(60)
    ]
    task = guess_t5(write(tmp_path, "notes.jsonl", rows), None).recipe["task"]
    assert (task["name"], task["source"], task["target"]) == ("generate", "{instruction}[[ {input}]]", "{output}")


def test_columns_without_names_offer_the_longest_as_the_answer(tmp_path: Path) -> None:
    lines = [f"Section;{text(n)[:20]};Where is {text(n)}?;{text(n)} {text(n + 7)} {text(n + 9)}\n" for n in range(60)]
    (tmp_path / "faq.csv").write_text("".join(lines))
    with pytest.raises(Unsure, match=r"1\. qa: question: {column3} -> {column4}"):
        guess_t5(str(tmp_path / "faq.csv"), "qa")


def test_slovene_is_not_taken_for_french() -> None:
    from seqfit.inspection.text_language import find_language

    said = "Predsednik je dejal, da so se pogovarjali o tem, kako naj bi država pomagala ljudem, ki so brez dela."
    assert find_language([said] * 3) == "sl"


# ---- a third one: 50 files ----


def test_files_of_fields_are_tables_even_where_their_names_are_classes(tmp_path: Path) -> None:
    for label in ("neg", "pos"):
        lines = [f"{label}\t{text(n)}\t{'mixed' if n % 3 else label}\n" for n in range(40)]
        (tmp_path / f"{label}_sample.txt").write_bytes("".join(lines).encode("utf-16"))
    with pytest.raises(DataError, match="several files that could be the data"):
        find_tables(SourceRecipe(path=str(tmp_path)))


def test_copies_of_a_text_are_not_joined(tmp_path: Path) -> None:
    rows = [
        {
            "input_text": f"{text(n + 50)} / {text(n)}",
            "title": text(n + 50),
            "comment": text(n),
            "label": f"{n % 3}{'.0' * (n % 2)}",
        }
        for n in range(60)
    ]
    path = write(tmp_path, "a.jsonl", rows)
    with pytest.raises(Unsure, match=r"1\. classify: {input_text} -> {label}"):
        guess(path, "classify")
    found = guess(path, "classify", "task.source={input_text}", "task.target={label}")
    assert found.recipe["task"]["labels"] == {"0": ["0", "0.0"], "1": ["1", "1.0"], "2": ["2", "2.0"]}


def test_several_texts_that_are_no_pair_are_an_open_question(tmp_path: Path) -> None:
    rows = [{"review": text(n), "comment": text(n + 70), "sentiment": ("good", "bad")[n % 2]} for n in range(60)]
    with pytest.raises(Unsure, match="it is not clear whether comment should be part of the text"):
        guess(write(tmp_path, "a.csv", rows), "classify")


def test_a_prompt_that_holds_the_answer_is_never_the_context(tmp_path: Path) -> None:
    long = [" ".join(text(n + k) for k in range(5)) for n in range(40)]
    rows = [
        {"questionTitle": f"{text(n)}?", "answerText": long[n], "text": f"[INST] q [/INST] {long[n]}"}
        for n in range(40)
    ]
    assert "{text}" not in guess_t5(write(tmp_path, "a.jsonl", rows), "qa").recipe["task"]["source"]


def test_columns_in_romanian_and_chinese_are_known(tmp_path: Path) -> None:
    rows = [{"categorie": ("a", "b")[n % 2], "intrebare": f"{text(n)}?", "raspuns": text(n + 9) * 3} for n in range(40)]
    task = guess_t5(write(tmp_path, "faq.csv", rows), "qa").recipe["task"]
    assert (task["source"], task["target"]) == ("question: {intrebare}", "{raspuns}")
    names = {f"選項{k}": f"choice {k} of" for k in range(1, 5)}
    rows = [
        {"問題": f"{text(n)}?", **{k: f"{v} {n}" for k, v in names.items()}, "正確答案": n % 4 + 1} for n in range(40)
    ]
    task = guess_t5(write(tmp_path, "mcq.jsonl", rows), "multiple-choice").recipe["task"]
    assert (len(task["choices"]), task["target"], task["choice_base"]) == (4, "{正確答案}", 1)


def test_a_label_of_pairs_is_a_class_and_no_answer(tmp_path: Path) -> None:
    rows = [{"index": n, "question": f"{text(n)}?", "sentence": text(n + 9), "label": n % 2} for n in range(60)]
    task = guess(write(tmp_path, "a.csv", rows), None).recipe["task"]
    assert (task["name"], task["source"]) == ("classify", "question: {question} sentence: {sentence}")


def test_vectors_of_labels_are_refused_by_name(tmp_path: Path) -> None:
    rows = [{"text": text(n), "agreed_labels": [int(n % 3 == k) for k in range(3)]} for n in range(40)]
    with pytest.raises(DataError, match="'agreed_labels' holds 3 zeros and ones per row"):
        guess(write(tmp_path, "a.jsonl", rows), "multilabel")


def test_blocks_of_lines_are_refused_with_the_command_that_joins_them(tmp_path: Path) -> None:
    lines = [f"The $T$ of {text(n)}\nterm {n}\n{n % 3 - 1}\n" for n in range(100)]
    (tmp_path / "laptops.seg").write_text("".join(lines))
    with pytest.raises(DataError, match=r"blocks of 3 lines .* paste - - - < laptops\.seg"):
        guess(str(tmp_path / "laptops.seg"), "classify")


def test_a_bar_inside_a_text_does_not_hide_the_label_behind_it(tmp_path: Path) -> None:
    lines = [f"{text(n)}{' | yes' if n == 7 else ''}|{n % 2}\r\n" for n in range(200)]
    (tmp_path / "comments.txt").write_text("".join(lines), newline="")
    task = guess(str(tmp_path / "comments.txt"), None).recipe["task"]
    assert (task["source"], task["target"], task["labels"]) == ("{column1}", "{column2}", ["0", "1"])


@pytest.mark.parametrize(
    ("rows", "warning"),
    [
        ([{"source": f"{text(n)} = {text(n + 1)}", "target": text(n + 1)} for n in range(40)], "a model can copy it"),
        ([{"source": f"a\t{text(n)}", "target": text(n + 1)} for n in range(40)], "it may be several columns"),
        ([{"source": text(n), "target": f"{{'a': '{text(n + 1)}'}}"} for n in range(40)], "a list or record as text"),
    ],
)
def test_what_no_data_looks_like_is_warned_about(tmp_path: Path, rows: list[dict[str, Any]], warning: str) -> None:
    options = ("task.source={source}", "task.target={target}")
    found = guess_t5(write(tmp_path, "a.jsonl", rows), "generate", *options)
    assert any(note.startswith("warning: ") and warning in note for note in found.notes)


def test_labels_joined_by_spaces_are_several_for_multilabel(tmp_path: Path) -> None:
    names = ("rushed", "pharma", "side-effect", "country")
    rows = [{"tweet": text(n), "labels": " ".join(sorted({names[n % 4], names[n // 4 % 4]}))} for n in range(80)]
    task = guess(write(tmp_path, "tweets.csv", rows), "multilabel").recipe["task"]
    assert (task["label_separator"], len(task["labels"])) == (" ", 4)


def test_pairs_inside_documents_are_the_rows_of_a_translation(tmp_path: Path) -> None:
    rows = [
        {"id": n, "talk": [{"no": k, "ja_sentence": text(k), "en_sentence": text(k + 9)} for k in range(9)]}
        for n in range(5)
    ]
    (tmp_path / "dev.json").write_text(json.dumps(rows))
    with pytest.raises(Unsure, match=r"data\.each=talk"):
        guess_t5(str(tmp_path / "dev.json"), "translate")


def test_choices_under_the_name_answers_are_choices(tmp_path: Path) -> None:
    rows = [
        {"text": f"{text(n)}?", "answers": {k: f"{k} of {n}" for k in "DBCA"}, "correct": "ABCD"[n % 4]}
        for n in range(40)
    ]
    task = guess_t5(write(tmp_path, "mcq.jsonl", rows), "multiple-choice").recipe["task"]
    assert task["choices"] == ["{answers.A}", "{answers.B}", "{answers.C}", "{answers.D}"]


def test_fractions_instead_of_labels_are_an_error_that_says_how_to_round_them(tmp_path: Path) -> None:
    rows = [{"comment": text(n), "violence": n % 9 / 9, "race": n % 7 / 7, "gender": n % 5 / 5} for n in range(60)]
    with pytest.raises(DataError, match=r"violence, race, gender hold fractions from 0 to 1.*>= 0\.5"):
        guess(write(tmp_path, "ethos.csv", rows), "multilabel")


# ---- files of the same repositories, by their columns alone ----


def test_sets_of_numbers_joined_by_commas_are_no_decimals(tmp_path: Path) -> None:
    sets = ("8", "0", "1", "2,3", "0,1,2", "8", "1,2", "0,3", "3")
    lines = ["document\tlabel\n", *(f"{text(n)}\t{sets[n % 9]}\n" for n in range(90))]
    (tmp_path / "kmhas.txt").write_text("".join(lines))
    task = guess(str(tmp_path / "kmhas.txt"), None).recipe["task"]
    assert (task["name"], task["label_separator"], len(task["labels"])) == ("multilabel", ",", 5)


def test_annotators_and_what_they_agreed_on_are_not_several_labels(tmp_path: Path) -> None:
    rows = [{"text": text(n), "hate_comb": n % 2, "hate_G1": n % 3 % 2, "hate_G2": n % 5 % 2} for n in range(60)]
    with pytest.raises(Unsure, match="votes of annotators, or several labels"):
        guess(write(tmp_path, "hate.csv", rows), None)


def test_labels_joined_by_spaces_are_recognised_where_each_occurs_alone(tmp_path: Path) -> None:
    names = ("rushed", "pharma", "country", "none")
    sets = [*names, *(f"{a} {b}" for a in names for b in names if a != b)]
    rows = [{"tweet": text(n), "labels": sets[n % len(sets)]} for n in range(96)]
    assert guess(write(tmp_path, "tweets.csv", rows), "classify").recipe["task"]["name"] == "multilabel"


def test_tags_of_tokens_are_refused_although_the_text_is_there(tmp_path: Path) -> None:
    rows = [
        {"text": text(n), "tokens": text(n).split(), "iob_aspect_tags": [n % 2] * len(text(n).split())}
        for n in range(30)
    ]
    with pytest.raises(DataError, match="a label for each token"):
        guess(write(tmp_path, "ate.jsonl", rows), None)


def test_words_separated_by_tabs_are_no_columns(tmp_path: Path) -> None:
    lines = [
        "\t".join([("pos", "neg")[n % 2], *(text(n) + " " + text(n + 1)).split()[: 12 + n % 9], *["x"] * (n % 9)])
        for n in range(60)
    ]
    (tmp_path / "hotel.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"words of a text are separated.*sed 's"):
        guess(str(tmp_path / "hotel.txt"), "classify")


def test_three_languages_in_a_name_are_no_direction() -> None:
    from seqfit.inspection.column_names import find_direction

    assert find_direction("sylheti-bengali-english-russian/rows.tsv", ("Bengali", "English", "Russian")) is None
    assert find_direction("bengali-english/rows.tsv", ("Bengali", "English")) == ("Bengali", "English")


def test_a_headline_or_a_category_is_an_open_question_where_no_task_is_named(tmp_path: Path) -> None:
    rows = [{"category": ("sports", "health")[n % 2], "headline": text(n)[:30], "text": text(n) * 6} for n in range(60)]
    with pytest.raises(Unsure, match="the task could be to write headlines, or to classify"):
        guess_t5(write(tmp_path, "news.csv", rows), None)


def test_a_span_of_the_text_is_not_left_out_as_a_part_of_it(tmp_path: Path) -> None:
    rows = [
        {"Context": " ".join(text(n + k) for k in range(9)), "Fallacy": text(n + 3), "Label": ("a", "b")[n % 2]}
        for n in range(60)
    ]
    with pytest.raises(Unsure, match="it is not clear whether Fallacy should be part of the text"):
        guess(write(tmp_path, "fallacies.jsonl", rows), "classify")


def test_places_as_answers_are_refused_where_no_task_is_named_too(tmp_path: Path) -> None:
    rows = [
        {"question": f"{text(n)}?", "context": text(n) * 4, "answers": [n % 9, 1], "jaccard": n / 60} for n in range(40)
    ]
    with pytest.raises(DataError, match="are lists of whole numbers"):
        guess_t5(write(tmp_path, "qa.jsonl", rows), None)


def test_a_score_and_a_class_are_an_open_question_where_no_task_is_named(tmp_path: Path) -> None:
    rows = [
        {
            "sentence_A": text(n),
            "sentence_B": text(n + 9),
            "relatedness_score": n % 41 / 10,
            "entailment_judgment": "ABC"[n % 3],
        }
        for n in range(90)
    ]
    with pytest.raises(Unsure, match=r"--task classify(.|\n)*--task regression"):
        guess(write(tmp_path, "sick.csv", rows), None)
