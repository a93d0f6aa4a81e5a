"""The text of the demo: questions over generated contexts, and the text its checkpoint was pretrained on.

Comes in: `facts/*.csv` (true facts, names in English and Spanish) and `facts/phrasings.yaml` (how each
relation is said and asked). Goes out: `train.jsonl`, `validation.jsonl` and `test.jsonl` of question
answering, and a stream of pretraining documents. Everything follows from SEED; `python demo/text.py` rewrites
the three files byte for byte.

The one idea: a split owns ENTITIES, not rows. Entities that share a name, contain each other's name or are
joined by a fact form a group, and a group goes to one split as a whole; a context holds facts of its own
split only. So nothing in a held-out context, distractors included, was ever seen in training, and an answer
can't be known, only read.

A row of question answering (three facts, the second one answers):

    question  What is the capital of Peru?
    context   The capital of Norway is Oslo. The capital city of Peru is Lima. The ship Ana sails from Cadiz.
    subject   Peru
    answer    Lima

A pretraining document is about made-up names and the training entities, and is never a question. It says some facts,
says them again with their objects masked, and is to be completed by repeating the subject and giving its object:

    source    The capital of Kerun is Doma. The ship Talo sails from Prida. Kerun has its capital in <extra_id_0>. ...
    target    <extra_id_0> Kerun: Doma <extra_id_1> Talo: Prida

The curriculum (PRETRAINING_STAGES) begins with bare pairs, "Kor Tel. Fin Bra. Fin <extra_id_0>.", and moves subject and
object apart by more and more filler words before it comes to sentences.
"""

import csv
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

SEED = 20
LANGUAGES = ("en", "es")
FACTS_FOLDER = Path(__file__).resolve().parent / "facts"
LIBRARY_FOLDER = Path(__file__).resolve().parent.parent / "seqfit" / "recipe" / "library" / "demo"
QUESTION_ROWS = {"train": 7200, "validation": 200, "test": 300}
SPLIT_SHARES = {"train": 0.70, "validation": 0.10, "test": 0.20}
FACTS_PER_CONTEXT = (2, 5)


@dataclass(frozen=True)
class Stage:
    """A part of the pretraining curriculum."""

    documents: int
    most_facts: int
    fillers: int | None = None  # bare pairs with up to so many filler words at a place; None: sentences
    full_names: float = 0.0  # share of documents with names of any length; the others have short ones, a token each


PRETRAINING_STAGES = (
    Stage(26_000, 5, fillers=0),
    Stage(19_000, 5, fillers=1),
    Stage(13_000, 5, fillers=2),
    Stage(26_000, 5, fillers=3),
    Stage(13_000, 5, fillers=5),
    Stage(16_000, 4),
    Stage(26_000, 4, full_names=0.5),
    Stage(90_000, 5, full_names=0.85),
)
REVIEWED = 0.15  # of the documents of a stage are of an earlier one, so that nothing is forgotten
TRUE_FACTS = 0.2  # of the documents with full names are about the training entities

# An object of more facts than this (the Spanish language) would join most countries into one group. It
# belongs to training, and facts that join it with a held-out entity are dropped.
HUB_FACTS = 4
LARGEST_HELD_OUT_GROUP = 16

ARTICLES = re.compile(r"^(the|a|an|el|la|los|las|un|una) (?=\w)")
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Entity:
    en: str
    es: str

    def name(self, language: str) -> str:
        return self.en if language == "en" else self.es


@dataclass(frozen=True)
class Fact:
    relation: str
    subject: Entity
    object: Entity


@dataclass(frozen=True)
class Relation:
    """How a relation is said; `subject_kind` and `object_kind` choose the shape of made-up names."""

    subject_kind: str
    object_kind: str
    sentences: dict[str, list[str]]
    questions: dict[str, list[str]]


@dataclass(frozen=True)
class Document:
    language: str
    source: str
    target: str


def load_relations() -> dict[str, Relation]:
    raw = yaml.safe_load((FACTS_FOLDER / "phrasings.yaml").read_text(encoding="utf-8"))
    return {
        name: Relation(
            subject_kind=entry["kinds"][0],
            object_kind=entry["kinds"][1],
            sentences={language: entry[language]["sentences"] for language in LANGUAGES},
            questions={language: entry[language].get("questions", []) for language in LANGUAGES},
        )
        for name, entry in raw.items()
    }


