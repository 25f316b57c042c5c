"""The forms of decisions: who answers, why, what is acknowledged, and what a decision needs to know beside that."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.db.models import Model

from django_jobs.admin.showing import plain
from django_jobs.operate.action import NAME_LIMIT, REASON_CODES, REASON_LIMIT, REASON_MIN, Plan

ACKNOWLEDGE = "ack_"


class Choices(forms.Form):
    """What a decision needs to know beside who and why; without a field: nothing. ``row`` is what it is about."""

    def __init__(self, *args: Any, row: Model, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.row = row

    @classmethod
    def untouched(cls, row: Model) -> Choices:
        """Return the form as it is before anybody chose; it is valid if nothing has to be chosen."""
        empty = cls(row=row)
        initial = {name: empty.get_initial_for_field(field, name) for name, field in empty.fields.items()}
        return cls({name: value for name, value in initial.items() if value is not None}, row=row)

    @property
    def text(self) -> str:
        """What was chosen, as a text that is equal for equal choices."""
        return json.dumps({name: str(value) for name, value in sorted(self.cleaned_data.items())})


class OperatorForm(forms.Form):
    """Who answers for the outcome, and why; one box for each thing that needs a yes."""

    owner = forms.CharField(
        max_length=NAME_LIMIT, help_text="The person or team that answers for the outcome.", label="Owner"
    )
    reason_code = forms.ChoiceField(
        choices=[("", "---------"), *((code, text.capitalize()) for code, text in REASON_CODES.items())],
        label="Kind of reason",
    )
    reason = forms.CharField(
        min_length=REASON_MIN,
        max_length=REASON_LIMIT,
        widget=forms.Textarea(attrs={"rows": 4, "cols": 60}),
        help_text=f"In {REASON_MIN} to {REASON_LIMIT:,} signs; it is kept for ever, so leave secrets out.",
        label="Reason",
    )
    ticket = forms.CharField(max_length=NAME_LIMIT, required=False, label="Ticket")

    def __init__(self, *args: Any, plan: Plan | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for item in plan.acknowledge if plan else ():
            self.fields[f"{ACKNOWLEDGE}{item.name}"] = forms.BooleanField(label=plain(item.label, 500))
