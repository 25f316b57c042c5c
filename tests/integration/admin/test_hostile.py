"""What strangers wrote is shown as text: no markup comes alive, no sign hides, and R72: no secret is seen."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection, models
from django.test import Client

from django_jobs.admin.decisions import OFFERS
from django_jobs.admin.pages import PAGES
from django_jobs.models import DeadLetter, Job, JobPayload, OperatorAction
from tests.factories_pages import one_of_each, text_columns
from tests.integration.admin.conftest import address

pytestmark = pytest.mark.django_db

HOSTILE = {
    "script": "<script>alert(1)</script>",
    "attribute": "\"><img src=x onerror=alert(1)>'",
    "bidi": "\u202egnp.exe\u2066\u200b\u0085",
    "escaped NUL": "\\u0000\\x00%00&#0;",
    "template": "{{ 7|add:7 }}{% debug %}${7*7}",
    "long": "<b>" * 5000,
}
SECRET = "hunter2-verysecret"
IN_TEXT = f"password={SECRET} GET https://u:{SECRET}@example.com/?token={SECRET} failed, Authorization: Bearer {SECRET}"
IN_JSON = json.dumps(
    {"password": SECRET, "list": [{"api_key": SECRET}], "text": IN_TEXT, "url": f"https://x?token={SECRET}"}
)


def plant(rows: dict[type[models.Model], Any], text: str) -> None:
    """Write the text into every free text column of every row, cut to its length, past the models' own refusals."""
    for model, row in rows.items():
        columns = {field.column: text[: field.max_length or None] for field in text_columns(model)}
        sets = ", ".join(f"{column} = %s" for column in columns)
        key = connection.ops.quote_name(model._meta.pk.column)
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE {model._meta.db_table} SET {sets} WHERE {key} = %s",
                [*columns.values(), row.pk.hex if connection.vendor == "sqlite" else row.pk],
            )


def pages(client: Client, rows: dict[type[models.Model], Any]) -> Iterator[tuple[str, str]]:
    """Yield every page that shows the rows: lists, rows, groups, histories and decisions."""
    urls = [address("deadletter", "changelist") + "?list=1", address("job", "change", rows[Job].pk) + "?all=1"]
    for model, offers in OFFERS.items():
        urls += [address(model._meta.model_name, offer.path.replace("-", "_"), rows[model].pk) for offer in offers]
    for model in PAGES:
        name, row = model._meta.model_name, rows.get(model, rows[Job])
        urls += [address(name, "changelist"), address(name, "change", row.pk), address(name, "history", row.pk)]
    for url in urls:
        answer = client.get(url)
        assert answer.status_code == 200, url
        yield url, answer.content.decode()


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_text_in_every_column_is_inert(root: Client, kind: str) -> None:
    """Markup is escaped, bidi and control signs are made visible, and a very long text does not break a page."""
    rows = one_of_each()
    plant(rows, HOSTILE[kind])
    for url, page in pages(root, rows):
        assert "<script>alert" not in page, url
        assert not re.search(r"<img[^>]*onerror", page), url
        assert "<b><b>" not in page, url
        assert not set("\u202e\u2066\u200b\u0085") & set(page), url
        assert "{{ 7" not in page or "{{ 7|add:7 }}" in page, url


@pytest.mark.parametrize("kind", ["script", "attribute", "bidi"])
def test_hostile_addresses_are_inert(root: Client, kind: str) -> None:
    """What stands in the address is escaped too, and no filter or search fails on it."""
    one_of_each()
    for name in ("q", "state", "job_type", "queue", "age", "needs", "before", "error", "reason", "list"):
        for model in (Job, DeadLetter):
            answer = root.get(address(model._meta.model_name, "changelist"), {name: HOSTILE[kind]})
            assert answer.status_code in (200, 302, 400), name
            assert "<script>alert" not in answer.content.decode()
            assert not re.search(r"<img[^>]*onerror", answer.content.decode())


@pytest.mark.parametrize("text", ["\x00", "\ud800", "x" * 5000, "%", "'; DROP TABLE django_jobs_job; --", "￿"])
def test_a_search_for_what_cannot_be_stored_finds_nothing(root: Client, text: str) -> None:
    """NUL, lone surrogates and over-long texts are answered alike on every database."""
    one_of_each()
    url = address("job", "changelist")
    answer = root.get(f"{url}?q={'%00' if text == chr(0) else '%ED%A0%80' if text == chr(0xD800) else text[:4000]}")

    page = answer.content.decode()
    assert answer.status_code == 200
    assert "/change/" not in page.partition('id="result_list"')[2] or "Null characters are not allowed" in page


@pytest.mark.parametrize(
    "lookup", ["state__contains=x", "subject__icontains=x", "payload__arguments__contains=x", "id=1"]
)
def test_only_declared_filters_are_allowed(root: Client, lookup: str) -> None:
    """Any other column in the address is refused: it could be searched from end to end, or read by guessing."""
    assert root.get(f"{address('job', 'changelist')}?{lookup}").status_code == 400


def test_r72_no_page_shows_a_secret(root: Client) -> None:
    """R72: a secret in arguments, nested, in a URL or in an error is on no page and in no line of Django's log."""
    rows = one_of_each()
    plant(rows, IN_TEXT)
    for model, columns in JSON_COLUMNS.items():
        with connection.cursor() as cursor:
            for column in columns:
                cursor.execute(f"UPDATE {model._meta.db_table} SET {column} = %s", [IN_JSON])
    # identities are compared and searched for, so they are what they are; a secret does not belong there
    Job.objects.update(
        job_type="tests.work", queue_name="default", subject="order:1", error_fingerprint="v1:" + "e" * 64
    )
    JobPayload.objects.update(key="order:1", key_scope="/tests.work")

    for url, page in pages(root, rows):
        assert SECRET not in page, url
    assert "[redacted]" in root.get(address("job", "change", rows[Job].pk)).content.decode()
    assert not LogEntry.objects.filter(change_message__contains=SECRET).exists()


JSON_COLUMNS: dict[type[models.Model], tuple[str, ...]] = {
    JobPayload: ("arguments", "context", "result"),
    OperatorAction: ("plan",),
}


@pytest.mark.parametrize("name", ["job", "deadletter", "sideeffect", "operatoraction"])
def test_pages_need_no_script_and_no_inline_style(root: Client, name: str) -> None:
    """With ``default-src 'self'`` nothing of a page is refused: no inline style, no inline script, no handler."""
    rows = one_of_each()
    by_name = {model._meta.model_name: row for model, row in rows.items()}
    row = by_name.get(name, rows[Job])
    urls = [address(name, "changelist"), address(name, "changelist") + "?list=1", address(name, "change", row.pk)]
    urls += [address("job", "replay", rows[Job].pk)]
    for url in urls:
        answer = root.get(url)
        if answer.status_code == 400:  # "list" is a parameter of dead letters alone
            continue
        page = answer.content.decode()
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page), url
        assert [tag for tag in re.findall(r"<script[^>]*>", page) if "src=" not in tag] == [], url
