"""The claims ledger: what the paper reports, and the one place where ours is compared with it.

``claims.toml`` holds every quantitative claim of arXiv:2609.08231v1 with its place, its number,
how ours is obtained and the class of the comparison. Numbers of the paper are quoted from here
(``paper``), always as ``reported by the paper``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from sembridge.errors import BadInput

REPORTED = "reported by the paper"

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.]+$")]
Text = Annotated[str, Meta(min_length=1)]
Number = int | float
Reported = Number | tuple[Number, ...]
"""A number, or several: the ends of a range, or counts that belong together."""


class Class(StrEnum):
    """What it takes for a claim to hold; ``claims.toml`` says each in a line."""

    EXACT = "exact"
    AT_MOST = "at-most"
    AT_LEAST = "at-least"
    ORDER = "order"
    WITHIN = "within"
    NOT_VALIDATED = "not-validated"


class Standing(StrEnum):
    """How a claim stands here. Only ``HOLDS`` is a pass, and only ``DIFFERS`` fails a run."""

    HOLDS = "holds"
    DIFFERS = "differs"
    UNDECIDED = "undecided"
    NOT_VALIDATED = "not validated"
    NOT_RUN = "not run"


class Estimate(Struct, frozen=True, kw_only=True):
    """A measured mean with its two-sided 95% confidence interval."""

    mean: float
    ci95: tuple[float, float]


class Claim(Struct, frozen=True, kw_only=True):
    """One quantitative claim of the paper, and how ours is obtained and compared."""

    name: str
    says: str
    where: str
    paper: Reported
    ci95: tuple[float, float] | None
    class_: Class = field(name="class")
    within: float | None
    how: str
    why: str
    experiment: str
    facts: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command that measures ours."""
        return f"sembridge reproduce {self.experiment}"


class _Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A claim as written; what is absent is its group's."""

    name: Name
    says: Text
    paper: Reported
    ci95: tuple[float, float] | None = None
    where: Text | None = None
    class_: Class | None = field(name="class", default=None)
    within: Annotated[float, Meta(ge=0)] | None = None
    why: Text | None = None
    facts: tuple[Name, ...] = ()


