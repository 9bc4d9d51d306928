"""Well-formed JSON values of each kind of field."""

from __future__ import annotations

from functools import singledispatch

from hypothesis import strategies as st

from sembridge.serving.fields import (
    Anything,
    Choice,
    Either,
    Flag,
    Integer,
    Kind,
    ListOf,
    MapOf,
    Number,
    Record,
    Text,
)

scalars = st.none() | st.booleans() | st.integers(-300, 300) | st.floats(-300, 300) | st.text()
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@singledispatch
def values(kind: Kind) -> st.SearchStrategy[object]:
    raise TypeError(f"no strategy for {kind}")


@values.register
def _(_: Anything) -> st.SearchStrategy[object]:
    return anything.filter(lambda value: value is not None)


@values.register
def _(_: Flag) -> st.SearchStrategy[object]:
    return st.booleans()


@values.register
def _(kind: Integer) -> st.SearchStrategy[object]:
    return st.integers(kind.low, min(kind.high, 10**6))


@values.register
def _(kind: Number) -> st.SearchStrategy[object]:
    return st.floats(max(kind.low, -1e6), min(kind.high, 1e6), exclude_min=kind.above)


@values.register
def _(kind: Text) -> st.SearchStrategy[object]:
    return st.text(min_size=kind.shortest, max_size=8)


@values.register
def _(kind: Choice) -> st.SearchStrategy[object]:
    return st.sampled_from(kind.values)


@values.register
def _(kind: ListOf) -> st.SearchStrategy[object]:
    return st.lists(values(kind.item), min_size=kind.shortest, max_size=3)


@values.register
def _(kind: MapOf) -> st.SearchStrategy[object]:
    keys = st.integers(0, 300_000).map(str) if kind.ids else st.text(max_size=8)
    return st.dictionaries(keys, values(kind.item), max_size=3)


@values.register
def _(kind: Either) -> st.SearchStrategy[object]:
    return st.one_of(*map(values, kind.kinds))


@values.register
def _(kind: Record) -> st.SearchStrategy[object]:
    inner = {name: values(field.kind) for name, field in kind.fields.items()}
    required = {name: inner.pop(name) for name in kind.required}
    return st.fixed_dictionaries(required, optional=inner)
