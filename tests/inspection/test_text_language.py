from __future__ import annotations

import pytest

from seqfit.inspection.text_language import find_language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("¿Qué es lo que dijo de la guerra?", "es"),
        ("What is the cause of it?", "en"),
        ("Das ist nicht der Fall, und die Katze weiß es.", "de"),
        ("Não sei o que é isso para você.", "pt"),
        ("这个问题的答案在哪里可以找到？这是什么时候的事情", "zh"),
        ("これはどこで見つかりますか。", "ja"),
        ("이것은 어디에서 찾을 수 있습니까?", "ko"),
        ("यह क्या है और आप कहाँ से हैं", "hi"),
        ("ما هو هذا في الكتاب من على الطاولة", "ar"),
        ("foo bar 123", None),
        ("", None),
        ("def f(x): return x + 1", None),
    ],
)
def test_a_language_is_named_only_where_it_is_sure(text: str, language: str | None) -> None:
    assert find_language([text] * 3) == language
