"""Consumer surfaces (§2.2): what a consumer observes, and which projection derives it.

To add a surface, add one class here, name it in ``Surface``, and give its projection a kernel in
:mod:`sembridge.kernels`. The checker, the lowerer and the footprint ask a surface three things
only: what is observed, by which projection, and how many bytes that takes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from sembridge.layout import DTYPES, elements_of
from sembridge.plan import VALUE

PARAMETERS = "parameters"
"""The surface that holds what a projection takes beside the value, one record for each row."""

MAX_K = 1024
MAX_IDS = 2**20
MAX_COLUMNS = 2**30
"""Most columns over which sums of exponentials stay exact in 64-bit integers."""

Id = Annotated[int, Meta(ge=0, lt=2**32)]
Size = Annotated[int, Meta(ge=0, le=MAX_K)]
Columns = Annotated[int, Meta(ge=1, le=2**48)]

Record = tuple[tuple[str, str, int], ...]
"""Fields of one row of a result: name, dtype (empty for the value's own), count."""


def record_bytes(record: Record, value_dtype: str) -> int:
    """Bytes of one packed row of a record.

    >>> record_bytes((("id", "int32", 1), ("value", "", 5)), "bfloat16")
    14
    """
    return sum(DTYPES[dtype or value_dtype].itemsize * count for _, dtype, count in record)


class Choice(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """How the token of one row is chosen, all its state included.

    ``allowed``, ``banned`` and ``bias`` modify the logits, in this order. At ``temperature`` 0
    the largest remaining logit wins; above it the token is drawn with noise that ``seed`` and
    ``position`` alone determine, among the ``top_k`` (0: all) largest and then the ``top_p``
    nucleus. Real numbers are float32.
    """

    temperature: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    top_k: Annotated[int, Meta(ge=0, lt=2**31)] = 0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    position: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    allowed: Annotated[tuple[Id, ...], Meta(max_length=MAX_IDS)] | None = None
    banned: Annotated[tuple[Id, ...], Meta(max_length=MAX_IDS)] = ()
    bias: Annotated[
        tuple[tuple[Id, Annotated[float, Meta(ge=-1e30, le=1e30)]], ...], Meta(max_length=MAX_IDS)
    ] = ()

    HEADER: ClassVar[Record] = (
        ("seed", "uint64", 1),
        ("position", "uint64", 1),
        ("temperature", "float32", 1),
        ("top_p", "float32", 1),
        ("top_k", "int32", 1),
        ("allowed", "int32", 1),
        ("banned", "int32", 1),
        ("bias", "int32", 1),
    )

    @property
    def packed_bytes(self) -> int:
        """Bytes on the wire: 40, then 4 for each id and 8 for each bias."""
        ids = len(self.allowed or ()) + len(self.banned)
        return record_bytes(self.HEADER, "") + 4 * ids + 8 * len(self.bias)

    def misfits(self, columns: int) -> list[str]:
        """What keeps this choice from being made among ``columns`` columns."""
        found: list[str] = []
        if self.temperature > 0 and (self.seed is None or self.position is None):
            found.append("sampling without a (seed, position) key")
        named = {*(self.allowed or ()), *self.banned, *(column for column, _ in self.bias)}
        if named and max(named) >= columns:
            found.append(f"token {max(named)} of {columns}")
        if len({column for column, _ in self.bias}) < len(self.bias):
            found.append("two biases on one token")
        left = (
            columns - len({*self.banned})
            if self.allowed is None
            else len({*self.allowed}.difference(self.banned))
        )
        if left <= 0:
            found.append("no token is left to choose")
        return found


Choices = Annotated[tuple[Choice, ...], Meta(max_length=2**16)]
Given = Literal["consumers", "everywhere"]


class Projected(Struct, frozen=True, kw_only=True):
    """A registered projection as a contract asks for it.

    ``name`` is what ``project`` ops call it, ``output`` the surface it adds, ``dtype`` the
    indices', ``ties`` and ``nans`` its deterministic rules, ``axis`` the axis it consumes, and
    ``row`` the output's record for each row (empty: one index). A projection of shards has a
    ``combine`` operator that completes its ``partial`` records, and the ``vocabulary`` that the
    shards make up. ``choices``, one a row, are its parameters, which only the consumers hold at
    first, unless they are known ``everywhere``.
    """

    name: str
    output: str
    dtype: str
    ties: str = "lowest_index"
    nans: str = "first NaN wins"
    axis: int = -1
    k: int = 0
    row: Record = ()
    partial: Record = ()
    combine: str | None = None
    vocabulary: int | None = None
    choices: tuple[Choice, ...] | None = None
    everywhere: bool = False

    def output_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of the projected result of a value of ``shape``."""
        row = record_bytes(self.row, "") if self.row else DTYPES[self.dtype].itemsize
        return elements_of(shape[:-1]) * row

    def partial_bytes(self, shape: tuple[int, ...], value_dtype: str) -> int:
        """Bytes of one shard's contribution to the combine, for a shard of ``shape``."""
        return elements_of(shape[:-1]) * record_bytes(self.partial, value_dtype)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of one copy of the parameters."""
        return sum(choice.packed_bytes for choice in self.choices or ())


@lru_cache(maxsize=64)
def _argmax(dtype: str) -> Projected:
    return Projected(name="argmax", output="tokens", dtype=dtype)


@lru_cache(maxsize=64)
def _sharded_argmax(dtype: str, vocabulary: int) -> Projected:
    return Projected(
        name="sharded_argmax",
        output="tokens",
        dtype=dtype,
        partial=(("value", "", 1), ("id", dtype, 1)),
        combine="first_largest",
        vocabulary=vocabulary,
    )


def _top_row(dtype: str, k: int) -> Record:
    return (
        ("token", dtype, 1),
        ("token_logprob", "float32", 1),
        ("rank", "int32", 1),
        ("logsumexp", "float32", 1),
        ("ids", dtype, k),
        ("logprobs", "float32", k),
    )


@lru_cache(maxsize=64)
def _top_logprobs(dtype: str, k: int, choices: tuple[Choice, ...], everywhere: bool) -> Projected:
    return Projected(
        name="top_logprobs",
        output="top_logprobs",
        dtype=dtype,
        k=k,
        row=_top_row(dtype, k),
        choices=choices or None,
        everywhere=everywhere,
    )


BINS = 64
"""Binary exponents below a row's largest that a sum of exponentials keeps."""


@lru_cache(maxsize=64)
def _sharded_top_logprobs(dtype: str, k: int, vocabulary: int) -> Projected:
    return Projected(
        name="sharded_top_logprobs",
        output="top_logprobs",
        dtype=dtype,
        k=k,
        row=_top_row(dtype, k),
        partial=(
            ("values", "", max(k, 1)),
            ("ids", dtype, max(k, 1)),
            ("ties", "int32", 1),
            ("exponent", "float64", 1),
            ("bins", "int64", BINS),
        ),
        combine="merge_largest",
        vocabulary=vocabulary,
    )


@lru_cache(maxsize=64)
def _choose(dtype: str, choices: tuple[Choice, ...], everywhere: bool) -> Projected:
    return Projected(
        name="choose", output="tokens", dtype=dtype, choices=choices, everywhere=everywhere
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


class _Row(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="type",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """A surface of one record for each row; the value itself is not observed."""

    keeps_value: ClassVar[bool] = False

    output_dtype: str = "int32"


class ShardedTokens(_Row, frozen=True, kw_only=True, tag="sharded_tokens"):
    """Token ids from logits that are sharded along the vocabulary, without gathering them.

    The i-th producer in stable order holds columns i·w to (i + 1)·w of the whole, w the width of
    one shard; columns from ``vocabulary`` on are padding, which is how uneven shards are said.
    """

    vocabulary: Columns

    @property
    def projected(self) -> Projected:
        """:class:`Tokens`' argmax of the whole, combined from (value, global index) pairs."""
        return _sharded_argmax(self.output_dtype, self.vocabulary)


class TopLogprobs(_Row, frozen=True, kw_only=True, tag="top_logprobs"):
    """The chosen token with its log-probability and rank, log-sum-exp, and the ``k`` largest.

    Log-probabilities are of the unmodified logits. Without ``choices`` the token is the argmax.
    """

    k: Size
    choices: Choices = ()
    given: Given = "consumers"

    @property
    def projected(self) -> Projected:
        """The ``k`` largest in argmax's order: NaN first, then by value, lowest index on ties."""
        return _top_logprobs(self.output_dtype, self.k, self.choices, self.given == "everywhere")


class ShardedTopLogprobs(_Row, frozen=True, kw_only=True, tag="sharded_top_logprobs"):
    """:class:`TopLogprobs` of vocabulary shards, laid out as :class:`ShardedTokens` says."""

    k: Size
    vocabulary: Columns

    @property
    def projected(self) -> Projected:
        """:class:`TopLogprobs`' result of the whole, bit for bit."""
        return _sharded_top_logprobs(self.output_dtype, self.k, self.vocabulary)


class ChosenTokens(_Row, frozen=True, kw_only=True, tag="chosen_tokens"):
    """Token ids, chosen by keyed sampling or under stateless modifiers: one choice a row."""

    choices: Choices
    given: Given = "consumers"

    @property
    def projected(self) -> Projected:
        """What each row's :class:`Choice` says, the same wherever it runs."""
        return _choose(self.output_dtype, self.choices, self.given == "everywhere")


Surface = (
    Complete | Tokens | Logprobs | ShardedTokens | TopLogprobs | ShardedTopLogprobs | ChosenTokens
)


def observed(surface: Surface) -> tuple[str, ...]:
    """Names of the holdings that a consumer of this surface must end with.

    >>> observed(Logprobs())
    ('value', 'tokens')
    """
    projected = surface.projected
    value = (VALUE,) if surface.keeps_value else ()
    return value + ((projected.output,) if projected else ())
