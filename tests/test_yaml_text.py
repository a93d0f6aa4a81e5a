from __future__ import annotations

from typing import Any

import pytest
import yaml

from seqfit.yaml_text import flatten, read_yaml, write_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1E5", 1e5),
        ("-.5", -0.5),
        ("7.", 7.0),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("+12", 12),
        ("yes", "yes"),
        ("No", "No"),
        ("on", "on"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("1:30", "1:30"),
        ("2024-01-31", "2024-01-31"),
        ("1_000", "1_000"),
        ("v1.1.0", "v1.1.0"),
        ("'3e-4'", "3e-4"),
        (r"'a \n b'", r"a \n b"),
    ],
)
def test_scalars_are_read_by_yaml_1_2(text: str, value: object) -> None:
    read, _ = read_yaml(text)
    assert read == value
    assert type(read) is type(value)


def test_keys_given_twice_are_noted_with_their_lines() -> None:
    values, repeated = read_yaml("a: 1\nb: {c: 1, c: 2}\na: 3\n")
    assert values == {"a": 3, "b": {"c": 2}}
    assert len(repeated) == 2
    assert any("line 3: 'a' is given already in line 1" in sentence for sentence in repeated)


def test_anchors_and_merge_keys_work() -> None:
    values, repeated = read_yaml("base: &base {a: 1, b: 2}\nmine: {<<: *base, b: 3}\n")
    assert values["mine"] == {"a": 1, "b": 3}
    assert repeated == []


@pytest.mark.parametrize(
    "value", ["3e-4", "yes", "1_000", "010", "0o7", "null", "~", "", " x ", r"a \n b", "ñ: ¿", "#", "a\x85b", "\u2028"]
)
def test_a_written_string_is_the_same_string_to_readers_of_both_versions(value: str) -> None:
    text = write_yaml({"key": value})
    assert read_yaml(text)[0] == {"key": value}
    assert yaml.safe_load(text) == {"key": value}


@pytest.mark.parametrize("value", [1e-8, 3e-4, 1e22, 5, True, None, [1, [2]], {"b": 1, "a": 2}])
def test_a_written_value_is_read_back(value: Any) -> None:
    text = write_yaml({"key": value})
    assert read_yaml(text)[0] == {"key": value}
    assert yaml.safe_load(text) == {"key": value}


def test_order_is_kept() -> None:
    assert write_yaml({"z": 1, "a": 2}) == "z: 1\na: 2\n"


@pytest.mark.parametrize("key", ["\x85", "a\u2029b"])
def test_a_key_with_a_rare_line_end_is_read_back(key: str) -> None:
    assert read_yaml(write_yaml({key: None}))[0] == {key: None}


def test_nested_fields_become_dotted_names() -> None:
    assert flatten({"train": {"steps": 3, "optimizer": {"name": "adamw"}}, "allow": ["bf16"]}) == {
        "train.steps": 3,
        "train.optimizer.name": "adamw",
        "allow": ["bf16"],
    }
