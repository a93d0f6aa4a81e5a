from __future__ import annotations

import os
from pathlib import Path

import pytest

from seqfit.data.formats import read_rows
from seqfit.data.layout import FileOptions
from seqfit.data.rows import BadRow
from seqfit.data.text_files import find_encoding, read_text_lines, recognise
from seqfit.errors import DataError

SAMPLES = {
    "cp1252": "Mañana será otro día, señor Núñez\nUm não é função às três irmãs\nDie Brücke über den größten Fluß\n",
    "cp1250": "Příliš žluťoučký kůň úpěl ďábelské ódy\nKníh je málo, řekl učitel\n",
    "iso8859_2": "Zażółć gęślą jaźń\nKsiążka była świetna, ale zakończenie nie\nNie polecam, obsługa była niemiła\n",
    "cp1254": "Bugün hava çok güzel, yürüyüşe çıktık\nTeşekkür ederim, iyi günler şimdi\n",
    "mac_roman": "C’est l’été à Besançon, où l’on mange du maïs\nDéjà vu à l’hôtel\n",
    "cp1251": "Сегодня хорошая погода, мы пошли гулять\nПривет, как дела?\n",
    "koi8_r": "Сегодня хорошая погода, мы пошли гулять\nПривет, как дела?\nДобрый день\n",
    "cp1253": "Σήμερα ο καιρός είναι καλός και πήγαμε βόλτα\n",
    "cp1256": "اليوم الطقس جميل وذهبنا في نزهة على الأقدام\n",
    "gb18030": "距离川沙公路较近,但是公交指示不对\n商务大床房,房间很大\n",
    "big5": "今天天氣很好我們去公園散步\n這個電影非常好看\n",
    "cp932": "今日は天気がいいので散歩に行きました\nこれはペンです。\n",
    "euc_jp": "今日は天気がいいので散歩に行きました\nこれはペンです。\n",
    "cp949": "오늘은 날씨가 좋아서 산책을 갔습니다\n안녕하세요 반갑습니다\n",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_two_lines_identify_an_encoding(name: str) -> None:
    data = SAMPLES[name].encode(name)
    assert data.decode(recognise(data)) == SAMPLES[name]


@pytest.mark.parametrize("text", ["£1.50 – don’t", "It costs 5€", "café", "naïve", "5 °C"])
def test_a_few_bytes_among_ascii_are_cp1252(text: str) -> None:
    assert recognise(text.encode("cp1252")) == "cp1252"


@pytest.mark.parametrize("name", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
def test_unicode_is_found_by_its_mark_or_its_zero_bytes(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.txt").write_bytes("text and naïve\r\nlabel\r\n".encode(name))
    assert list(read_text_lines(tmp_path / "a.txt")) == ["text and naïve\r\n", "label\r\n"]


def test_a_recognised_encoding_is_noted_with_the_first_words_that_depend_on_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("text,label\nonly £1.50 today,1\nSeñor Núñez,0\n".encode("cp1252"))
    note = find_encoding(tmp_path / "a.csv").describe("a.csv")
    assert note is not None
    assert note.startswith("a.csv: read as cp1252 (first words that depend on it: '£1.50', 'Señor', 'Núñez,0')")
    (tmp_path / "b.csv").write_bytes("text\nSeñor\n".encode())
    assert find_encoding(tmp_path / "b.csv").describe("b.csv") is None


def test_broken_lines_of_a_utf8_file_are_bad_rows(tmp_path: Path) -> None:
    good = "".join(f"día número {n},{n % 2}\n" for n in range(20)).encode()
    (tmp_path / "a.csv").write_bytes(b"text,label\n" + good + b"ma\xf1ana,1\n" + good)
    rows = list(read_rows(tmp_path / "a.csv"))
    bad = [row for row in rows if isinstance(row, BadRow)]
    assert (len(rows), [row.cause for row in bad]) == (41, ["not UTF-8"])
    assert bad[0].detail == "row 21: 'ma\ufffdana'"
    assert rows[0]["text"] == "día número 0"


def test_one_broken_byte_in_a_file_of_one_line_does_not_change_its_encoding(tmp_path: Path) -> None:
    rows = ", ".join(f'{{"text": "día {n}"}}' for n in range(300)).encode()
    (tmp_path / "a.json").write_bytes(b"[" + rows + b', {"text": "ma\xf1ana"}]')
    read = list(read_rows(tmp_path / "a.json"))
    assert read[7] == {"text": "día 7"}
    assert [row.cause for row in read if isinstance(row, BadRow)] == ["not UTF-8"]


def test_a_stated_encoding_decides(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("text,n\nЖук,1\n".encode("cp866"))
    assert list(read_rows(tmp_path / "a.csv", FileOptions(encoding="cp866"))) == [{"text": "Жук", "n": "1"}]
    with pytest.raises(DataError, match=r"data\.encoding is 'cp1225'.*Did you mean 'cp1252'"):
        find_encoding(tmp_path / "a.csv", "cp1225")


def test_a_file_is_scanned_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seqfit.data import text_files as encoding

    scans: list[Path] = []
    scan = encoding._scan
    monkeypatch.setattr(encoding, "_scan", lambda path: scans.append(path) or scan(path))
    path = tmp_path / "a.txt"
    path.write_text("a\n", "utf-8")
    for _ in range(3):
        list(read_text_lines(path))
    assert len(scans) == 1
    os.utime(path, (1, 1))
    list(read_text_lines(path))
    assert len(scans) == 2
