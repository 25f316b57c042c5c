"""What each page offers, and that each decision acts through its page as it does elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_jobs.admin.decisions import OFFERS
from django_jobs.models import Delivery, Job, OperatorAction, ReplayRequest, SideEffect
from tests.factories import JobFactory, SendFactory, SideEffectFactory
from tests.factories_outbox import DeliveryFactory
from tests.factories_pages import one_of_each, person
from tests.integration.admin.conftest import address
from tests.integration.admin.test_deciding import boxes, filled

pytestmark = pytest.mark.django_db

UNCHECKED = ("ack_", "acknowledged")


def confirmed(root: Client, url: str, **choices: Any) -> int:
    """Enter the choices, look at the plan that they make, confirm it, and return the last status."""
    page = root.post(url, {**filled(root.get(url)), **choices}) if choices else root.get(url)
    return root.post(url, {**filled(page), **choices}).status_code


@pytest.mark.parametrize(
    ("path", "trait", "state"),
    [
        ("cancel", "queued", "cancelled"),
        ("run_now", "scheduled", "queued"),
        ("discard", "dead_lettered", "dead_lettered"),
    ],
)
def test_decisions_about_jobs_act(root: Client, path: str, trait: str, state: str) -> None:
    """Each acts on a job that its state allows, and is on record in both places."""
    job = JobFactory(**{trait: True})

    assert confirmed(root, address("job", path, job.pk)) == 303
    job.refresh_from_db()
    assert job.state == state
    assert OperatorAction.objects.get().job_id == job.pk
    assert LogEntry.objects.get().object_id == str(job.pk)


def test_the_lease_of_a_running_job_ends(root: Client) -> None:
    """A running job stays running, with a lease that is over."""
    job = JobFactory(running=True)
    before = job.lease_expires_at

    assert confirmed(root, address("job", "expire_lease", job.pk)) == 303
    job.refresh_from_db()
    assert (job.state, job.lease_expires_at < before) == ("running", True)


def test_an_effect_is_decided_by_hand_after_its_plan_was_seen(root: Client) -> None:
    """The verdict is chosen first, its plan is shown, and only the second confirmation counts."""
    job = JobFactory(dead_lettered=True)
    effect = SideEffectFactory(job=job, ambiguous=True, needs_review=True, review_reason="nobody knows")
    SendFactory(effect=effect, job=job, attempt=job.attempts.get(), unknown=True)
    url = address("sideeffect", "resolve", effect.pk)
    choices = {"verdict": "applied", "provider_ref": "ch_1", "evidence": "seen in the provider's console"}

    assert "Look at what it would do" in root.get(url).content.decode()
    assert confirmed(root, url, **choices) == 303
    effect.refresh_from_db()
    assert (effect.state, effect.provider_ref) == ("succeeded", "ch_1")
    assert OperatorAction.objects.get().effect_id == effect.pk


def test_a_verdict_without_its_evidence_is_refused(root: Client) -> None:
    """What the decision misses is told beside the form; nothing is written."""
    effect = SideEffectFactory(ambiguous=True, job=JobFactory(dead_lettered=True))
    url = address("sideeffect", "resolve", effect.pk)
    page = root.post(url, {**filled(root.get(url)), "verdict": "not_applied"})

    assert "The evidence needs at least 10 signs" in page.content.decode()
    assert not OperatorAction.objects.exists()


@pytest.mark.parametrize(("path", "states"), [("discard", ["discarded"]), ("redispatch", ["dead_lettered", "pending"])])
def test_decisions_about_deliveries_act(root: Client, path: str, states: list[str]) -> None:
    """A dead delivery is discarded, or its event goes again as a delivery of its own."""
    delivery = DeliveryFactory(dead_lettered=True)

    assert confirmed(root, address("delivery", path, delivery.pk)) == 303
    assert list(Delivery.objects.order_by("pk").values_list("state", flat=True)) == states


def test_stuck_delivery_is_offered_to_be_given_up(root: Client) -> None:
    """One that was tried in vain can be discarded; one that was never tried or is under way shows why not."""
    stuck = DeliveryFactory(tried=True)
    fresh, held = DeliveryFactory(), DeliveryFactory(claimed=True)

    assert confirmed(root, address("delivery", "discard", stuck.pk)) == 303

    assert Delivery.objects.get(pk=stuck.pk).state == "discarded"
    for delivery, why in ((fresh, "It was not tried yet"), (held, "It is being delivered right now")):
        page = root.get(address("delivery", "change", delivery.pk)).content.decode()
        assert why in page


def test_ticked_dead_letters_are_replayed_as_one_request(root: Client) -> None:
    """The action leads to a page with counts per class; its confirmation makes one request, which nobody doubles."""
    jobs = [JobFactory(dead_lettered=True) for _ in range(3)]
    url = address("deadletter", "changelist") + "?list=1"
    ticked = {"action": "replay_ticked", "index": "0", "_selected_action": [str(job.pk) for job in jobs[:2]]}
    sent = root.post(url, ticked)
    assert sent.status_code == 303

    choices = {"acknowledged": ["skip", "send", "same_key", "reconcile", "may_happen_again"], "per_minute": "60"}
    choices |= {"extra_attempts": "0", "canary": "0"}
    page = root.post(sent["Location"], choices)
    assert "Replay 2 dead letters of 2 selected" in page.content.decode()
    form = {**filled(page), **choices}
    assert root.post(sent["Location"], form).status_code == 303
    assert ReplayRequest.objects.get().total == 2
    assert LogEntry.objects.get().object_id == str(ReplayRequest.objects.get().pk)
    assert set(Job.objects.values_list("state", flat=True)) == {"dead_lettered"}  # a worker replays them


def test_all_that_match_a_filter_are_named_by_an_instant(root: Client) -> None:
    """The list's age becomes an instant in the address, so that what is decided about does not move."""
    job = JobFactory(dead_lettered=True)
    url = address("deadletter", "changelist")
    page = root.get(url, {"error": job.error_fingerprint, "age": "24h"}).content.decode()

    assert "Replay all that match…" in page
    assert "dead_from=" in page
    assert "Replay all that match…" not in root.get(url, {"list": "1"}).content.decode()


