"""Which queues a worker serves, and what its row says of it."""

from __future__ import annotations

import pytest

from django_jobs.domain.served import Served


@pytest.mark.parametrize(
    ("served", "text", "told", "mail"),
    [
        (Served(), "[]", "all", True),
        (Served(names=("mail", "web")), '["mail", "web"]', "mail, web", True),
        (Served(names=("web",)), '["web"]', "web", False),
        (Served(excluded=("mail", "slow")), '{"except": ["mail", "slow"]}', "all but mail, slow", False),
        (Served(excluded=("slow",)), '{"except": ["slow"]}', "all but slow", True),
    ],
)
def test_row_says_what_is_served(served: Served, text: str, told: str, mail: bool) -> None:
    """What is written is read back, told to people, and asked about a queue."""
    assert (served.to_text(), str(served), Served.from_text(text)) == (text, told, served)
    assert ("mail" in served, served.among(["mail"]) == ["mail"]) == (mail, mail)


@pytest.mark.parametrize("text", ["", "{", "3", '"mail"', "null"])
def test_text_of_something_else_is_refused(text: str) -> None:
    """A damaged row is an error of its own kind, for whoever shows it."""
    with pytest.raises(ValueError):
        Served.from_text(text)
