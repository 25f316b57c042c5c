"""What an operator does when an alert rings, in a real browser: find, read, correct, replay, take a charge back, look again.

With PICTURES=docs/images in the environment the pages are kept as the pictures of the manual.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

from django_jobs.admin.forms import ACKNOWLEDGE
from django_jobs.models import Compensation, Job, OperatorAction, OutboxEvent, SideEffect
from testproject.demo.ordering import place
from testproject.demo.plan import OrderRow, read_orders
from testproject.payments.process import ProviderProcess
from tests.browser.conftest import BREAKS_IT, Browser
from tests.databases import Server

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

Work = Callable[[], None]
Shoot = Callable[[str], None]


@pytest.fixture
def provider() -> Iterator[ProviderProcess]:
    """The payments provider."""
    with ProviderProcess() as started:
        yield started


@pytest.fixture
def work(server: Server, provider: ProviderProcess, tmp_path: Path) -> Work:
    """Let a real worker do all that is due."""

    def drain() -> None:
        environ = os.environ | {
            "PAYMENTS_URL": provider.url,
            "EMAIL_FILE_PATH": str(tmp_path),
            "JOBS_EMAIL_BACKEND": "django.core.mail.backends.filebased.EmailBackend",
        }
        command = [sys.executable, "manage.py", "runworker", "--drain", "--no-reload", "--threads", "2"]
        subprocess.run(command, cwd=ROOT, env=environ, check=True, timeout=120)

    return drain


@pytest.fixture
def shoot(signed_in: Browser, server: Server, tmp_path: Path) -> Shoot:
    """Keep a picture of the present page: for the manual, or to look at after a failure."""
    kept = os.environ.get("PICTURES") if server.vendor == "postgresql" else None
    folder = Path(kept) if kept else tmp_path

    def picture(name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        signed_in.picture(folder / f"admin-{name}.png")
        assert (folder / f"admin-{name}.png").stat().st_size > 5000

    return picture


def fill_and_submit(browser: Browser, *, reason: str, code: str) -> str:
    """Fill the form of a decision as a person does, say yes to everything, submit it, and return the next page's text."""

    def go(page: Page) -> str:
        page.fill("[name=owner]", "shop")
        page.select_option("[name=reason_code]", code)
        page.fill("[name=reason]", reason)
        for box in page.query_selector_all(f"[name^={ACKNOWLEDGE}]"):
            box.check()
        page.click("#content form [type=submit]")
        return page.inner_text("body")

    return str(browser.do(go))


def page_of(row: Job | SideEffect | OutboxEvent, what: str = "change") -> str:
    """Return the address of a row's page, or of one of its decisions."""
    return reverse(f"admin:django_jobs_{row._meta.model_name}_{what}", args=[row.pk])


def test_an_operator_replays_a_dead_letter_and_takes_a_charge_back(
    signed_in: Browser, work: Work, shoot: Shoot, provider: ProviderProcess
) -> None:
    """From the list of dead letters to the audit, without JavaScript, and nothing is charged or refunded twice."""
    first, second = read_orders()[:2]
    broken = place(OrderRow(number=first.number, customer="", amount=first.amount, currency="EUR", card=first.card))
    paid = place(second)
    work()
    dead = Job.objects.dead().get()

    assert "ValidationError" in signed_in.open(reverse("admin:django_jobs_deadletter_changelist"))
    shoot("dead-letters")
    text = signed_in.open(page_of(dead))
    assert "What to know" in text
    assert "names no customer" in text
    shoot("job")

    broken.order.customer = first.customer
    broken.order.save(update_fields=["customer"])
    assert "Replay" in signed_in.open(page_of(dead, "replay"))
    shoot("replay")
    fill_and_submit(signed_in, reason="The customer's name was missing.", code="data_corrected")
    assert OperatorAction.objects.get().action == "replay"
    work()
    dead.refresh_from_db()
    assert (dead.state, dead.generation) == ("succeeded", 2)

    effect = SideEffect.objects.get(job_id=paid.job.id, name="charge")
    signed_in.open(page_of(effect))
    shoot("side-effect")
    signed_in.open(page_of(effect, "compensate"))
    shoot("compensate")
    fill_and_submit(signed_in, reason="The goods were sent back.", code="other")
    work()
    assert Compensation.objects.get().outcome == "succeeded"
    assert len(provider.ledger()["refunds"]) == 1
    assert set(provider.ledger()["applied_per_order"].values()) == {1}

    assert "shop.order.paid" in signed_in.open(reverse("admin:django_jobs_outboxevent_changelist"))
    shoot("events")
    text = signed_in.open(reverse("admin:django_jobs_operatoraction_changelist"))
    assert "replay" in text
    assert "compensate" in text
    shoot("audit")
    signed_in.open(page_of(Job.objects.get(pk=paid.job.id)))
    shoot("job-with-effects")
    assert signed_in.violations == []


def test_pages_keep_a_strict_policy(signed_in: Browser, work: Work, tmp_path: Path) -> None:
    """The site's policy allows nothing but its own files, and no page of the package breaks it, in light and in dark."""
    place(read_orders()[0])
    work()
    job = Job.objects.filter(job_type="shop.charge_order").get()
    names = "job deadletter sideeffect outboxevent delivery inboxmessage quarantine worker operatoraction replayrequest"
    addresses = [reverse(f"admin:django_jobs_{name}_changelist") for name in names.split()]
    shown = {}

    for place_in_site in [*addresses, page_of(job), page_of(job, "cancel"), page_of(SideEffect.objects.first())]:
        text = signed_in.open(place_in_site)
        assert "ada" in text.lower(), f"{place_in_site} is a page of the admin"
        signed_in.picture(tmp_path / "light.png")
        signed_in.picture(tmp_path / "dark.png", dark=True)
        shown[place_in_site] = (tmp_path / "light.png").read_bytes() != (tmp_path / "dark.png").read_bytes()

    assert [address for address, differs in shown.items() if not differs] == []
    assert signed_in.violations == []


def test_policy_is_in_force(signed_in: Browser) -> None:
    """A page that breaks the policy is noticed: the look above can fail."""
    signed_in.open(BREAKS_IT)

    assert len(signed_in.violations) == 1
    assert "Content Security Policy" in signed_in.violations[0]
