from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.errors import RecipeError
from seqfit.launch.site import Site, find_profile, read_site

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "clusters"


@pytest.fixture
def profile(workplace: Path) -> Path:
    return workplace / "cluster.yaml"


def test_without_a_profile_there_are_the_defaults(workplace: Path) -> None:
    assert Site.load(None) == Site()


def test_an_option_goes_before_the_variable_and_that_before_the_home_directory(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path("~/.config/seqfit/cluster.yaml").expanduser()
    home.parent.mkdir(parents=True)
    for path in (home, workplace / "variable.yaml", workplace / "option.yaml"):
        path.write_text("account: a\n")
    assert find_profile(None) == home
    monkeypatch.setenv("SEQFIT_PROFILE", str(workplace / "variable.yaml"))
    assert find_profile(None) == workplace / "variable.yaml"
    assert find_profile(workplace / "option.yaml") == workplace / "option.yaml"


def test_a_profile_that_is_not_there_is_named_with_where_it_was_said(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RecipeError, match=r"--profile is 'no\.yaml', and there is no such file\. .* examples/clusters"):
        Site.load(Path("no.yaml"))
    monkeypatch.setenv("SEQFIT_PROFILE", "no.yaml")
    with pytest.raises(RecipeError, match=r"SEQFIT_PROFILE is 'no\.yaml'"):
        Site.load(None)


def test_all_mistakes_of_a_profile_are_reported_together(profile: Path) -> None:
    profile.write_text("acount: a\ntime: 4h\npartition: a b\nsbatch: [mail-type=END]\ngrace_seconds: 5\n")
    with pytest.raises(RecipeError) as caught:
        read_site(profile)
    message = str(caught.value)
    assert f"{profile} has 5 mistakes:" in message
    assert "acount: unknown field. Did you mean 'account'?" in message
    assert "time: '4h' is not a Slurm duration; write 90 (minutes), 4:00:00 or 2-12:00:00" in message
    assert "partition: 'a b' is not one word" in message
    assert "sbatch.0: 'mail-type=END' is no option of sbatch; write it with its dashes" in message
    assert "grace_seconds: 5 is given" in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no fields"),
        ("[1]", "holds no fields"),
        ("a: [", "is YAML text"),
        ("account: a\naccount: b\n", "'account' is given already in line 1"),
        ("setup: ['a\n\n  b']\n", "is not one line"),
        ("environment: {'A B': c}\n", "'A B' is not a variable name"),
        ("scratch: {directory: /tmp, folders: [PATH]}\n", "'PATH' is none of SEQFIT_CACHE"),
    ],
)
def test_an_invalid_profile_is_an_error(profile: Path, text: str, said: str) -> None:
    profile.write_text(text)
    with pytest.raises(RecipeError, match=said.replace("'", ".").replace("[", r"\[")):
        read_site(profile)


@pytest.mark.parametrize("time", ["90", "90:30", "4:00:00", "2-12", "2-12:30", "2-12:30:00"])
def test_every_format_of_a_slurm_duration_is_accepted(time: str) -> None:
    assert Site(time=time).time == time


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples_are_profiles(file: Path) -> None:
    site = read_site(file)
    assert site.account or site.partition


def test_there_is_an_example_for_nodes_without_a_network() -> None:
    assert read_site(EXAMPLES / "compute-canada.yaml").offline
