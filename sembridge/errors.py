"""One exception base with stable codes; the command line maps each to an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sembridge.verdict import Violation


class SemBridgeError(Exception):
    """Base of everything this package raises on purpose."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 2


class BadInput(SemBridgeError):
    """A file, field or argument that cannot be read as what it claims to be (exit 2).

    ``path`` is the JSON path of the offending field, ``file`` where it was read from.
    """

    code = "bad-input"

    def __init__(self, message: str, *, path: str = "", file: str = "") -> None:
        self.message, self.path, self.file = message, path, file
        super().__init__(": ".join(part for part in (file, path, message) if part))

    def within(self, file: str) -> BadInput:
        """The same error, naming the file it was found in."""
        return type(self)(self.message, path=self.path, file=file)


class ContractRejected(SemBridgeError):
    """A contract that parses but fails static validation (§3.5; exit 1)."""

    code = "contract-rejected"
    exit_code = 1

    def __init__(self, name: str, violations: Sequence[Violation]) -> None:
        self.name, self.violations = name, tuple(violations)
        listed = "; ".join(f"{v.rule}: {v.message}" for v in self.violations)
        super().__init__(f"contract {name!r} is rejected: {listed}")


class PlanRejected(SemBridgeError):
    """The checker refused a plan of the lowerer's own: a defect of the kit, never emitted."""

    code = "plan-rejected"
    exit_code = 1

    def __init__(self, name: str, violations: Sequence[Violation]) -> None:
        self.name, self.violations = name, tuple(violations)
        listed = "; ".join(f"{v.rule} at op {v.op}: {v.message}" for v in self.violations)
        super().__init__(f"no plan for contract {name!r} passed the checker: {listed}")
