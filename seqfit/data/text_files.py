"""Text files as lines or chunks, in any encoding, compressed or not.

In: a path. Out: decoded lines or chunks, one at a time. The one idea: bytes are decoded here and nowhere else. Bytes
that do not decode are an error that names the line or, for a reader that can leave out a row, characters that no real
text has, one per byte (`BROKEN`).

    b"\\xef\\xbb\\xbfa\\nb\\r\\n" -> "a\\n", "b\\r\\n"     (the byte order mark is removed, line ends stay)

The encoding is detected in one pass over the bytes that keeps a few lines. Text in another encoding is practically
never valid UTF-8, so only lines that are not UTF-8 go to a detector. A file that is mostly UTF-8 is read as UTF-8, and
the reader leaves out its broken lines.

    b"ma\\xc3\\xb1ana\\n"                   utf-8
    b"\\xff\\xfem\\0a\\0"                   utf-16
    b"ma\\xf1ana\\n"                       cp1252, which has all of latin-1's characters and the quotes of Windows
    b"\\xbe\\xe0\\xc0\\xeb\\xb4\\xa8\\n"     gb18030

charset-normalizer distinguishes scripts. Among Latin code pages it only guesses: half of one-line French samples came
out as cp1250. They are distinguished by the letters that their languages use, `_LATIN`.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from seqfit.data.archives import read_head, reading
from seqfit.errors import DataError, did_you_mean

BROKEN = re.compile("[\udc80-\udcff]")  # bytes that could not be decoded, as 'surrogateescape' keeps them
_BLOCK_BYTES = 1 << 20
_SAMPLE_BYTES = 1 << 16
_LONG_LINE = 2000
_IN_WORDS = re.compile(rb"(?<=[A-Za-z])[\x80-\xff]|[\x80-\xff](?=[A-Za-z])")
_FREQUENT = frozenset(  # a third of the characters of any Chinese text, and as many of a Korean one
    "的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可她里后小么心多天"
    "而能好都然没日于起还发成事只作当想看文无开手十用主行方又如前所本见经头面公同三已老从动两长知样现分将外但身些"
    "与高意進這來國個說們為時會過學對後麼沒還發當無開見經頭從動兩長樣現將與"
    "이다는에의가을고를하지은로도한기사해아서나어그인자리있대라수시정일부보"
)
_FEW_BYTES = 3  # fewer prove nothing, and cp1252 is by far the most frequent
_BEYOND_ASCII = bytes(range(128, 256))
_OTHER_SCRIPTS = (
    *("gb18030", "big5", "cp932", "euc_jp", "cp949"),
    *("cp1251", "koi8_r", "cp866", "cp1253", "cp1255", "cp1256", "cp874"),
)
_CENTRAL_EUROPE = ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "čćđšž", "ăâîşţ")
_LATIN = {  # code page -> the letters beyond a-z of each of its languages; the first that explains most is taken
    "cp1252": (
        *("áéíóúüñ", "àâæçèéêëîïôœùûüÿ", "äöüß", "àáâãçéêíóôõúü", "àèéìíòóùú"),
        *("åäöéæø", "áéíóúýþæðö", "äöüõ", "éèëïóöü"),
    ),
    "cp1250": _CENTRAL_EUROPE,
    "iso8859_2": _CENTRAL_EUROPE,
    "cp1254": ("çğıöşüâî",),
    "cp1257": ("ąčęėįšųūž", "āčēģīķļņšūž"),
    "mac_roman": ("áéíóúüñ", "àâæçèéêëîïôœùûü", "äöüß", "àáâãçéêíóôõú", "åäöéæø"),
}
_QUOTES = frozenset("‘’‚“”„–—…«»¡¿")
_SIGNS = _QUOTES | set("\xa0•€£§©®°±´·™²³ºª½¼¾×")


@dataclass(frozen=True)
class Encoding:
    """A codec, the line end, whether some lines do not decode, and the first words that depend on the codec."""

    name: str
    line_end: str = "\n"
    has_broken: bool = False
    words: tuple[str, ...] = ()
    is_guessed: bool = False

    @property
    def is_wide(self) -> bool:
        """Whether a line end takes more than one byte."""
        return self.name.startswith(("utf-16", "utf-32"))

    def describe(self, file: str) -> str | None:
        if not self.is_guessed:
            return None
        shown = ", ".join(repr(word) for word in self.words)
        depends = f" (first words that depend on it: {shown})" if shown else ""
        return f"{file}: read as {self.name}{depends}; set data.encoding if that is wrong"


def find_encoding(path: Path, stated: str = "auto") -> Encoding:
    """The encoding of a file; one pass per file, cached until the file changes."""
    status = path.stat()
    return _find(path, status.st_size, status.st_mtime_ns, stated)


@lru_cache(maxsize=4096)
def _find(path: Path, size: int, mtime_ns: int, stated: str) -> Encoding:
    head = read_head(path, _BLOCK_BYTES)
    if stated != "auto":
        return Encoding(_known_codec(stated), _line_end(head, stated), has_broken=True)
    if (wide := _find_wide(head)) is not None:
        return Encoding(wide, _line_end(head, wide), has_broken=True, is_guessed=not head.startswith(codecs.BOM_UTF8))
    line_end = _line_end(head, "utf-8")
    good, broken, sample = _scan(path)
    if not broken or good > broken:
        return Encoding("utf-8", line_end, has_broken=broken > 0)
    name = recognise(sample)
    words = dict.fromkeys(word[:20] for word in sample.decode(name, "replace").split() if not word.isascii())
    return Encoding(name, line_end, True, tuple(words)[:3], is_guessed=True)


def _known_codec(stated: str) -> str:
    try:
        return codecs.lookup(stated).name
    except LookupError:
        known = ("utf-8", "utf-16", "cp1252", "latin-1", "gb18030", "big5", "shift_jis", "euc-kr", "cp1251", "cp1250")
        raise DataError(
            f"data.encoding is '{stated}'",
            "It must be an encoding that Python knows",
            f"Set data.encoding=auto, or an encoding such as {', '.join(known)}",
            hint=did_you_mean(stated, known),
        ) from None


def _line_end(head: bytes, name: str) -> str:
    r"""Files of old Macs end their lines in \r, and then have no \n."""
    is_wide = name.startswith(("utf-16", "utf_16", "utf-32", "utf_32"))
    text = head.decode(name if is_wide else "latin-1", "ignore")
    return "\r" if "\r" in text and "\n" not in text else "\n"


def _find_wide(head: bytes) -> str | None:
    """UTF-16 and UTF-32, by their byte order mark or by the positions of zero bytes."""
    if head.startswith(codecs.BOM_UTF8):
        return None
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):  # first: UTF-16's mark is the beginning of one
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    head = head[:4096]
    zeros = [head[at::4].count(0) / max(1, len(head[at::4])) for at in range(4)]
    if max(zeros) < 0.3:
        return None
    if min(zeros[1:]) > 0.9 > zeros[0] or min(zeros[:3]) > 0.9 > zeros[3]:
        return "utf-32-le" if zeros[0] < 0.9 else "utf-32-be"
    even, odd = (zeros[0] + zeros[2]) / 2, (zeros[1] + zeros[3]) / 2
    if odd > 0.3 and even < 0.05:
        return "utf-16-le"
    return "utf-16-be" if even > 0.3 and odd < 0.05 else None


def _scan(path: Path) -> tuple[int, int, bytes]:
    """The number of non-ASCII characters in UTF-8, of bytes that are not UTF-8, and the first lines with such bytes."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    good = broken = sampled = 0
    sample: list[bytes] = []
    with reading(path) as file:
        while block := file.read(_BLOCK_BYTES):
            text = decoder.decode(block)
            if text.isascii():
                continue
            faults = len(BROKEN.findall(text))
            broken += faults
            good += len(text) - len(block.translate(None, _BEYOND_ASCII)) - faults
            if faults and sampled < _SAMPLE_BYTES:
                lines = [_around_fault(line) for line in text.splitlines() if BROKEN.search(line)]
                sample += lines
                sampled += sum(map(len, lines))
    broken += len(decoder.decode(b"", final=True))
    return good, broken, b"\n".join(sample)[:_SAMPLE_BYTES]


