"""Consumer surfaces (§2.2): what a consumer observes, and which projection derives it.

To add a surface, add one class here, name it in ``Surface``, and give its projection a NumPy
kernel in :mod:`sembridge.reference`. The checker, the lowerer and the footprint ask a surface
three things only: what is observed, by which projection, and how many bytes that takes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Literal

from msgspec import Struct

from sembridge.layout import DTYPES, elements_of
from sembridge.plan import VALUE


class Projected(Struct, frozen=True, kw_only=True):
    """A registered projection as a contract asks for it.

    ``name`` is what ``project`` ops call it, ``output`` the surface it adds, ``dtype`` the
    output's, ``ties`` and ``nans`` its deterministic rules, ``axis`` the axis it consumes.
    """

    name: str
    output: str
    dtype: str
    ties: str
    nans: str
    axis: int = -1

    def output_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of the projected result of a value of ``shape``: one index per row."""
        return elements_of(shape[:-1]) * DTYPES[self.dtype].itemsize


@lru_cache(maxsize=64)
def _argmax(dtype: str) -> Projected:
    return Projected(
        name="argmax", output="tokens", dtype=dtype, ties="lowest_index", nans="first NaN wins"
    )


class Complete(Struct, frozen=True, tag_field="type", tag="complete", forbid_unknown_fields=True):
    """The value itself: hidden states, complete logits, an issued decision."""

    keeps_value: ClassVar[bool] = True

    @property
    def projected(self) -> Projected | None:
        """No projection."""
        return None


class _Argmax(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="type",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    projection: Literal["argmax"] = "argmax"
    tie_break: Literal["lowest_index"] = "lowest_index"
    output_dtype: str = "int32"

    @property
    def projected(self) -> Projected:
        """Argmax over the last axis; lowest index on ties; the first NaN wins over any number."""
        return _argmax(self.output_dtype)


class Tokens(_Argmax, frozen=True, kw_only=True, tag="tokens"):
    """Token ids only; the projection may run before the boundary."""

    keeps_value: ClassVar[bool] = False


class Logprobs(_Argmax, frozen=True, kw_only=True, tag="logprobs"):
    """Complete logits and token ids: both are observed."""

    keeps_value: ClassVar[bool] = True


Surface = Complete | Tokens | Logprobs


def observed(surface: Surface) -> tuple[str, ...]:
    """Names of the holdings that a consumer of this surface must end with.

    >>> observed(Logprobs())
    ('value', 'tokens')
    """
    projected = surface.projected
    value = (VALUE,) if surface.keeps_value else ()
    return value + ((projected.output,) if projected else ())
