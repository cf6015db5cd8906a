"""The processes of isolated handlers: when they begin, how many there are, and when none can be."""

import importlib
import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.eventually import eventually
from tests.support.processes import Processes
from tests.worker.support_isolated import MakeApp, is_alive, make_app, module_of
from tests.worker.support_workers import Working, work_off
from yaoki import InvalidOption, ProcessDied, Yaoki
from yaoki.worker.isolated import pool
from yaoki.worker.isolated.address import app_of

__all__ = ["make_app"]


@pytest.fixture
def app(make_app: MakeApp, url: str) -> Yaoki:
    return make_app(url)


def test_one_is_warm_before_the_first_job_and_there_are_as_many_as_run_at_once(
    app: Yaoki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "IDLE_FOR", 0.5)
    working = Working(app, concurrency=3)
    eventually(working.worker.ready.is_set, within=30)
    [warm] = working.worker.isolated.pids
    folder = tmp_path / "met"
    folder.mkdir()
    jobs = [app.enqueue("meet", {"people": 3, "folder": str(folder)}) for _ in range(3)]
    met = {app.wait(job, timeout=30).result for job in jobs}
    # Those that are not needed any more leave, and one stays.
    eventually(lambda: len(working.worker.isolated.pids) == 1, within=30)
    eventually(lambda: sum(is_alive(pid) for pid in met) == 1, within=30)
    working.drain()

    assert len(met) == 3
    assert warm in met
    assert not any(is_alive(pid) for pid in met)


def test_another_is_started_only_when_a_job_has_waited_for_a_moment(
    app: Yaoki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "GROW_AFTER", 30.0)  # the moment is long, for the machine may be slow
    app.enqueue_many("pid", [{}] * 3_000)
    work_off(app, concurrency=10)

    assert len({job.result for job in app.jobs(limit=1_000)}) == 1


def test_standard_input_is_empty_and_stays_the_worker_s(app: Yaoki) -> None:
    ours, typed = os.pipe()
    os.write(typed, b"typed\n")
    before = os.dup(0)
    os.dup2(ours, 0)
    try:
        job = app.enqueue("stdin")
        work_off(app)
        assert os.read(0, 10) == b"typed\n"
    finally:
        os.dup2(before, 0)
        for each in (ours, typed, before):
            os.close(each)

    assert app.get(job).result == "b''"


def test_an_app_that_no_module_has_is_refused_when_the_worker_starts(url: str) -> None:
    app = Yaoki(url)

    @app.job("isolated", isolation="process")
    def handler() -> None: ...

    with pytest.raises(InvalidOption, match="no module has it in a variable"):
        work_off(app)
    app.close()


class Lazy:
    """As Django's settings are: whatever is asked of them needs a configuration."""

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(f"asked for {name}")