def _around_fault(line: str) -> bytes:
    """The line's bytes; if it is long, a part from the white space before the first byte that is not UTF-8."""
    if len(line) > _LONG_LINE:
        fault = BROKEN.search(line)
        start = 0 if fault is None else max(line.rfind(char, 0, fault.start()) for char in ' "') + 1
        line = line[start : start + _LONG_LINE]
    return line.encode("utf-8", "surrogateescape")


def recognise(sample: bytes) -> str:
    words = [word for word in re.findall(rb"[A-Za-z\x80-\xff]{2,}", sample) if not word.isascii()]
    above = [sum(byte > 127 for byte in word) for word in words]
    in_long_words = sum(count for count in above if count > 2)
    # Measured: 7 to 40% in Latin scripts, from 67% (Big5, whose second bytes may be letters) to 100% in others.
    is_other = sum(above) > 0.55 * sum(map(len, words)) and in_long_words > 0.5 * sum(above)
    return (_other_script(sample) if is_other else None) or _latin_code_page(sample)


def _other_script(sample: bytes) -> str | None:
    import charset_normalizer

    for name in ("euc_jp", "cp932"):
        if _kana_share(sample, name) > 0.35:  # in half of short samples it is taken for Korean
            return name
    best = charset_normalizer.from_bytes(sample, cp_isolation=list(_OTHER_SCRIPTS)).best()
    if best is not None:
        return best.encoding
    shares: dict[str, float] = {}  # text with broken bytes: the encoding under which most characters are frequent ones
    for name in ("gb18030", "big5", "cp932", "euc_kr"):
        text = sample.decode(name, "replace")
        others = [char for char in text if ord(char) > 127]
        if text.count("\ufffd") < 0.05 * len(others):
            shares[name] = sum(char in _FREQUENT for char in others) / len(others)
    found = max(shares, key=lambda name: shares[name], default=None)
    return found if found is not None and shares[found] > 0.2 else None


