"""Campaigns: many independent tasks through one function, on one core, all cores, or a cluster.

What a campaign returns is the same list, byte for byte, whatever the engine, the number of jobs
and the order in which tasks finish: results are kept as JSON and handed back in task order. A
journal (JSON lines) makes a campaign resumable after an interruption.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

import joblib  # pyright: ignore[reportMissingTypeStubs]
import msgspec

from sembridge.errors import BadInput

T = TypeVar("T")
R = TypeVar("R")

Engine = Literal["serial", "local", "dask"]
Progress = Callable[[int, int], None]
"""Called with (tasks done, tasks in all), in the calling process."""

CHUNKS_PER_JOB = 16
MAX_CHUNK = 256


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a journal: a task's key and its result as JSON."""

    key: str
    result: msgspec.Raw


def run_campaign(
    tasks: Sequence[T],
    work: Callable[[T], R],
    *,
    key: Callable[[T], str],
    result: type[R] | Any = Any,
    engine: Engine = "local",
    jobs: int | None = None,
    scheduler: str | None = None,
    journal: Path | None = None,
    progress: Progress | None = None,
) -> list[R]:
    """``[work(task) for task in tasks]``, wherever it runs.

    ``work`` is an importable function of one task; what it returns must be JSON to msgspec, and
    is read back as ``result``. ``key`` names a task in the journal and must tell tasks apart;
    tasks that the journal has are not run again. ``jobs`` is the number of processes of the
    ``local`` engine (all cores by default), ``scheduler`` the address of a running Dask
    scheduler (a cluster on this machine by default).

    Raises:
        BadInput: an unknown engine, repeated keys, a journal that is damaged or is another
            campaign's, or the ``dask`` engine without its extra.
        Exception: whatever ``work`` raises, with a note that names the task.
    """
    if engine not in ENGINES:
        raise BadInput(f"no such engine {engine!r}; there are {', '.join(ENGINES)}")
    if jobs is not None and jobs < 1:
        raise BadInput(f"{jobs} jobs cannot do anything")
    if scheduler is not None and engine != "dask":
        raise BadInput(f"the {engine!r} engine takes no scheduler address")
    keys = [key(task) for task in tasks]
    if len(set(keys)) != len(keys):
        raise BadInput("two tasks of a campaign have one key")
    done = _read_journal(journal, set(keys)) if journal else {}
    left = [(k, task) for k, task in zip(keys, tasks, strict=True) if k not in done]
    workers = jobs or os.cpu_count() or 1
    size = max(1, min(MAX_CHUNK, len(left) // (workers * CHUNKS_PER_JOB)))
    chunks = [left[i : i + size] for i in range(0, len(left), size)]
    if progress:
        progress(len(done), len(keys))
    with journal.open("ab") if journal else nullcontext() as file:
        for finished in ENGINES[engine](work, chunks, workers, scheduler) if chunks else ():
            _record(file, finished)
            done.update(finished)
            if progress:
                progress(len(done), len(keys))
    return [msgspec.json.decode(done[k], type=result) for k in keys]


Chunk = list[tuple[str, Any]]
Finished = list[tuple[str, bytes]]


def _run_chunk(work: Callable[[Any], Any], chunk: Chunk) -> Finished:
    finished: Finished = []
    for key, task in chunk:
        try:
            finished.append((key, msgspec.json.encode(work(task))))
        except Exception as error:
            error.add_note(f"in task {key}")
            raise
    return finished


def _serial(
    work: Callable[[Any], Any], chunks: list[Chunk], jobs: int, scheduler: str | None
) -> Iterator[Finished]:
    return (_run_chunk(work, chunk) for chunk in chunks)


def _local(
    work: Callable[[Any], Any], chunks: list[Chunk], jobs: int, scheduler: str | None
) -> Iterable[Finished]:
    if jobs == 1:
        return _serial(work, chunks, jobs, scheduler)
    unordered: Any = {"return_as": "generator_unordered", "batch_size": 1}
    api: Any = joblib
    parallel = api.Parallel(n_jobs=jobs, **unordered)
    return parallel(api.delayed(_run_chunk)(work, chunk) for chunk in chunks)


def _dask(
    work: Callable[[Any], Any], chunks: list[Chunk], jobs: int, scheduler: str | None
) -> Iterator[Finished]:
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError as error:
        raise BadInput("the dask engine needs the extra: pip install sembridge[dask]") from error
    options: dict[str, Any] = {} if scheduler else {"n_workers": jobs, "threads_per_worker": 1}
    dashboard: dict[str, Any] = {} if scheduler else {"dashboard_address": None}
    try:
        client: Any = distributed.Client(scheduler, timeout=30, **options, **dashboard)
    except (OSError, TimeoutError, ValueError) as error:
        raise BadInput(f"no Dask scheduler answers at {scheduler!r}: {error}") from error
    with client:
        # A task may rightly run for minutes, and equal chunks are still distinct tasks.
        futures = [client.submit(_run_chunk, work, chunk, pure=False) for chunk in chunks]
        for _, finished in distributed.as_completed(futures, with_results=True):
            yield finished


ENGINES: dict[str, Callable[..., Iterable[Finished]]] = {
    "serial": _serial,
    "local": _local,
    "dask": _dask,
}
"""How chunks are run; to add an engine, add one entry."""


def _record(file: IO[bytes] | None, finished: Finished) -> None:
    if file is None:
        return
    for key, value in finished:
        file.write(msgspec.json.encode(_Line(key=key, result=msgspec.Raw(value))) + b"\n")
    file.flush()


def _read_journal(journal: Path, keys: set[str]) -> dict[str, bytes]:
    """Results by key; a last line that was cut off by the interruption is removed."""
    try:
        data = journal.read_bytes() if journal.exists() else b""
    except OSError as error:
        raise BadInput(f"cannot read: {error.strerror}", file=str(journal)) from error
    complete = data[: data.rfind(b"\n") + 1]
    done: dict[str, bytes] = {}
    for number, line in enumerate(complete.splitlines(), 1):
        try:
            entry = msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError as error:
            raise BadInput(f"line {number}: {error}", file=str(journal)) from error
        if entry.key not in keys:
            raise BadInput(
                f"line {number}: task {entry.key[:80]!r} is none of this campaign's",
                file=str(journal),
            )
        done[entry.key] = bytes(entry.result)
    if complete != data:
        with journal.open("rb+") as file:
            file.truncate(len(complete))
    return done