def test_an_app_is_found_beside_objects_that_must_not_be_asked(
    app: Yaoki, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("lazy_settings")
    vars(module)["settings"] = Lazy()
    monkeypatch.setattr(sys, "modules", {"lazy_settings": module, **sys.modules})

    assert app_of(app.types)[0] == f"{module_of(app)}:app"


def test_an_app_that_cannot_be_imported_again_is_refused_when_the_worker_starts(
    make_app: MakeApp, url: str
) -> None:
    app = make_app(url, more="assert 'pytest' in sys.modules, 'not in a child'\n")

    with pytest.raises(ProcessDied, match=r"AssertionError: not in a child \(.*line 4\)"):
        work_off(app)


def test_while_none_can_be_started_no_attempt_is_used_up(
    make_app: MakeApp,
    url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new version of the app is half copied, say; a moment later it is whole."""
    monkeypatch.setattr(pool, "WAIT_PATIENCE", 0.2)
    whole = tmp_path / "whole"
    whole.touch()
    app = make_app(url, more=f"assert Path({str(whole)!r}).exists(), 'half copied'\n")
    working = Working(app, concurrency=1)
    eventually(working.worker.ready.is_set, within=30)
    whole.unlink()
    app.wait(app.enqueue("crash", {"how": "SIGKILL"}), timeout=30)
    job = app.enqueue("pid")
    eventually(lambda: caplog.text.count("half copied") >= 2, within=30)
    # Claimed, handed back and claimed again, as its revisions tell.
    eventually(lambda: app.get(job).revision >= 4, within=30)
    assert any("half copied" in note for note in working.worker.health().notes)
    whole.touch()
    ended = app.wait(job, timeout=30)
    working.drain()

    assert (ended.status, ended.attempt) == ("completed", 1)
    assert [one.outcome for one in ended.attempts] == ["completed"]


def test_modules_are_imported_in_the_order_in_which_they_were_imported_here(
    make_app: MakeApp, url: str, tmp_path: Path
) -> None:
    """Another may not work: modules import each other, and the first one wins."""
    app = make_app(url)
    names = [f"{module_of(app)}_{letter}" for letter in "bac"]
    for name in names:
        text = "from yaoki import JobSet\njobs = JobSet()\n@jobs.job()\ndef handler(): ...\n"
        (tmp_path / f"{name}.py").write_text(text)
        app.include(importlib.import_module(name).jobs)
    found, modules = app_of(app.types)
    for name in names:
        del sys.modules[name]

    assert found == f"{module_of(app)}:app"
    assert modules == ["tests.worker.isolated_handlers", module_of(app), *names]


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "sqlite:///jobs.db?durability=normal"])
def test_a_process_works_on_the_database_of_its_worker(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """Whatever that URL means where, and when, the module is imported again."""
    monkeypatch.chdir(tmp_path)
    app = make_app(url)
    job = app.enqueue("enqueue", {"text": "here"})
    monkeypatch.chdir("/")
    work_off(app)
    further = app.get(job).result

    assert isinstance(further, int)
    assert app.get(further).result == "here"


def test_hooks_and_middlewares_run_where_the_handler_runs(
    make_app: MakeApp, url: str, tmp_path: Path
) -> None:
    app = make_app(url, more=HOOKED)
    jobs = [app.enqueue(kind) for kind in ("pid", "async pid")]
    work_off(app, concurrency=1)
    results = [app.get(job).result for job in jobs]

    for kind, result in zip(("pid", "async pid"), results, strict=True):
        assert isinstance(result, dict)
        assert result["around"] == result["handler"] == result["started"] != os.getpid(), kind
        assert result["tenant"] == "of all"
        assert (tmp_path / f"stopped-{result['started']}").exists()


HOOKED = """
started = None
@app.on_startup
async def start():
    global started
    started = os.getpid()
    tenant.set("of all")
@app.on_shutdown
def stop():
    Path(app.url.removeprefix("sqlite:///")).with_name(f"stopped-{os.getpid()}").touch()
@app.around
def middleware(ctx, run):
    pids = {"around": os.getpid(), "handler": run(), "started": started}
    return pids | {"tenant": tenant.get()}
"""


SCRIPT = """
from yaoki import Yaoki
app = Yaoki({url!r})
print("imported", flush=True)
@app.job(isolation="process")
def add(a: int, b: int) -> int:
    again = app.enqueue("__main__.note", {{"name": note.name}})
    return a + b
@app.job(isolation="process")
def note(name: str) -> str:
    return name
{guard}
    job = add.enqueue(3, 4)
    app.run_worker(until_empty=True, concurrency=1)
    print([(one.type, one.result) for one in app.jobs()])
"""


@pytest.mark.parametrize("how", ["python script.py", "python -m script"])
def test_a_program_that_is_the_app_and_the_worker(
    processes: Processes, url: str, tmp_path: Path, how: str
) -> None:
    guard = 'if __name__ == "__main__":'
    (tmp_path / "script.py").write_text(SCRIPT.format(url=url, guard=guard))
    program = processes.python(*how.split()[1:], cwd=tmp_path)
    code = program.wait()

    assert code == 0, program.output
    assert program.lines.count("imported") == 2
    assert "[('__main__.note', '__main__.note'), ('__main__.add', 7)]" in program.output


def test_a_program_that_runs_its_worker_wherever_it_is_imported_is_told_so_once(
    processes: Processes, url: str, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(url=url, guard="if True:"))
    program = processes.python("script.py", cwd=tmp_path)
    code = program.wait()

    assert code == 1
    assert program.lines.count("imported") == 2
    assert program.output.count("Traceback") == 1
    assert 'below: if __name__ == "__main__":' in program.lines[-1]


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_command_line_runs_them_and_shows_what_they_log(
    processes: Processes, app: Yaoki, tmp_path: Path, form: str
) -> None:
    job = app.enqueue("logs", {"text": "seven"})
    worker = processes.yaoki(
        "--app",
        f"{module_of(app)}:app",
        "worker",
        "--until-empty",
        "--log",
        form,
        env={"PYTHONPATH": f"{tmp_path}:."},
    )
    code = worker.wait()

    assert (code, app.get(job).status) == (0, "completed"), worker.output
    [info] = [line for line in worker.lines if "info seven" in line]
    [error] = [line for line in worker.lines if "exception seven" in line]
    if form == "text":
        assert "info    tests.isolated: info seven" in info
        assert error.endswith("error   tests.isolated: exception seven [KeyError: 'inside']")
    else:
        said = json.loads(info)
        assert {"logger": "tests.isolated", "level": "info", "order": 7}.items() <= said.items()
        assert {"job": job.id, "type": "logs", "attempt": 1}.items() <= said.items()
        said = json.loads(error)
        assert said["error"] == "KeyError: 'inside'"
        assert "isolated_handlers.py" in said["traceback"]
