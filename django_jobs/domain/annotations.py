"""What an annotation says before anything is stored: whether it can be restored at all, and which values surely fit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from itertools import combinations
from typing import Any, get_args, get_origin
from uuid import UUID

from django_jobs.domain.restore import choices_of, is_union, name_of, restore, stored_form, takes, unwrapped
from django_jobs.exceptions import PayloadError

_LISTS = (list, Sequence, Collection, Iterable)
_DICTS = (dict, Mapping)
_NONE: type = type(None)
_DEEPEST = 10  # an alias may name itself, such as one for any JSON
_SURE: dict[Any, tuple[type, ...]] = {
    str: (str,),
    int: (int, bool),
    bool: (int, bool),
    float: (float, int),
    Decimal: (Decimal, int),
    UUID: (UUID,),
    datetime: (datetime,),
    date: (date,),
    timedelta: (timedelta,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sure:
    """The exact types of the values that an annotation takes back for sure; any other value must be tried.

    Args:
        types: Of the value.
        members: Of what is in it, where it is a list, a tuple or a dict; None: of any.
    """

    types: frozenset[type]
    members: frozenset[type] | None = None

    @property
    def plain(self) -> frozenset[type]:
        """The types of values that need no look at what is in them."""
        return self.types if self.members is None else frozenset({_NONE})

    def fits(self, value: Any) -> bool:
        """Say whether nothing can be wrong with a value that can be stored; this is asked at each enqueue."""
        if self.members is None or value is None:
            return type(value) in self.types
        if type(value) not in self.types:
            return False
        inside: Iterable[Any] = value.values() if isinstance(value, dict) else value
        return self.members.issuperset(map(type, inside))


_TRY = Sure(types=frozenset({_NONE}))


def surely(annotation: Any, depth: int = 0) -> Sure | None:
    """Return what an annotation takes back for sure; None: everything that can be stored."""
    annotation = unwrapped(annotation)
    if depth > _DEEPEST:
        return _TRY
    if is_union(annotation):
        choices = choices_of(annotation)
        return surely(choices[0], depth + 1) if len(choices) == 1 else _one_of(choices, depth + 1)
    if annotation is str:
        return None  # a number under it comes back as it was given
    found = _scalar(annotation)
    return Sure(types=found | {_NONE}) if found is not None else _container(annotation, depth + 1)


def _scalar(annotation: Any) -> frozenset[type] | None:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return frozenset({annotation})
    found = _SURE.get(annotation) if isinstance(annotation, type) else None
    return None if found is None else frozenset(found)


def _one_of(choices: Iterable[Any], depth: int) -> Sure | None:
    found: set[type] = {_NONE}
    for choice in choices:
        scalar = _scalar(choice)
        if scalar is None and surely(choice, depth) is None:
            return None
        found |= scalar or frozenset()
    return Sure(types=frozenset(found))


def _container(annotation: Any, depth: int) -> Sure | None:
    kind, inside = get_origin(annotation) or annotation, get_args(annotation)
    if kind in _LISTS:
        return _holding(inside[0] if inside else Any, depth, list, tuple)
    if kind in _DICTS:
        return _holding(inside[1] if len(inside) == 2 else Any, depth, dict)
    if kind is not tuple:
        return None
    if inside and inside[-1] is not Ellipsis:
        return _TRY  # its length and each place must be looked at
    return _holding(inside[0] if inside else Any, depth, list, tuple)


def _holding(member: Any, depth: int, *kinds: type) -> Sure:
    inside = surely(member, depth)
    if inside is not None and not inside.types.isdisjoint({list, tuple, dict}):
        return _TRY  # containers in containers
    return Sure(types=frozenset({*kinds, _NONE}), members=None if inside is None else inside.types)


def ambiguous(annotation: Any, depth: int = 0) -> str:
    """Say of which two types of a union one stored value is both; empty when each value has one answer.

    Decimal, UUID, datetime, date and timedelta are told apart by how they are written. Enums may share values with each
    other or with them.
    """
    annotation = unwrapped(annotation)
    if is_union(annotation):
        choices = choices_of(annotation)
        for one, other in combinations(choices, 2):
            if _clash(one, other, choices):
                return f"a {name_of(one)} and a {name_of(other)}"
        inner: Iterable[Any] = choices
    else:
        inner = get_args(annotation)
    return next(filter(None, (ambiguous(one, depth + 1) for one in inner if depth < _DEEPEST)), "")


def _clash(one: Any, other: Any, choices: Collection[Any]) -> bool:
    forms = [(form, right) for left, right in ((one, other), (other, one)) for form in _forms(left)]
    if any(_is_form_of(form, right) for form, right in forms if not any(takes(choice, form) for choice in choices)):
        return True
    inside, inside_other = _member_of(one), _member_of(other)
    if inside is None or inside_other is None or inside[0] is not inside_other[0]:
        return False
    both = [*_opened(inside[1]), *_opened(inside_other[1])]
    return any(_clash(left, right, both) for left, right in combinations(both, 2) if left != right)


def _opened(annotation: Any) -> list[Any]:
    annotation = unwrapped(annotation)
    return choices_of(annotation) if is_union(annotation) else [annotation]


def _forms(choice: Any) -> list[Any]:
    """Return how the members of an enum are stored."""
    if not isinstance(choice, type) or not issubclass(choice, Enum):
        return []
    return [form for member in choice if (form := stored_form(member.value)) is not None]


def _is_form_of(form: Any, choice: Any) -> bool:
    """Say whether a stored value is exactly how a value of this type is stored."""
    if choice in (str, int, bool):
        return False  # its own would have been taken
    try:
        read = restore(form, choice, strict=True)
    except PayloadError:
        return False
    return read is not form and stored_form(read) == form


def _member_of(choice: Any) -> tuple[type, Any] | None:
    """Return "list" or "dict" for a container of one kind of members, and that kind."""
    kind, inside = get_origin(choice) or choice, get_args(choice)
    if kind in _LISTS and inside:
        return list, inside[0]
    if kind in _DICTS and len(inside) == 2:
        return dict, inside[1]
    if kind is tuple and len(inside) == 2 and inside[1] is Ellipsis:
        return list, inside[0]
    return None
