"""The surface command: JSON as interchanged, text for people, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sembridge import cli
from tests.serving.bodies import CHAT, PARAMS

REQUESTS = Path(__file__).parents[1] / "data/requests.jsonl"


def run(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, *arguments: object
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["sembridge", "surface", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsysbinary.readouterr()
    code = ended.value.code
    return (code if isinstance(code, int) else 0), printed.out.decode(), printed.err.decode()


@pytest.fixture
def surface(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda *arguments: run(capsysbinary, monkeypatch, *arguments)


def written(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_json_is_the_interchange_format(surface: Any, tmp_path: Path) -> None:
    request = written(tmp_path / "request.json", CHAT.greedy)
    code, out, err = surface(request, "--api", "openai", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "surface": "tokens",
        "paper_surface": "tokens",
        "decided_by": ["temperature"],
        "warnings": [],
    }


def test_text_says_surface_field_and_rule(surface: Any, tmp_path: Path) -> None:
    request = written(tmp_path / "request.json", PARAMS.but(min_tokens=3, extra_args={}))
    code, out, _ = surface(request, "--api", "vllm")
    assert code == 0
    assert out.splitlines() == [
        "surface     complete",
        "paper       other-projection",
        "decided by  min_tokens: a counter masks the stop set at the producer",
        "rule        deterministic, but no registered projection: complete logits",
    ]


def test_a_strangers_names_reach_no_terminal_raw(surface: Any, tmp_path: Path) -> None:
    request = written(tmp_path / "request.json", PARAMS.but(**{"\x1b[31m": 1, "[/bold]": 1}))
    _, out, err = surface(request, "--api", "vllm")
    assert "\x1b" not in out + err
    assert "[/bold]" in out
    batch = tmp_path / "batch.jsonl"
    batch.write_text(json.dumps({"id": "\x1b[/x]", "body": {"temperature": 0}}))
    code, out, _ = surface("--batch", batch, "--api", "vllm")
    assert (code, "\x1b" in out) == (0, False)


def test_defaults_and_engine_options_are_read(surface: Any, tmp_path: Path) -> None:
    request = written(tmp_path / "request.json", {"top_p": 0.9})
    defaults = written(tmp_path / "generation_config.json", {"temperature": 0})
    engine = written(tmp_path / "engine.json", {"speculative_config": {"method": "ngram"}})
    _, out, _ = surface(request, "--api", "vllm", "--defaults", defaults, "--json")
    assert json.loads(out)["surface"] == "tokens"
    _, out, _ = surface(
        request, "--api", "vllm", "--defaults", defaults, "--engine", engine, "--json"
    )
    assert json.loads(out)["paper_surface"] == "other-projection"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"temperature": "1.3"}, '$.temperature: must be a number, not "1.3"'),
        ([], "expected `object`"),
    ],
)
def test_bad_input_is_one_line_and_two(
    surface: Any, tmp_path: Path, document: Any, message: str
) -> None:
    request = written(tmp_path / "request.json", document)
    code, out, err = surface(request, "--api", "vllm", "--json")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert str(request) in err
    assert message in err


@pytest.mark.parametrize(
    "arguments",
    [(), ("a.json", "--batch", "b.jsonl"), ("a.json",), ("a.json", "--api", "tgi")],
)
def test_what_to_read_must_be_said(surface: Any, arguments: tuple[str, ...]) -> None:
    code, out, err = surface(*arguments)
    assert (code, out) == (2, "")
    assert "sembridge: error: " in err


def test_a_batch_of_real_requests(surface: Any) -> None:
    code, out, err = surface("--batch", REQUESTS, "--vocab", 200_064, "--lanes", 4, "--json")
    report = json.loads(out)
    assert (code, err, report["refused"]) == (0, "", 4)
    assert report["join"]["paper_surface"] == "logprobs"
    priced = report["bytes_per_step"]
    assert priced["choices"]["complete"]["mapped"] == priced["rows"] * 200_064 * 4
    assert priced["choices"]["tokens"] == {
        "mapped": priced["rows"] * 16,
        "owner": priced["rows"] * 4,
    }
    _, text, _ = surface("--batch", REQUESTS, "--vocab", 200_064, "--lanes", 4, "--quiet")
    assert "join     logprobs (paper: logprobs)" in text
    assert str(priced["per_request"]["mapped"]) in text


def test_requests_are_read_without_the_checker_or_the_lowerer() -> None:
    listed = "import sys, sembridge.serving.batch; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", listed], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "sembridge.serving.surface" in loaded
    assert not {"sembridge.check", "sembridge.lowering"} & set(loaded)
