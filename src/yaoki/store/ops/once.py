"""Doing something once: the key is recorded in the transaction of the effect."""

from dataclasses import dataclass

from yaoki.store.op import Op, Steps, ask, tell


@dataclass(frozen=True, slots=True)
class Once(Op[bool]):
    """True for the first transaction that records this key and commits; False ever after.

    Keys older than `keep` (microseconds) are cleared away, a few with each new one.
    """

    scope: str
    key: str
    keep: int

    def steps(self) -> Steps[bool]:
        yield tell("once_forget", keep=self.keep)
        [(recorded,)] = (yield ask("once", scope=self.scope, key=self.key)).rows
        return bool(recorded)
