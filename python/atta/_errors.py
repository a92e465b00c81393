"""The exceptions of this package, by the statuses of libatta.

Each is a kind of the built-in exception that fits, so that code that knows nothing of atta can
catch it.
"""

from __future__ import annotations


class AttaError(RuntimeError):
    """A call of libatta failed."""


class InvalidError(AttaError, ValueError):
    """An argument is wrong."""


class AbsentError(AttaError, LookupError):
    """The model has no such value."""


class BusyError(AttaError):
    """A session or generation is in use by another thread or generation."""


class ModelError(AttaError, ValueError):
    """The model cannot be opened."""


class MemoryBudgetError(AttaError, MemoryError):
    """There is too little memory, or the budget is too small."""


class ContextError(AttaError, ValueError):
    """The tokens do not fit the context."""


class RequestError(AttaError, ValueError):
    """A request was refused."""


class InternalError(AttaError):
    """A bug in atta."""


class SuspendedError(AttaError):
    """The session is suspended, and must be resumed first."""
