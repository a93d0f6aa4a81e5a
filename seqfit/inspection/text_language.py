"""The language of some texts, if it is certain: by script, then by common words.

    ["¿Qué es lo que dijo de la guerra?", ...] -> "es"     ["什么时候?", ...] -> "zh"     ["foo 123"] -> None

Common words of one language must be twice as frequent as those of any other, and one word in twelve. Languages that
share their common words (Danish and Norwegian, Czech and Slovak) are not certain.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_SAMPLED_CHARS = 200_000
_SCRIPTS = {
    "kana": re.compile(r"[\u3040-\u30ff]"),
    "han": re.compile(r"[\u3400-\u9fff]"),
    "hangul": re.compile(r"[\uac00-\ud7af\u1100-\u11ff]"),
    "thai": re.compile(r"[\u0e00-\u0e7f]"),
    "greek": re.compile(r"[\u0370-\u03ff]"),
    "hebrew": re.compile(r"[\u0590-\u05ff]"),
    "arabic": re.compile(r"[\u0600-\u06ff]"),
    "cyrillic": re.compile(r"[\u0400-\u04ff]"),
    "devanagari": re.compile(r"[\u0900-\u097f]"),
    "bengali": re.compile(r"[\u0980-\u09ff]"),
    "tamil": re.compile(r"[\u0b80-\u0bff]"),
    "latin": re.compile(r"[a-zA-Z\u00c0-\u024f]"),
}
_OF_SCRIPT = {"han": "zh", "hangul": "ko", "thai": "th", "greek": "el", "hebrew": "he", "bengali": "bn", "tamil": "ta"}
_COMMON_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the of and to in a is was for on that with what it as by you this are my have not be at from",
        "es": "el la los las de del que y en un una por con para se qué su es lo como más no",
        "fr": "le la les des de du et est une un que qui dans pour pas sur au il elle vous je ce avec",
        "de": "der die das und ist nicht ein eine zu den von mit ich es im auf für dem sich auch",
        "pt": "os as de do da que em um uma para não com por se mais é isso você foi são",
        "it": "il la le di che un una per non è con del della gli nel sono mi si",
        "nl": "de het een van en is niet dat op te in ik voor met zijn die er aan",
        "ca": "el la els les de que en un una per amb no es del al és com més",
        "ro": "și de la în nu că pe cu o un este din pentru care mai să",
        "sl": "je in se na da za so ki pa ne bi kot tudi po ali iz še pri sem",
        "hr": "je i u se na da su za od koji što nije kao ali iz ne bi sam biti",
        "cs": "je se na že to v z do si ale jako jsem pro tak by když jeho byl s",
        "sk": "je sa na že to v z do si ale ako som pre tak by keď jeho bol aj",
        "pl": "w i na z że do nie się jest to jak o co dla od po ale przez za",
        "sv": "och att det som en är av för på med den till inte jag har om ett var",
        "da": "og at det er en til af på som med for ikke den har de jeg et var",
        "no": "og å det er en til av på som med for ikke den har de jeg et var",
        "fi": "ja on ei että se oli hän mutta kun ovat myös tai joka mitä ole",
        "hu": "a az és hogy nem is egy van meg ez de volt mint csak már ki",
        "tr": "ve bir bu için da de ile çok ne mi en gibi daha olan var ama",
        "id": "yang di dan ini itu dengan untuk tidak dari dalam pada ke saya ada akan bisa karena",
        "vi": "và của là có không được trong một cho những người với các này khi đã",
        "sw": "na ya wa kwa ni katika la za hii cha kuwa huo yake pia alisema",
        "tl": "ang ng sa na mga at ay si ko hindi ni para ito mo niya kung",
        "et": "ja on ei et see oma mis ta ka aga kui oli nii seda ning",
        "lt": "ir yra kad su tai bet iš į kaip ar jis už po buvo",
        "lv": "un ir ka ar no uz par bet kas kā tas viņš bija vai",
        "sq": "të e në dhe me një që për nga është si por nuk ka",
        "eu": "eta da ez du dira bat ere hau bere izan dute zen",
        "gl": "o a os as de do da que e en un unha para non con por se máis é",
        "af": "die en van is in het dat nie te wat vir met sy op hy was",
        "ru": "и в не на что я с как это он по но из у за",
        "uk": "і в не на що я з як це він по але та у до",
        "hi": "है के में की का और को से हैं एक पर नहीं यह कि",
        "mr": "आहे आणि च्या या हे की मध्ये ते नाही आहेत",
        "ar": "في من على إلى أن ما لا هذا التي عن مع هو كان",
        "fa": "در به از که این را با است برای آن می های",
        "ur": "کے میں کی ہے کا اور سے کو نے پر ہیں یہ",
    }.items()
}
_OF_LETTERS: dict[str, tuple[str, ...]] = {
    "cyrillic": ("ru", "uk"),
    "devanagari": ("hi", "mr"),
    "arabic": ("ar", "fa", "ur"),
}
_OF_LETTERS["latin"] = tuple(one for one in _COMMON_WORDS if one not in sum(_OF_LETTERS.values(), ()))


def find_language(texts: Sequence[str]) -> str | None:
    """The two-letter code, or None if it is not certain."""
    text = " ".join(texts)[:_SAMPLED_CHARS].lower()
    counts = {script: len(pattern.findall(text)) for script, pattern in _SCRIPTS.items()}
    total = sum(counts.values())
    if total < 20:
        return None
    if counts["kana"] > total / 20:
        return "ja"
    script, most = max(counts.items(), key=lambda entry: entry[1])
    if most < 0.6 * total:
        return None
    if script in _OF_SCRIPT:
        return _OF_SCRIPT[script]
    words = re.findall(r"[^\W\d_]+(?:[\u0900-\u097f]*)", text)
    languages, occurring = _OF_LETTERS[script], Counter(words)
    shared = Counter(word for one in languages for word in _COMMON_WORDS[one])  # four languages have 'de'
    scores = {one: sum(occurring[word] / shared[word] for word in _COMMON_WORDS[one]) for one in languages}
    if "es" in languages:
        scores["es"] += 5 * text.count("¿")
    (first, language), (second, _) = sorted(((count, one) for one, count in scores.items()), reverse=True)[:2]
    return language if words and first >= len(words) / 12 and first >= 2 * second else None
