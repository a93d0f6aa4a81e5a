"""Column names: names -> roles, languages, pairs.

Name.of("airlineSentiment_2")   plain "airline_sentiment", words {airline, sentiment}, last "sentiment", number "2"
score_role(Name.of("reviewText"), "text") > 0.8      "text" itself is near 1, "text_of_the_mail" 0.6, "foo" 0
find_languages(["en", "fra_Latn"])  -> {"en": "English", "fra_Latn": "French"}
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from seqfit.data import name_words

# Words for what annotators have agreed on, or for an aggregate of their votes.
AGREED = {"gold", "final", "majority", "agreed", "consensus", "aggregated", "comb", "combined", "adjudicated"}
# Source first: pairs of names that belong together, whatever the order of the columns.
_PAIR_NAMES = """
    mt>pe translation>postedit source>target src>tgt src>trg src>ref src>dst src>mt source>mt source>reference
    input>output input>target input>label
    prompt>completion prompt>response prompt>chosen instruction>output instruction>response instruction>answer
    original>corrected incorrect>correct wrong>right ungrammatical>grammatical error>correction noisy>clean orig>corr
    original>simplified complex>simple normal>simple expert>simple informal>formal toxic>neutral original>paraphrase
    nl>code nl>cm nl>cmd nl>bash nl>sql intent>snippet text>sql question>sql question>query question>sparql
    docstring>code code>comment diff>msg mr>ref table>text data>text triples>text concepts>target text>target
    document>summary article>highlights article>summary dialogue>summary before>after old>new da>text da>ref orig>simp
    q>a text>output sentence>paraphrase phrase>paraphrase context>response utterance>response cause>effect
    premise>conclusion
"""
PAIRS: tuple[tuple[str, str], ...] = tuple(
    (source, target) for source, _, target in (pair.partition(">") for pair in _PAIR_NAMES.split())
)
# Column names of Chinese, Japanese, Korean, Russian, Ukrainian, Arabic and Greek files.
_IN_OTHER_SCRIPTS = {
    name: word
    for word, names in {
        "article": "文章 記事 기사",
        "choice": "选项 選項 選択肢 선택지 보기",
        "text": "文本 内容 正文 句子 テキスト 本文 文 문장 텍스트 текст отзыв твит النص نص κείμενο",
        "comment": "评论 评价 留言 コメント 댓글 комментарий تعليق",
        "title": "标题 題名 タイトル 제목 заголовок название العنوان τίτλος",
        "label": "标签 標籤 ラベル 라벨 레이블 метка мітка ετικέτα",
        "class": "类别 分类 類別 класс категория клас التصنيف الفئة",
        "sentiment": "情感 情绪 感情 감정 감성 тональность настроение المشاعر",
        "question": "问题 用户问题 提问 質問 問題 질문 вопрос питання السؤال سؤال ερώτηση",
        "answer": "正确答案 正確答案 正解 答案 回答 回复 解答 답변 정답 ответ відповідь الإجابة الجواب απάντηση",
        "context": "上下文 段落 材料 文脈 문맥 контекст параграф السياق",
        "summary": "摘要 总结 要約 요약 резюме аннотация الملخص",
        "score": "分数 评分 得分 点数 점수 평점 оценка балл рейтинг الدرجة التقييم",
    }.items()
    for name in names.split()
}
# Romanian, Indonesian, Turkish, Polish, Czech, Slovene, Dutch, Swedish, Hungarian, Swahili, without accents.
_ENGLISH = {
    name: word
    for word, names in {
        "question": "intrebare intrebarea pertanyaan soru pytanie otazka vprasanje vraag fraga kerdes swali",
        "answer": "raspuns raspunsul jawaban cevap odpowiedz odpoved odgovor antwoord svar valasz jibu",
        "text": "teks metin tekst besedilo szoveg",
        "comment": "komentar yorum komentarz ulasan",
        "title": "judul baslik tytul naslov titlu",
        "article": "berita haber artykul clanek",
        "label": "etiket etykieta oznaka stitek nhan",
        "category": "kategori kelas sinif kategoria kategorie kategorija categorie",
        "sentiment": "sentimen duygu sentymet sentimento",
        "summary": "ringkasan ozet streszczenie rezumat povzetek",
        "score": "nilai puan ocena",
    }.items()
    for name in names.split()
}
_ACCENTS = re.compile(r"[^a-z0-9]+")
_EDGES = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-zA-Z])(?=\d)|(?<=\d)(?=[a-zA-Z])")


@dataclass(frozen=True)
class Name:
    plain: str  # without accents, numbers and what an inner path adds: 'Answers.text' -> 'answers'
    words: frozenset[str]
    last: str
    number: str  # 'sentence2' -> '2', 'para_a' -> 'a'; '' where it has none

    @classmethod
    def of(cls, path: str) -> Name:
        """'Párrafo 2' -> plain 'parrafo', number '2'."""
        parts = path.split(".")
        telling = parts[-2] if len(parts) > 1 and parts[-1].lower() in ("text", "value", "content") else parts[-1]
        if len(parts) > 1 and telling.isdigit():  # simp.0, simp.1
            telling = f"{parts[-2]}_{telling}"
        head, number = re.fullmatch(r"(.*?)[\s_-]*(\d*)", telling.strip().lower(), re.DOTALL).groups()  # type: ignore[union-attr]
        if head in _IN_OTHER_SCRIPTS:
            telling = _IN_OTHER_SCRIPTS[head] + number
        letters = unicodedata.normalize("NFKD", telling).encode("ascii", "ignore").decode()
        words = [_ENGLISH.get(word, word) for word in _ACCENTS.split(_EDGES.sub("_", letters).lower()) if word]
        numbers = [word for word in words if word.isdigit()]
        if not numbers and len(words) > 1 and len(words[-1]) == 1:
            numbers = [words.pop()]
        letters_only = [word for word in words if not word.isdigit()]
        return cls(
            "_".join(letters_only), frozenset(letters_only), letters_only[-1] if letters_only else "", "".join(numbers)
        )


def score_role(name: Name, role: str) -> float:
    """How clearly a name says that its column has a role: near 1 if it is the role's name, 0 if it says nothing."""
    if role == "label":
        return _score_label(name)
    known = name_words.ROLES[role]
    if name.plain in known:
        return 0.95 + _earliness(name.plain, known)
    if name.plain.replace("_", "") in known:
        return 0.95
    if name.last in known and len(name.last) > 1:
        return 0.8 + _earliness(name.last, known)
    found = [_earliness(word, known) for word in name.words if word in known and len(word) > 1]
    return 0.6 + max(found) if found else 0.0


