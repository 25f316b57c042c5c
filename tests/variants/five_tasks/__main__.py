"""Enqueues the five tasks, lets the backend's own worker run them, and prints what became of them as JSON."""

from __future__ import annotations

import json
import os
from typing import Any

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.variants.five_tasks.settings"
WORKERS = {
    "immediate": [],
    "django_tasks_db": ["db_worker", "--batch", "--queue-name", "*", "--no-startup-delay"],
    "django_jobs": ["runworker", "--drain", "--processes", "1"],
}


def told(result: Any) -> dict[str, Any]:
    """Return what a result says that does not differ by times and ids."""
    return {
        "task": result.task.module_path,
        "status": str(result.status),
        "value": result.return_value if result.status == "SUCCESSFUL" else None,
        "errors": [error.exception_class_path for error in result.errors],
        "attempts": result.attempts,
        "arguments": [result.args, result.kwargs],
        "times": [getattr(result, f"{name}_at") is not None for name in ("enqueued", "started", "finished")],
    }


def main() -> None:
    """Run them."""
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from django.contrib.auth.models import Group

    from tests.variants.five_tasks import tasks

    results = [
        tasks.add.enqueue(1, b=5),
        tasks.note.enqueue("noted"),
        tasks.note_async.enqueue(name="noted by a coroutine"),
        tasks.relay.using(priority=-3).enqueue("relayed"),
        tasks.fails.enqueue("no"),
    ]
    chosen = os.environ["FIVE_BACKEND"]
    if WORKERS[chosen]:
        call_command(*WORKERS[chosen])
        for result in results:
            result.refresh()
    print(
        json.dumps(
            {"results": [told(one) for one in results], "rows": sorted(Group.objects.values_list("name", flat=True))}
        )
    )


if __name__ == "__main__":
    main()