@pytest.mark.parametrize("query", ["", "?ids=", "?ids=x", "?nothing=1", "?queue="])
def test_a_replay_of_nothing_named_is_refused(root: Client, query: str) -> None:
    """An empty filter is not "all": the page says so and offers no form."""
    answer = root.get(address("deadletter", "replay_many") + query)

    assert answer.status_code == 400
    assert "<form" not in answer.content.decode().partition('id="content-main"')[2]


def test_bulk_needs_its_own_permission(client: Client) -> None:
    """Whoever may replay one job is neither offered the replay of many nor allowed to post it."""
    from django.contrib.auth.models import Permission

    user = person(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_deadletter", "replay_job"]))
    client.force_login(user)
    job = JobFactory(dead_lettered=True)

    assert "replay_ticked" not in client.get(address("deadletter", "changelist") + "?list=1").content.decode()
    assert client.post(address("deadletter", "replay_many") + f"?ids={job.pk}").status_code == 403
    assert not ReplayRequest.objects.exists()


@pytest.mark.parametrize("model", OFFERS)
def test_pages_offer_what_the_state_allows(root: Client, model: Any) -> None:
    """A page links each decision that its row's state allows, and says of the others why not."""
    row = one_of_each()[model]
    page = root.get(address(model._meta.model_name, "change", row.pk)).content.decode()

    for offer in OFFERS[model]:
        url = address(model._meta.model_name, offer.path.replace("-", "_"), row.pk)
        assert (f'href="{url}"' in page) == (offer.why_not(row) == ""), offer.path


def test_an_applied_effect_is_offered_to_be_taken_back(root: Client) -> None:
    """The page of an applied effect links its compensation."""
    effect = SideEffectFactory(succeeded=True, job=JobFactory(succeeded=True))
    page = root.get(address("sideeffect", "change", effect.pk)).content.decode()

    assert address("sideeffect", "compensate", effect.pk) in page
    assert SideEffect.objects.get().pk == effect.pk
    assert boxes(root.get(address("sideeffect", "resolve", effect.pk))) == {}