def load_facts() -> list[Fact]:
    facts = []
    for path in sorted(FACTS_FOLDER.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                subject = Entity(row["subject_en"], row["subject_es"])
                facts.append(Fact(path.stem, subject, Entity(row["object_en"], row["object_es"])))
    return facts


# ---- splitting entities ----


def split_words(text: str) -> tuple[str, ...]:
    return tuple(WORD.findall(text.lower()))


def key_phrases(entity: Entity) -> set[tuple[str, ...]]:
    """The names as lower-case words, without a leading article: "La Habana" also stands for "Habana"."""
    return {split_words(ARTICLES.sub("", name.lower())) for name in (entity.en, entity.es)}


class PhraseFinder:
    """Finds any of a set of phrases in a text, as whole words, whatever the case."""

    def __init__(self, phrases: Iterable[tuple[str, ...]]) -> None:
        self._by_first_word: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for phrase in sorted(set(phrases)):
            self._by_first_word[phrase[0]].append(phrase)

    def find(self, text: str) -> set[tuple[str, ...]]:
        words = split_words(text)
        by_first_word = self._by_first_word
        return {
            phrase
            for start, word in enumerate(words)
            if word in by_first_word
            for phrase in by_first_word[word]
            if words[start : start + len(phrase)] == phrase
        }


def group_entities(facts: Sequence[Fact]) -> dict[Entity, Entity]:
    """Each entity's representative: the same for entities that must not be separated."""
    parent: dict[Entity, Entity] = {}

    def find(entity: Entity) -> Entity:
        parent.setdefault(entity, entity)
        while parent[entity] != entity:
            entity = parent[entity]
        return entity

    def join(one: Entity, other: Entity) -> None:
        parent[find(one)] = find(other)

    facts_per_object = Counter(fact.object for fact in facts)
    for fact in facts:
        find(fact.subject), find(fact.object)
        if facts_per_object[fact.object] <= HUB_FACTS:
            join(fact.subject, fact.object)
    owners: dict[tuple[str, ...], list[Entity]] = defaultdict(list)
    for entity in list(parent):
        for phrase in key_phrases(entity):
            owners[phrase].append(entity)
    finder = PhraseFinder(owners)
    for entity in list(parent):
        for phrase in finder.find(f"{entity.en} | {entity.es}"):
            for owner in owners[phrase]:
                join(entity, owner)
    return {entity: find(entity) for entity in parent}


def split_facts(facts: Sequence[Fact], seed: int = SEED) -> dict[str, list[Fact]]:
    """Facts by split. A fact whose subject and object fell into different splits is dropped."""
    representative = group_entities(facts)
    facts_per_object = Counter(fact.object for fact in facts)
    said: set[str] = set()
    for relation in load_relations().values():
        for phrasings in (relation.sentences, relation.questions):
            for language in LANGUAGES:
                said.update(word for text in phrasings[language] for word in split_words(text))
    group_size = Counter(representative.values())
    must_train = {
        group
        for entity, group in representative.items()
        if facts_per_object[entity] > HUB_FACTS
        or group_size[group] > LARGEST_HELD_OUT_GROUP
        or any(set(phrase) <= said for phrase in key_phrases(entity))
    }
    rng = random.Random(seed)
    split_of: dict[Entity, str] = {}
    for group in dict.fromkeys(representative.values()):
        drawn = rng.choices(list(SPLIT_SHARES), weights=list(SPLIT_SHARES.values()))[0]
        split_of[group] = "train" if group in must_train else drawn
    splits: dict[str, list[Fact]] = {split: [] for split in SPLIT_SHARES}
    for fact in facts:
        split = split_of[representative[fact.subject]]
        if split == split_of[representative[fact.object]]:
            splits[split].append(fact)
    return splits


def held_out_phrases(splits: dict[str, list[Fact]]) -> set[tuple[str, ...]]:
    held_out = splits["validation"] + splits["test"]
    return {phrase for fact in held_out for side in (fact.subject, fact.object) for phrase in key_phrases(side)}


# ---- question answering ----


def choose_context(rng: random.Random, asked: Fact, facts: Sequence[Fact], count: int) -> list[Fact]:
    """`asked` among `count` facts: of its relation, of its subject, or anything else."""
    same_subject = [fact for fact in facts if fact.subject == asked.subject and fact.relation != asked.relation]
    same_relation = [fact for fact in facts if fact.relation == asked.relation]
    chosen = [asked]
    while len(chosen) < count:
        draw = rng.random()
        pool = same_subject if draw < 0.15 and same_subject else same_relation if draw < 0.75 else facts
        candidate = rng.choice(pool)
        taken = {(fact.relation, fact.subject) for fact in chosen} | {fact.object for fact in chosen}
        if (candidate.relation, candidate.subject) not in taken and candidate.object not in taken:
            chosen.append(candidate)
    rng.shuffle(chosen)
    return chosen


def build_question_rows(split: str, facts: Sequence[Fact], rows: int, seed: int = SEED) -> list[dict[str, str]]:
    rng = random.Random(f"{seed} questions {split}")
    relations = load_relations()
    by_relation: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        by_relation[fact.relation].append(fact)
    built = []
    for number in range(rows):
        language = LANGUAGES[number % 2]
        asked = rng.choice(by_relation[rng.choice(sorted(by_relation))])
        context = [
            rng.choice(relations[fact.relation].sentences[language]).format(
                s=fact.subject.name(language), o=fact.object.name(language)
            )
            for fact in choose_context(rng, asked, facts, rng.randint(*FACTS_PER_CONTEXT))
        ]
        question = rng.choice(relations[asked.relation].questions[language])
        built.append(
            {
                "id": f"{split}-{number:05d}",
                "language": language,
                "relation": asked.relation,
                "question": question.format(s=asked.subject.name(language)),
                "context": " ".join(context),
                "subject": asked.subject.name(language),
                "answer": asked.object.name(language),
            }
        )
    return built


def write_question_answering(folder: Path, seed: int = SEED) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, facts in split_facts(load_facts(), seed).items():
        rows = build_question_rows(split, facts, QUESTION_ROWS[split], seed)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8", newline="\n")


# ---- made-up names ----

ONSETS = "b c d f g h j k l m n p r s t v w z br ch dr fr gr kr pl pr sh st tr".split() + [""] * 5  # noqa: SIM905
VOWELS = "a e i o u a e i o u a e i o u a e i o ia ie io ou ai au á é í ó ú".split()  # noqa: SIM905
CODAS = [""] * 14 + "n r s l m n r s l t d k".split()  # noqa: SIM905


SHORT_WORDS = 400  # few enough to become single tokens


class NameMaker:
    """Makes names of a kind from made-up words, and now and then from words of the training entities.

    A word of a held-out name is never used, so no held-out name can arise, not even from two harmless halves.
    """

    def __init__(self, rng: random.Random, train_facts: Sequence[Fact], held_out: set[tuple[str, ...]]) -> None:
        self._rng = rng
        self._forbidden = {word for phrase in held_out for word in phrase}
        sides = [side for fact in train_facts for side in (fact.subject, fact.object)]
        known = {word for side in sides for name in (side.en, side.es) for word in WORD.findall(name)}
        self._known_words = sorted(w for w in known if len(w) > 2 and w.lower() not in self._forbidden)
        drawn = [self._draw_word() for _ in range(40_000)]
        short = sorted({word for word in drawn if 2 < len(word) < 5 and word.lower() not in self._forbidden})
        self._short_words = self._rng.sample(short, SHORT_WORDS)
        self._words = [word for word in drawn if len(word) > 2 and word.lower() not in self._forbidden]

    def _draw_word(self) -> str:
        rng = self._rng
        syllables = rng.choice((1, 2, 2, 2, 2, 3))
        return "".join(
            rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(syllables)
        ).capitalize()

    def _word(self) -> str:
        known = self._rng.random() < 0.15
        word: str = self._rng.choice(self._known_words if known else self._words)
        return word[0].upper() + word[1:]

    def _code(self) -> str:
        while True:
            code = self._rng.choice("ABCDEFGHIJKLMNOPRSTUVWXYZ") + self._rng.choice("abcdefghiklmnoprstuvyz")
            if code.lower() not in self._forbidden:
                return code

    def make(self, kind: str, language: str, short: bool) -> str:
        rng = self._rng
        if short:
            return rng.choice(self._short_words)
        draw = rng.random()
        if kind == "code":
            return self._code()
        if kind == "person":
            return self._word() if draw < 0.3 else f"{self._word()} {self._word()}"
        patterns: tuple[str, ...]
        if kind == "title" and draw < 0.5:
            patterns = (
                ("The {} of {}", "The {}", "{} and {}") if language == "en" else ("El {} de {}", "La {}", "{} y {}")
            )
            return rng.choice(patterns).format(self._word(), self._word().lower())
        if kind == "place" and draw < 0.5:
            patterns = ("the {} Tower", "the {}") if language == "en" else ("la Torre {}", "el {}")
            return rng.choice(patterns).format(self._word())
        if kind == "money":
            pair = (self._word(), self._word().lower())
            return f"{pair[0]} {pair[1]}" if language == "en" else f"{pair[1]} {pair[0].lower()}"
        if kind in ("substance", "thing") or (kind == "tongue" and language == "es"):
            return self._word().lower() if draw < 0.7 or kind != "thing" else f"{self._word()} {self._word()}".lower()
        return self._word() if draw < 0.8 else f"{self._word()} {self._word()}"


# ---- pretraining ----

NamedFact = tuple[str, str, str]  # relation, subject, object, in the document's language


def invent_facts(
    rng: random.Random,
    names: NameMaker,
    relations: dict[str, Relation],
    language: str,
    count: int,
    short: bool,
) -> list[NamedFact]:
    """Facts of a few relations, each about up to four subjects; a few subjects have facts of two relations."""
    of_kind: dict[str, list[str]] = defaultdict(list)
    for name, entry in relations.items():
        of_kind[entry.subject_kind].append(name)
    used: set[str] = set()

    def fresh_name(kind: str) -> str:
        while (name := names.make(kind, language, short)) in used:
            pass
        used.add(name)
        return name

    facts: list[NamedFact] = []
    while len(facts) < count:
        relation = rng.choice(list(relations))
        kind = relations[relation].subject_kind
        for _ in range(rng.randint(1, 4)):
            subject = fresh_name(kind)
            facts.append((relation, subject, fresh_name(relations[relation].object_kind)))
            others = [other for other in of_kind[kind] if other != relation]
            if not short and others and rng.random() < 0.15:
                other = rng.choice(others)
                facts.append((other, subject, fresh_name(relations[other].object_kind)))
    return rng.sample(facts[:count], count)


def compose_document(
    rng: random.Random, relations: dict[str, Relation], language: str, facts: Sequence[NamedFact]
) -> Document:
    """The facts as sentences, and all of them again, in any words and order, with the objects masked."""

    def say(fact: NamedFact, object_: str) -> str:
        return rng.choice(relations[fact[0]].sentences[language]).format(s=fact[1], o=object_)

    return _mask_objects(rng, language, facts, say)


def compose_pairs(
    rng: random.Random, words: Sequence[str], language: str, facts: Sequence[NamedFact], fillers: int
) -> Document:
    """The same with bare pairs of subject and object, among up to `fillers` words at a place."""

    def draw(most: int) -> list[str]:
        return [rng.choice(words) for _ in range(rng.randint(0, most))]

    def say(fact: NamedFact, object_: str) -> str:
        parts = [*draw(fillers), fact[1], *draw(fillers), object_, *draw(min(fillers, 1))]
        return " ".join(parts) + "."

    return _mask_objects(rng, language, facts, say)


def _mask_objects(
    rng: random.Random, language: str, facts: Sequence[NamedFact], say: Callable[[NamedFact, str], str]
) -> Document:
    context = [say(fact, fact[2]) for fact in facts]
    asked = rng.sample(facts, len(facts))
    queries = [say(fact, f"<extra_id_{number}>") for number, fact in enumerate(asked)]
    parts = context + queries if rng.random() < 0.5 else queries + context
    target = [f"<extra_id_{number}> {subject}: {object_}" for number, (_, subject, object_) in enumerate(asked)]
    return Document(language, " ".join(parts), " ".join(target))


def filler_words(relations: dict[str, Relation], language: str) -> list[str]:
    """The words of the phrasings without their names."""
    sentences = [text for relation in relations.values() for text in relation.sentences[language]]
    return sorted({word for text in sentences for word in WORD.findall(text.format(s="", o=""))})


def iterate_pretraining(seed: int = SEED, stages: Sequence[Stage] = PRETRAINING_STAGES) -> Iterator[Document]:
    """The whole pretraining text in the order of its curriculum."""
    splits = split_facts(load_facts(), seed)
    train_facts = splits["train"]
    relations = load_relations()
    rng = random.Random(f"{seed} pretraining")
    names = NameMaker(rng, train_facts, held_out_phrases(splits))
    words = {language: filler_words(relations, language) for language in LANGUAGES}
    for place, current in enumerate(stages):
        for number in range(current.documents):
            language = LANGUAGES[number % 2]
            stage = rng.choice(stages[:place]) if place and rng.random() < REVIEWED else current
            count = rng.randint(2, stage.most_facts)
            full = rng.random() < stage.full_names
            if full and rng.random() < TRUE_FACTS:
                chosen = choose_context(rng, rng.choice(train_facts), train_facts, count)
                facts = [(f.relation, f.subject.name(language), f.object.name(language)) for f in chosen]
            else:
                facts = invent_facts(rng, names, relations, language, count, short=not full)
            if stage.fillers is None:
                yield compose_document(rng, relations, language, facts)
            else:
                yield compose_pairs(rng, words[language], language, facts, stage.fillers)


if __name__ == "__main__":
    write_question_answering(LIBRARY_FOLDER)
