"""With a million jobs the lists of the admin stay fast: few queries, each through an index and within 50 ms."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from pytest_django import DjangoDbBlocker

from django_jobs.models import Job
from tests.databases import Server
from tests.factories_pages import person
from tests.plans import million
from tests.plans.explaining import Run, explained
from tests.queries import asked

pytestmark = [pytest.mark.postgres, pytest.mark.long, pytest.mark.timeout(900)]

MOST_QUERIES = 10
MOST_MILLISECONDS = 50
JOBS = "/admin/django_jobs/job/"
DEAD = "/admin/django_jobs/deadletter/"


@pytest.fixture(scope="module")
def loaded(server: Server, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A million jobs, committed."""
    with django_db_blocker.unblock():
        server.empty()
        million.load()
        yield
        server.empty()


@pytest.fixture
def viewer(client: Client) -> Client:
    """A browser of somebody who may look; permissions cost queries that a superuser's do not."""
    user = person(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client.force_login(user)
    return client


def measured(client: Client, url: str) -> tuple[int, list[Run]]:
    """Ask for a page and explain each of its looks, as it ran a second time."""
    client.get(url)
    with asked() as queries:
        response = client.get(url)
        assert response.status_code == 200
    looks = [sql for sql in queries if "django_jobs_" in sql]
    return len(queries), [_best(sql) for sql in looks]


def _best(sql: str) -> Run:
    """Explain a look three times: what else the machine does is no matter here."""
    runs = [explained(sql, options="ANALYZE, BUFFERS, FORMAT JSON") for _ in range(3)]
    return min(runs, key=lambda run: run.milliseconds)


def checked(client: Client, label: str, url: str, *, for_nothing: int | None = None) -> None:
    """Print the figures of a page, and assert its bounds."""
    number, runs = measured(client, url)
    slowest = max(run.milliseconds for run in runs)
    told = ", ".join(f"{run.milliseconds:.1f} ms {sorted(run.indexes)}" for run in runs)
    print(f"\n{label}: {number} queries, slowest {slowest:.1f} ms: {told}")
    assert number <= MOST_QUERIES
    assert slowest <= MOST_MILLISECONDS
    assert [run.whole_tables for run in runs if run.whole_tables] == []
    if for_nothing is not None:
        assert max(run.removed for run in runs) <= for_nothing


@pytest.mark.usefixtures("loaded")
@pytest.mark.django_db
class TestMillion:
    """The lists that operators open first, and what they click there."""

    def test_job_list(self, viewer: Client) -> None:
        """The newest jobs, and a page in the middle."""
        checked(viewer, "jobs", JOBS, for_nothing=60)
        middle = Job.objects.order_by("pk")[500_000].pk
        checked(viewer, "jobs, deep", f"{JOBS}?before={middle}", for_nothing=60)

    def test_filters_that_people_use(self, viewer: Client) -> None:
        """Dead letters, running jobs, expired leases and succeeded ones."""
        for query in ("state=dead_lettered", "needs=dead", "needs=expired", "state=running", "state=succeeded"):
            checked(viewer, f"jobs, {query}", f"{JOBS}?{query}")

    def test_exact_search(self, viewer: Client) -> None:
        """By id, by subject, by key, and for nothing."""
        job = Job.objects.order_by("pk")[500_000]
        for text in (job.pk, job.subject, "order:none"):
            checked(viewer, f"search {text}", f"{JOBS}?q={text}", for_nothing=10)

    def test_groups_of_dead_letters(self, viewer: Client) -> None:
        """The landing page of the dead letters looks at the newest 10,000 and says so."""
        checked(viewer, "groups", DEAD)
        page = viewer.get(DEAD).content.decode()
        assert "The newest 10,000 dead letters without a decision; there are older ones" in page

    def test_dead_letters_of_a_group(self, viewer: Client) -> None:
        """All dead letters, those of one error, and those of the last hour.

        One error is looked for among all dead letters: the cost grows with their number.
        """
        one = Job.objects.filter(state="dead_lettered").order_by("-pk")[0]
        for query in ("", f"&job_type={one.job_type}&error={one.error_fingerprint}", "&age=1h"):
            checked(viewer, f"dead letters {query[:20]}", f"{DEAD}?list=1{query}")