class _Group(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    experiment: Name
    where: Text
    class_: Class = field(name="class")
    within: Annotated[float, Meta(ge=0)] | None = None
    how: Text
    why: Text | None = None
    claims: tuple[_Entry, ...]


class _File(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="format",
    tag="sembridge.claims/1",
    forbid_unknown_fields=True,
):
    source: Text
    group: tuple[_Group, ...]


def read_claims(text: str) -> dict[str, Claim]:
    """Claims by name, in the order of the file.

    Raises:
        BadInput: it is no TOML, has unknown or missing keys, a repeated name, or a class without
            what it needs.
    """
    try:
        parsed = msgspec.convert(tomllib.loads(text), _File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadInput(str(error), file="claims.toml") from None
    found: dict[str, Claim] = {}
    for group in parsed.group:
        for entry in group.claims:
            if entry.name in found:
                raise BadInput(f"{entry.name} stands twice", file="claims.toml")
            found[entry.name] = _claim(group, entry)
    return found


def _claim(group: _Group, entry: _Entry) -> Claim:
    class_ = entry.class_ or group.class_
    within = group.within if entry.within is None else entry.within
    why = entry.why or (group.why if class_ is Class.NOT_VALIDATED else None) or ""
    wrong = None
    if class_ is Class.WITHIN and within is None:
        wrong = "within what?"
    elif (class_ is Class.NOT_VALIDATED) != bool(why):
        wrong = "a reason stands with what is not validated, and nowhere else"
    elif class_ is Class.ORDER and (isinstance(entry.paper, tuple) or entry.paper == 0):
        wrong = "only a number that is not zero lies on a side of zero"
    if wrong:
        raise BadInput(f"{entry.name}: {wrong}", file="claims.toml")
    return Claim(
        name=entry.name,
        says=entry.says,
        where=entry.where or group.where,
        paper=entry.paper,
        ci95=entry.ci95,
        class_=class_,
        within=within if class_ is Class.WITHIN else None,
        how=group.how,
        why=why,
        experiment=group.experiment,
        facts=entry.facts or (entry.name,),
    )


@cache
def ledger() -> Mapping[str, Claim]:
    """The ledger that ships with the experiments."""
    return read_claims(files("experiments").joinpath("claims.toml").read_text("utf-8"))


def paper(name: str) -> Any:
    """What the paper reports for a claim, to be shown as ``REPORTED``."""
    return ledger()[name].paper


def compare(claim: Claim, ours: Any) -> Standing:
    """How ``ours`` stands to what the paper reports, by the claim's class; None was not run."""
    if claim.class_ is Class.NOT_VALIDATED:
        return Standing.NOT_VALIDATED
    if ours is None:
        return Standing.NOT_RUN
    low, high = _ends(claim.paper)
    match claim.class_:
        case Class.EXACT:
            holds = (tuple(ours) if isinstance(ours, list) else ours) == claim.paper
        case Class.AT_MOST:
            holds = ours <= high
        case Class.AT_LEAST:
            holds = ours >= low
        case Class.WITHIN:
            slack = (claim.within or 0) / 100
            holds = low - slack * abs(low) <= ours <= high + slack * abs(high)
        case Class.ORDER:
            return _side(ours, 1 if low > 0 else -1)
    return Standing.HOLDS if holds else Standing.DIFFERS


def _ends(reported: Reported) -> tuple[Number, Number]:
    return (reported[0], reported[-1]) if isinstance(reported, tuple) else (reported, reported)


def _side(ours: Any, sign: int) -> Standing:
    """An interval that contains zero decides nothing."""
    ends = ours.ci95 if isinstance(ours, Estimate) else (ours, ours)
    if all(sign * end > 0 for end in ends):
        return Standing.HOLDS
    return Standing.DIFFERS if all(sign * end < 0 for end in ends) else Standing.UNDECIDED


class Check(Struct, frozen=True, kw_only=True):
    """A claim of this kit's own: it holds where ``ours`` equals ``expected``."""

    name: str
    where: str = ""
    ours: Any
    expected: Any
    note: str = ""


class Line(Struct, frozen=True, kw_only=True):
    """A claim or a check as it is shown: the numbers, the class, and how it stands."""

    name: str
    says: str
    where: str
    paper: Any
    ci95: tuple[float, float] | None
    expected: Any
    ours: Any
    class_: Class = field(name="class")
    standing: Standing
    command: str
    note: str


def line(claim: Claim, ours: Any, note: str = "") -> Line:
    """A claim beside ``ours``; ``note`` is why there is none."""
    standing = compare(claim, ours)
    within = f"within {claim.within:g} %" if claim.within is not None else ""
    return Line(
        name=claim.name,
        says=claim.says,
        where=claim.where,
        paper=claim.paper,
        ci95=claim.ci95,
        expected=None,
        ours=ours,
        class_=claim.class_,
        standing=standing,
        command=claim.command,
        note=claim.why or (note if standing is Standing.NOT_RUN else within),
    )


def own_line(check: Check, experiment: str) -> Line:
    """A check of this kit's own as a line; nothing in it is the paper's."""
    return Line(
        name=check.name,
        says=check.name,
        where=check.where,
        paper=None,
        ci95=None,
        expected=check.expected,
        ours=check.ours,
        class_=Class.EXACT,
        standing=Standing.HOLDS if check.ours == check.expected else Standing.DIFFERS,
        command=f"sembridge reproduce {experiment}",
        note=check.note,
    )


def count(lines: Iterable[Line]) -> dict[Standing, int]:
    """How many lines stand how; every standing is there."""
    found = dict.fromkeys(Standing, 0)
    for one in lines:
        found[one.standing] += 1
    return found


def shown(value: Any, ci95: tuple[float, float] | None = None) -> str:
    """A number, a range or an estimate as the paper would print it."""
    if isinstance(value, Estimate):
        value, ci95 = value.mean, value.ci95
    elif isinstance(value, Mapping):  # an estimate that was read back
        value, ci95 = value["mean"], value["ci95"]
    if value is None:
        return ""
    if isinstance(value, tuple | list):
        return ", ".join(shown(v) for v in value)
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f"{text} [{ci95[0]:.4g}, {ci95[1]:.4g}]" if ci95 else text