def is_role(name: Name) -> bool:
    return any(score_role(name, role) >= 0.8 for role in name_words.ROLES) or _score_label(name) >= 0.5


def _score_label(name: Name) -> float:
    if name.plain in name_words.LABELS:
        return name_words.LABELS[name.plain]
    if name.words & AGREED and any(name_words.LABELS.get(word, 0.0) >= 0.8 for word in name.words - AGREED):
        return 1.4  # gold_label before label1 and label2
    found = [
        name_words.LABELS[word] * (0.85 if word == name.last else 0.6)
        for word in name.words
        if word in name_words.LABELS
    ]
    return max(found, default=0.0)


def _earliness(word: str, known: tuple[str, ...]) -> float:
    """Up to 0.05 for the first, most typical names."""
    return 0.05 * (1 - known.index(word) / len(known))


def find_languages(paths: Iterable[str]) -> dict[str, str]:
    """Path -> language, for columns named after one: translation.en -> English, fra_Latn -> French."""
    by_name = {name: language for language, names in name_words.LANGUAGES.items() for name in names}
    found: dict[str, str] = {}
    for path in paths:
        last = re.split(r"[.]", path)[-1].lower()
        plain = unicodedata.normalize("NFKD", last).encode("ascii", "ignore").decode()
        words = re.split(r"[^a-z]+", plain)
        name = plain if plain in by_name else ""
        if not name and re.fullmatch(r"[a-z]{2,3}[-_][a-z]{2,4}", plain):
            name = words[0]
        telling = [word for word in words if word in by_name and len(word) > 3]  # text_english, english_sentence
        if not name and len(telling) == 1:
            name = telling[0]
        if name in by_name:
            found[path] = by_name[name]
    return found


def find_direction(text: str, languages: Iterable[str]) -> tuple[str, str] | None:
    """Source and target language in the name of a file or model: opus-mt-en-fr, nl2bash, eng_to_yor."""
    codes = {
        name: language for language in languages for name in name_words.LANGUAGES.get(language, (language.lower(),))
    }
    alternatives = "|".join(sorted(map(re.escape, codes), key=len, reverse=True))
    if not alternatives or re.search(
        rf"(?<![a-z])(?:{alternatives})(?:[-_]+(?:{alternatives})(?![a-z])){{2,}}", text.lower()
    ):
        return None  # three languages in a row are a list of them
    found = {
        (codes[first], codes[second])
        for first, second in re.findall(
            rf"(?<![a-z])({alternatives})(?:[-_.]?(?:to|2)[-_.]?|[-_>]+)({alternatives})(?![a-z])", text.lower()
        )
        if codes[first] != codes[second]
    }
    return found.pop() if len(found) == 1 else None


def pair_order(first: Name, second: Name) -> int:
    """-1 if first is the source of second by a known pair of names, 1 if it is the target, 0 if neither is known."""
    for source, target in PAIRS:
        if first.plain == source and second.plain == target:
            return -1
        if first.plain == target and second.plain == source:
            return 1
    for source, target in PAIRS:
        if source in first.words and target in second.words and source not in second.words:
            return -1
        if target in first.words and source in second.words and source not in first.words:
            return 1
    return 0
