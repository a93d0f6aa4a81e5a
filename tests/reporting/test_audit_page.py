"""The page of an audit: everything that it found, and nothing that a browser would run."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.comparison.audit import audit
from seqfit.errors import RunError
from seqfit.reporting import write_audit_page
from seqfit.reporting.audit_page import show_audit
from tests.comparison.test_audit import classic_rows


def test_the_page_says_what_differs_why_and_what_to_change(tmp_path: Path) -> None:
    found = audit(classic_rows())
    text = write_audit_page(found, tmp_path / "new" / "audit.html").read_text("utf-8")
    assert "Was it fair? No" in text
    assert '<span class="badge bad">inverted</span>' in text
    assert '<span class="badge good">as meant</span>' in text
    for finding in found.findings:
        assert finding.why in text.replace("&#x27;", "'")
    assert "<h2>Limits</h2>" in text
    assert "All settings" in text


def test_names_are_escaped_and_a_fair_comparison_says_so() -> None:
    rows = [{"name": name, "arguments": {"learning_rate": 1e-4}} for name in ("<b>one</b>", "two")]
    found = audit(rows)
    assert found.is_fair
    text = "".join(show_audit(found))
    assert "&lt;b&gt;one" in text
    assert "<b>one" not in text


def test_a_page_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="can't be written"):
        write_audit_page(audit(classic_rows()), tmp_path / "file" / "audit.html")
