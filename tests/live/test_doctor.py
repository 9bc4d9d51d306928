"""The doctor reports what is broken, and breaks on nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sembridge.live import doctor
from sembridge.live.doctor import ABILITIES, PROBES, diagnose

ROOT = Path(__file__).parents[2]

BROKEN = {
    "ImportError": "raise ImportError('libhccl.so: cannot open shared object file\\nmore')",
    "RuntimeError": "raise RuntimeError('ASCEND_HOME_PATH is not set')",
    "OSError": "raise OSError('libascend_hal.so: no such file')",
    "AttributeError": "import sys; sys.no_such_thing",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_torch_npu_is_one_line(kind, tmp_path):
    (tmp_path / "torch_npu.py").write_text(BROKEN[kind])
    code = (
        "import json, msgspec, os; from sembridge.live import doctor;"
        "found = doctor._torch_npu();"
        "print(msgspec.json.encode([found, os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD']]).decode())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    found, autoload = json.loads(ran.stdout)
    assert (found["state"], autoload) == ("broken", "0")
    assert kind in found["detail"]
    assert "CANN" in found["detail"]
    assert "\n" not in found["detail"]


def test_a_backend_that_raises_is_broken_and_not_a_crash(monkeypatch):
    def absent():
        raise RuntimeError("vendor library: 507033\nsecond line")

    changed = doctor.BACKENDS["gloo"]
    monkeypatch.setitem(
        doctor.BACKENDS, "gloo", type(changed)(**{**as_dict(changed), "absent": absent})
    )
    assert doctor._backend("gloo") == doctor.Finding(
        name="gloo", state="broken", detail="RuntimeError: vendor library: 507033"
    )


def as_dict(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def test_abilities_follow_from_findings(monkeypatch):
    names = [probe().name for probe in PROBES]
    assert len(set(names)) == len(names)
    assert {need for needs in ABILITIES.values() for need in needs} <= set(names)
    monkeypatch.setattr(
        doctor,
        "PROBES",
        [lambda n=n: doctor.Finding(name=n, state="absent" if n == "nccl" else "present", detail="")
         for n in names],
    )  # fmt: skip
    lacking = {a.name: a.missing for a in diagnose().abilities if not a.runs}
    assert lacking == {"plans between a CUDA and a CPU domain": ("nccl",)}


def test_doctor_command(sembridge):
    ran = sembridge("doctor", "--json")
    report = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert "ever run on Ascend" in report["note"]
    states = {f["name"]: f["state"] for f in report["findings"]}
    for ability in report["abilities"]:
        needed = ABILITIES[ability["name"]]
        assert ability["missing"] == [n for n in needed if states[n] != "present"]
        assert ability["runs"] == (not ability["missing"])
    text = sembridge("doctor", "--quiet").out
    assert "Will run" in text
    assert "Found" not in text