def _kana_share(sample: bytes, name: str) -> float:
    """The share of two-byte hiragana and katakana among non-ASCII characters; 0 if the bytes do not decode."""
    try:
        text = sample.decode(name)
    except UnicodeDecodeError:
        return 0.0
    others = [char for char in text if ord(char) > 127]
    return sum("\u3041" <= char <= "\u30ff" for char in others) / max(1, len(others))


def _latin_code_page(sample: bytes) -> str:
    """The code page under which most characters inside words are letters of one language; else cp1252."""
    in_words = len(_IN_WORDS.findall(sample))
    # ISO 8859 has control characters where Windows has quotes and letters: text with these bytes is not in it.
    has_controls = re.search(rb"[\x80-\x9f]", sample) is not None
    pages = [name for name in _LATIN if not (has_controls and name.startswith("iso8859"))]
    scores = {name: max(_explained(sample, name)) for name in pages}
    best = max(scores, key=lambda name: scores[name])
    letters = len(re.findall(rb"[A-Za-z\x80-\xff]", sample))
    beyond = len(re.findall(rb"[\x80-\xff]", sample))
    if beyond > 200 and beyond > 0.5 * letters and max(scores.values()) < 0.9:  # no Latin script is like that
        raise DataError(
            "The text is not UTF-8, and half of its letters are not ASCII",
            "Its encoding could not be detected",
            "Set data.encoding to gb18030, big5, shift_jis, euc-kr, cp1251, koi8-r, cp1256, cp874, tis-620 or another",
        )
    return best if in_words >= _FEW_BYTES and scores[best] > max(0.9, scores["cp1252"]) else "cp1252"


