"""Without what only some systems have: no fork, no alarm, no descriptors of processes (155)."""

from tests.supervisor.yard import Yard

BARE = """
import asyncio, os, signal

for module, names in {
    os: "fork forkpty register_at_fork uname waitid pidfd_open killpg getpgid",
    signal: "SIGALRM SIGHUP SIGUSR1 SIGCHLD pthread_sigmask set_wakeup_fd setitimer",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)


def no_such_thing(*rest):
    raise NotImplementedError


asyncio.SelectorEventLoop.add_signal_handler = no_such_thing
"""


def test_a_worker_and_its_supervisor_do_without_what_windows_and_macos_lack(yard: Yard) -> None:
    """Each process begins bare: jobs run, time limits hold, and a death is seen and made up for."""
    (yard.program.folder / "sitecustomize.py").write_text(BARE)
    yard.program.always["PYTHONPATH"] += f":{yard.program.folder}"
    quick, block = yard.app.enqueue("quick", {}), yard.app.enqueue("block", {"seconds": 0.1})
    overrun = yard.app.enqueue("overrun", {})

    first = yard.run("--until-empty", "--grace", "1s")
    poison = yard.app.enqueue("die", {})
    second = yard.run("--until-empty")

    assert (first.code, second.code) == (0, 0)
    assert [yard.app.get(job).status for job in (quick, block)] == ["completed", "completed"]
    assert "time limit" in (yard.app.get(overrun).error or "")
    assert yard.app.get(poison).error == "worker process killed by signal 9 (SIGKILL)"
    assert "Traceback" not in first.err + second.err
