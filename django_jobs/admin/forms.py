"""The forms of decisions: who answers, why, what is acknowledged, and what a decision needs to know beside that."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django import forms

from django_jobs.admin.showing import plain
from django_jobs.domain.judgement import Judgement
from django_jobs.domain.resources import MOST, parse_rate
from django_jobs.operate.action import NAME_LIMIT, REASON_CODES, REASON_LIMIT, REASON_MIN, Plan
from django_jobs.operate.job_decision import MOST_EXTRA
from django_jobs.operate.listing import parse_span
from django_jobs.operate.replay_classes import BULK, HARMLESS
from django_jobs.operate.replay_many import MOST_CANARY, MOST_PER_MINUTE
from django_jobs.operate.replay_plan import LABELS
from django_jobs.operate.resolve import REFERENCE_LIMIT

ACKNOWLEDGE = "ack_"


class Choices(forms.Form):
    """What a decision needs to know beside who and why; without a field: nothing. ``row`` is what it is about."""

    def __init__(self, *args: Any, row: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.row = row

    @classmethod
    def untouched(cls, row: Any) -> Choices:
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
        self.asked = plan.acknowledge if plan else ()
        for item in self.asked:
            label = plain(item.label, 500)
            if item.reason_code:
                label += f" (Only for the reason “{REASON_CODES[item.reason_code]}”.)"
            self.fields[f"{ACKNOWLEDGE}{item.name}"] = forms.BooleanField(label=label, required=not item.reason_code)

    def clean(self) -> dict[str, Any]:
        """Ask for what the chosen kind of reason needs."""
        given = super().clean() or {}
        for item in self.asked:
            name = f"{ACKNOWLEDGE}{item.name}"
            if item.reason_code and item.reason_code == given.get("reason_code") and not given.get(name):
                self.add_error(name, "This reason needs it.")
        return given


class SpanField(forms.CharField):
    """A span of time such as ``30m``, ``2h`` or ``7d``; empty: none."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, max_length=20, **kwargs)

    def clean(self, value: Any) -> timedelta | None:
        """Read the span."""
        text = super().clean(value)
        try:
            return parse_span(text) if text else None
        except (ValueError, OverflowError) as error:
            raise forms.ValidationError(str(error)) from error


class ReplayChoices(Choices):
    """What a replay may add."""

    extra_attempts = forms.IntegerField(
        min_value=0, max_value=MOST_EXTRA, initial=0, help_text="So many unknown errors more than the policy allows."
    )
    start_in = SpanField(label="Start in", help_text="For example 30m, 2h or 7d; empty: at once.")
    useful_for = SpanField(
        label="Useful for", help_text="From its start, how long the result is worth something; needed if it expired."
    )


class ResolveChoices(Choices):
    """What somebody found out about an effect, and where."""

    verdict = forms.ChoiceField(
        label="What happened",
        choices=[
            ("", "---------"),
            (Judgement.APPLIED.value, "It was applied"),
            (Judgement.NOT_APPLIED.value, "It was not applied"),
            (Judgement.ABANDON.value, "Nobody will find out; go on without knowing"),
        ],
    )
    provider_ref = forms.CharField(
        label="Provider reference",
        required=False,
        max_length=REFERENCE_LIMIT,
        help_text="What the provider calls it; needed if it was applied, and only then.",
    )
    evidence = forms.CharField(
        label="Evidence",
        required=False,
        max_length=REASON_LIMIT,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60}),
        help_text="Where it was seen; needed unless it was applied.",
    )


class CompensateChoices(Choices):
    """Whether code takes an effect back, or somebody did."""

    by_hand = forms.BooleanField(
        label="It was taken back by hand, or stays on purpose: send nothing",
        required=False,
        help_text="For what no code can take back; the reason says how it was done.",
    )


class RateField(forms.CharField):
    """A rate such as ``10/s``; empty: as the settings say."""

    def clean(self, value: Any) -> str:
        """Read the rate."""
        text: str = super().clean(value)
        try:
            return parse_rate(text).text if text else ""
        except ValueError as error:
            raise forms.ValidationError(f"A rate {error}.") from error


class BoundChoices(Choices):
    """Which bounds a resource has from now on."""

    limit = forms.IntegerField(
        min_value=1,
        max_value=MOST,
        required=False,
        help_text="So many jobs that use it run at once; empty: as the settings say.",
    )
    rate = RateField(
        required=False,
        max_length=12,
        help_text="So many start, for example 10/s, 100/m or 1000/h; empty: as the settings say.",
    )


class ManyChoices(Choices):
    """Which classes of a replay of many, and how fast."""

    acknowledged = forms.MultipleChoiceField(
        label="Replay what would",
        choices=[(item.value, LABELS[item]) for item in BULK],
        initial=[item.value for item in HARMLESS],
        widget=forms.CheckboxSelectMultiple,
        help_text="Jobs of other classes are left alone; what needs a decision is never replayed in bulk.",
    )
    extra_attempts = forms.IntegerField(min_value=0, max_value=MOST_EXTRA, initial=0)
    per_minute = forms.IntegerField(label="Jobs a minute", min_value=1, max_value=MOST_PER_MINUTE, initial=60)
    canary = forms.IntegerField(
        min_value=0,
        max_value=MOST_CANARY,
        initial=0,
        help_text="So many first; the rest follows when they succeeded, nothing if one of them dies.",
    )