def _explained(sample: bytes, name: str) -> list[float]:
    """Per language of the code page: the share of characters next to a letter that the language uses there."""
    text = sample.decode(name, "replace")
    letters: Counter[str] = Counter()
    signs = total = 0
    for match in re.finditer(r"[^\x00-\x7f]", text):
        char, at = match.group(), match.start()
        before, after = text[at - 1 : at], text[at + 1 : at + 2]
        if not (before.isalpha() or after.isalpha()):
            continue
        total += 1
        if char.isalpha():
            if not (char.isupper() and before.islower()):
                letters[char.lower()] += 1
        elif char in (_SIGNS if name == "cp1252" else _QUOTES) and (
            char in "’·" or not (before.isalpha() and after.isalpha())
        ):
            signs += 1
    return [
        (signs + sum(count for char, count in letters.items() if char in known)) / max(1, total)
        for known in _LATIN[name]
    ]


_BOM = "\ufeff"


def read_text_lines(path: Path, encoding: str = "auto", *, keep_broken: bool = False) -> Iterator[str]:
    r"""Lines with their ends. Only \n ends a line (\r if there is no \n): sentences contain other separators.

    `keep_broken`: a line that does not decode has `BROKEN` characters instead of being an error.
    """
    found = find_encoding(path, encoding)
    if found.is_wide or found.line_end == "\r":
        yield from _split(read_chunks(path, encoding, keep_broken=keep_broken), found.line_end)
        return
    errors = "surrogateescape" if keep_broken else "strict"
    with reading(path) as file:
        yield from decode_lines(file, str(path), found.name, errors)


def _split(chunks: Iterable[str], line_end: str) -> Iterator[str]:
    rest = ""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(line_end)
        yield from (line + line_end for line in lines)
    if rest:
        yield rest


def decode_lines(lines: Iterable[bytes], name: str, encoding: str = "utf-8", errors: str = "strict") -> Iterator[str]:
    """Decoded lines without the byte order mark; `name` is for errors."""
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode(encoding, errors)
        except UnicodeDecodeError as error:
            raise _not_decoded(name, number, error) from error
        yield text.removeprefix(_BOM) if number == 1 else text


def read_chunks(path: Path, encoding: str = "auto", *, keep_broken: bool = False) -> Iterator[str]:
    """The decoded text in chunks of about 1 MiB."""
    found = find_encoding(path, encoding)
    errors = "surrogateescape" if keep_broken and not found.is_wide else "strict"
    decoder = codecs.getincrementaldecoder(found.name)(errors)
    lines, is_first = 1, True
    chunk = b""
    with reading(path) as file:
        try:
            while chunk := file.read(_BLOCK_BYTES):
                text = decoder.decode(chunk)
                yield text.removeprefix(_BOM) if is_first else text
                is_first = False
                lines += chunk.count(b"\n")
            yield decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            # The decoder may hold bytes of the previous chunk; a split character has no line end in it.
            raise _not_decoded(str(path), lines + chunk[: error.start].count(b"\n"), error) from error


def read_beginning(path: Path, encoding: str, characters: int) -> str:
    """The first characters, at most this many, with `BROKEN` ones for bytes that do not decode."""
    pieces, size = [], 0
    for chunk in read_chunks(path, encoding, keep_broken=True):
        pieces.append(chunk)
        size += len(chunk)
        if size >= characters:
            break
    return "".join(pieces)[:characters]


def count_lines(path: Path) -> int:
    """The number of lines, the last with or without its end; counted once per file."""
    status = path.stat()
    return _count(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4096)
def _count(path: Path, size: int, mtime_ns: int) -> int:
    with reading(path) as file:
        count, last = 0, b"\n"
        while chunk := file.read(_BLOCK_BYTES):
            count += chunk.count(b"\n")
            last = chunk[-1:]
    return count + (last != b"\n")


def _not_decoded(name: str, line: int, error: UnicodeDecodeError) -> DataError:
    byte = error.object[error.start]
    encoding = error.encoding.upper() if error.encoding.startswith("utf") else error.encoding
    return DataError(
        f"{name}, line {line}: byte 0x{byte:02x} is not {encoding}",
        f"The text is read as {encoding}",
        "Correct the line, or set data.encoding to the file's encoding",
    )
