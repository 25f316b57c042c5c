"""Metric families of several processes made one: equal series are added."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

Key = tuple[str, tuple[tuple[str, str], ...]]


def merged(families: Iterable[Metric]) -> list[Metric]:
    """Return one family per name, in which series with equal labels are added.

    When a series began (``_created``) is left out: it means nothing for a sum, and costs as much as a series.
    """
    found: dict[str, tuple[Metric, dict[Key, float]]] = {}
    for family in families:
        _, series = found.setdefault(family.name, (family, {}))
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue
            key = (sample.name, tuple(sorted(sample.labels.items())))
            series[key] = series.get(key, 0.0) + sample.value
    return [_family(first, series) for first, series in found.values()]


def _family(first: Metric, series: dict[Key, float]) -> Metric:
    family = Metric(first.name, first.documentation, first.type)
    family.samples = [Sample(name, dict(labels), value, None, None) for (name, labels), value in series.items()]
    return family
