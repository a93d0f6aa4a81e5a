"""Words in the names of columns, files and languages.

Names of columns are English first, then those of Spanish, French, German, Portuguese and Italian files.

    split_of("dialogsum.dev.jsonl") == "validation"
"""

from __future__ import annotations

import re

ROLES: dict[str, tuple[str, ...]] = {
    role: tuple(names.split())
    for role, names in {
        "question": (
            "question questions query problem ask ques prompt instruction goal stem pregunta problema ejercicio "
            "enunciado frage pergunta domanda queries"
        ),
        "context": (
            "context contexts passage passages paragraph paragraphs para evidence support supports background story "
            "ctx facts snippet snippets contexto contextos pasaje parrafo kontext contexte document article abstract "
            "knowledge reading"
        ),
        "answer": (
            "answer answers response responses solution solutions reply output completion gold ans respuesta "
            "respuestas solucion antwort antworten reponse resposta risposta label"
        ),
        "text": (
            "text texts sentence tweet review comment content body message utterance post document article news "
            "dialogue dialog statement sms email mail paragraph doc texto documento articulo contenido cuerpo frase "
            "noticia comentario dialogo input testo texte satz kommentar nachricht conversation transcript reviews "
            "question question query claim headline title description abstract story phrase passage"
        ),
        "title": "title headline headlines subject heading titulo titre titel summary name",
        "summary": (
            "summary summaries highlights highlight tldr abstract resumen sumario resume zusammenfassung resumo "
            "riassunto headline headlines title target output"
        ),
        "choices": "choice choices option options ending endings candidate candidates alternative",
        "source": "source src origen input original prompt instruction before incorrect complex",
        "target": "target tgt trg destino output ref reference completion after correct simple",
    }.items()
}
# How clearly a name says that its column is the label.
LABELS: dict[str, float] = {
    name: score
    for score, names in {
        1.4: "ground_truth groundtruth",  # before the labels that models or annotators gave
        1.0: (
            "label labels class category sentiment intent intents emotion polarity stance gold etiqueta categoria "
            "clase sentimiento klasse classe kategorie polaridad polaridade polarite polarita"
        ),
        0.8: "emotions categories target y decision classification verdict winner annotation annotations",
        0.5: (
            "rating stars score spam hate toxic toxicity offensive sarcasm irony similarity similar relatedness "
            "relevance quality grade truth factual judgment judgement entailment acceptable acceptability humor "
            "duplicate paraphrase correct subjectivity topics tags genres intensity valence"
        ),
        0.2: "type tag topic genre output is relation cat subtask value answer",
    }.items()
    for name in names.split()
}
_LANGUAGE_NAMES = """
    English: en eng english ingles anglais; German: de deu ger german aleman deutsch;
    Spanish: es spa esp spanish espanol castellano; French: fr fra fre french frances francais;
    Portuguese: pt por portuguese portugues; Italian: it ita italian italiano; Romanian: ro ron rum romanian rumano;
    Catalan: ca cat catalan; Dutch: nl nld dut dutch; Polish: pl pol polish; Czech: cs ces cze czech;
    Swedish: sv swe swedish; Finnish: fi fin finnish; Russian: ru rus russian; Ukrainian: uk ukr ukrainian;
    Turkish: tr tur turkish; Arabic: ar ara arb arabic; Persian: fa fas per pes persian farsi; Hindi: hi hin hindi;
    Bengali: bn ben bengali bangla; Urdu: ur urd urdu; Tamil: ta tam tamil; Chinese: zh zho chi cn chinese mandarin;
    Japanese: ja jpn jp japanese; Korean: ko kor kr korean; Vietnamese: vi vie vietnamese;
    Indonesian: id ind indonesian; Thai: th tha thai; Greek: el ell gre greek; Hebrew: he heb hebrew;
    Swahili: sw swa swh swahili; Yoruba: yo yor yoruba; Hausa: ha hau hausa; Igbo: ig ibo igbo;
    Amharic: am amh amharic; Nepali: ne nep npi nepali; Hungarian: hu hun hungarian; Danish: da dan danish;
    Norwegian: no nor nob norwegian; Bulgarian: bg bul bulgarian; Croatian: hr hrv croatian; Serbian: sr srp serbian;
    Quechua: qu que quy quz quechua; Guarani: gn grn guarani; Welsh: cy cym welsh; Irish: ga gle irish;
    Basque: eu eus basque; Galician: gl glg galician
"""
LANGUAGES: dict[str, tuple[str, ...]] = {
    name.strip(): tuple(words.split()) for name, _, words in (one.partition(":") for one in _LANGUAGE_NAMES.split(";"))
}
_METADATA_NAMES = """
    author authors user username speaker publisher editor location city country region timezone date time timestamp
    created updated published year month day fecha split fold annotator annotators worker workers hitid confidence
    probability count lang language locale license image images img photo avatar thumbnail file filename path version
    gender age likes retweets views votes upvotes downvotes num length explanation rationale justification reason
    notes note hash doi isbn domain hostname creator journal update modified coord coordinates latitude longitude
    offset start end span spans tokens pos ner lemma lemmas parse embedding vector source_url page meta metadata
"""
METADATA = frozenset(_METADATA_NAMES.split())
_KEYS_NAMES = """
    id ids uid uuid guid qid idx index key fname filename url urls link links href pid cid docid pmid md5 sha sha1
    identifier no nr row rowid unnamed uri read_more permalink datetime sid tid num s_no sno serial seq hitid asin
"""
KEYS = frozenset(_KEYS_NAMES.split())
_COMMON_NAMES = """
    id ids idx index qid uid guid pid key name title headline header subject date time timestamp created url link
    source text texts content contents comment comments sentence sentences premise hypothesis document doc article body
    review reviews tweet tweets post message messages utterance description abstract summary highlights label labels
    class classes category categories target targets sentiment emotion polarity intent intents topic stance rating score
    scores stars gold question questions query answer answers response responses reply context passage paragraph input
    output inputs outputs instruction prompt completion src tgt ref reference translation lang language split author
    user username gender age country city type tag tags word words token count en de es fr english german spanish french
    chinese arabic hindi russian japanese korean
"""
# What a header may hold.
KNOWN = frozenset(_COMMON_NAMES.split()) | {
    word for words in (*ROLES.values(), *LANGUAGES.values(), LABELS, METADATA, KEYS) for word in words if len(word) > 3
}
_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("valid", "validation", "dev", "devel", "val", "eval"), "validation"),
    **dict.fromkeys(("test", "testing", "tst"), "test"),
}


def split_of(name: str) -> str | None:
    """The split that a name says; None if no word does, or words of two splits."""
    splits = {_SPLIT_WORDS[word] for word in re.split(r"[^a-z]+", name.lower()) if word in _SPLIT_WORDS}
    return splits.pop() if len(splits) == 1 else None
