"""Other people's tools: each in a module of its own, imported only when it is used."""

from yaoki.contrib.outcome import outcome_of

__all__ = ["outcome_of"]
