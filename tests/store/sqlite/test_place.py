"""URLs of SQLite stores: which file, how durable, and where it may not be."""

from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest

from yaoki import InvalidOption, StoreUnavailable, UnsupportedStore, Yaoki, YaokiError
from yaoki.store import SQLiteStore, open_store
from yaoki.store.ops.claims import Look
from yaoki.store.sqlite.place import check, parse

PATHS = {
    "sqlite:///jobs.db": "jobs.db",
    "sqlite:///var/jobs.db": "var/jobs.db",
    "sqlite:///./jobs.db": "jobs.db",
    "sqlite:////var/lib/jobs.db": "/var/lib/jobs.db",
    "sqlite:///my%20jobs.db": "my jobs.db",
    "sqlite:///仕事.db": "仕事.db",
    "sqlite:///a%3Fb.db": "a?b.db",
    "sqlite:///a+b.db": "a+b.db",
}


@pytest.mark.parametrize("url", PATHS)
def test_three_slashes_are_relative_and_four_are_absolute(url: str) -> None:
    assert parse(url).path == Path(PATHS[url])


@pytest.mark.parametrize("url", ["sqlite:///C:/yaoki/jobs.db", "sqlite:///C:\\yaoki\\jobs.db"])
def test_a_windows_path_keeps_its_drive(url: str) -> None:
    path = parse(url).path

    assert path is not None
    assert PureWindowsPath(str(path)) == PureWindowsPath("C:\\yaoki\\jobs.db")


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "sqlite:///", "sqlite://"])
def test_memory_has_no_path(url: str) -> None:
    assert parse(url).path is None


def test_what_is_not_said_is_full_durability_and_half_a_minute() -> None:
    assert (parse("sqlite:///a").durability, parse("sqlite:///a").busy_timeout) == ("full", 30.0)


def test_options_follow_the_question_mark() -> None:
    place = parse("sqlite:///a?durability=normal&busy_timeout=1.5")

    assert (place.path, place.durability, place.busy_timeout) == (Path("a"), "normal", 1.5)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:jobs.db",
        "sqlite:/jobs.db",
        "sqlite://jobs.db",
        "sqlite://host/jobs.db",
        "sqlite:///a?durability=none",
        "sqlite:///a?durability=",
        "sqlite:///a?busy_timeout=-1",
        "sqlite:///a?busy_timeout=x",
        "sqlite:///a?busy_timeout=1e9",
        "sqlite:///a?journal_mode=off",
        "sqlite:///a%00b",
        "sqlite",
        "redis://localhost",
        "jobs.db",
        "",
    ],
)
def test_a_url_that_is_wrong_is_refused_in_one_line_that_says_how_to_write_it(url: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        open_store(url)

    assert "\n" not in str(refused.value)


def test_making_an_app_opens_and_makes_nothing(tmp_path: Path) -> None:
    Yaoki(f"sqlite:///{tmp_path / 'jobs.db'}")

    assert list(tmp_path.iterdir()) == []


def test_a_relative_file_is_where_the_program_is_when_it_is_first_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = Yaoki("sqlite:///jobs.db")
    app.enqueue("mail")
    monkeypatch.chdir("/")

    assert app.enqueue("mail").id == 2
    app.close()
    assert (tmp_path / "jobs.db").exists()


def test_the_url_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YAOKI_URL", "sqlite:////somewhere/jobs.db")
    assert Yaoki().url == "sqlite:////somewhere/jobs.db"
    assert Yaoki("sqlite:///mine.db").url == "sqlite:///mine.db"

    monkeypatch.delenv("YAOKI_URL")
    assert Yaoki().url == "sqlite:///yaoki.db"


# Files that cannot be used


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    refused_with(StoreUnavailable, f"sqlite:///{tmp_path}", "is a folder")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    refused_with(
        StoreUnavailable, f"sqlite:///{tmp_path / 'none' / 'jobs.db'}", f"{tmp_path / 'none'} does"
    )


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, by any means. " * 50)

    refused_with(StoreUnavailable, f"sqlite:///{tmp_path / 'notes.txt'}", "something else")
    assert (tmp_path / "notes.txt").read_text().startswith("not a database")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    app = Yaoki(f"sqlite:///{file}")
    for _ in range(200):
        app.enqueue("mail", {"a": "x" * 500})
    app.close()
    pages = bytearray(file.read_bytes())
    pages[4_096:] = b"\xff" * (len(pages) - 4_096)
    file.write_bytes(pages)

    with pytest.raises(YaokiError) as refused:
        app.jobs()
    assert "\n" not in str(refused.value)
    app.close()


def refused_with(kind: type[YaokiError], url: str, words: str) -> None:
    store = SQLiteStore(url)
    for _ in range(2):
        with pytest.raises(kind) as refused:
            store.run(Look())
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)
    store.close()


# Network file systems

MOUNTS = """\
sysfs /sys sysfs rw 0 0
/dev/sda1 / ext4 rw,relatime 0 0
/dev/sdb1 {folder}/local xfs rw 0 0
server:/export {folder}/nfs nfs4 rw,vers=4.2 0 0
//server/share {folder}/my\\040share cifs rw 0 0
sshfs#me@host: {folder}/ssh fuse.sshfs rw 0 0
/dev/sdc1 {folder}/nfs/inside ext4 rw 0 0
none {folder}/odd
"""


@pytest.fixture
def mounts(tmp_path: Path) -> str:
    for name in ("local", "nfs", "my share", "ssh", "nfs/inside", "nfs/deep", "nfsother"):
        (tmp_path / name).mkdir()
    return MOUNTS.format(folder=tmp_path)


@pytest.mark.parametrize("folder", ["nfs", "nfs/deep", "my share", "ssh"])
def test_a_network_file_system_is_refused_with_a_hint_at_postgresql(
    tmp_path: Path, mounts: str, folder: str
) -> None:
    """Locks that do not hold, and shared memory that is not shared (fault 131)."""
    with pytest.raises(UnsupportedStore, match="postgresql://") as refused:
        check(tmp_path / folder / "jobs.db", mounts)

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("folder", ["local", ".", "nfs/inside", "nfsother"])
def test_a_local_file_system_is_fine(tmp_path: Path, mounts: str, folder: str) -> None:
    check(tmp_path / folder / "jobs.db", mounts)


def test_a_link_into_a_network_file_system_is_refused(tmp_path: Path, mounts: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nfs")

    with pytest.raises(UnsupportedStore):
        check(tmp_path / "link" / "jobs.db", mounts)


def test_a_linked_file_in_a_network_file_system_is_refused(tmp_path: Path, mounts: str) -> None:
    (tmp_path / "jobs.db").symlink_to(tmp_path / "nfs" / "jobs.db")

    with pytest.raises(UnsupportedStore):
        check(tmp_path / "jobs.db", mounts)


def test_where_mounts_cannot_be_told_the_file_is_taken(tmp_path: Path) -> None:
    check(tmp_path / "jobs.db", "")
    assert PurePosixPath("/") in (tmp_path / "jobs.db").parents
