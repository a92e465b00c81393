"""Runs large language models from GGUF and QSF files, in little memory.

`Llama` has the surface of llama-cpp-python's class; `Model` and `Session` are atta's own.
"""

from __future__ import annotations

from ._errors import (
    AbsentError,
    AttaError,
    BusyError,
    ContextError,
    InternalError,
    InvalidError,
    MemoryBudgetError,
    ModelError,
    RequestError,
    SuspendedError,
)
from ._model import Event, Generation, Heat, Model, Responses, Sampler, Session
from ._native import version as _version
from .llama import (
    Llama,
    LlamaGrammar,
    LlamaState,
    LogitsProcessorList,
    StoppingCriteriaList,
)

__version__ = _version()

__all__ = [
    "AbsentError",
    "AttaError",
    "BusyError",
    "ContextError",
    "Event",
    "Generation",
    "Heat",
    "InternalError",
    "InvalidError",
    "Llama",
    "LlamaGrammar",
    "LlamaState",
    "LogitsProcessorList",
    "MemoryBudgetError",
    "Model",
    "ModelError",
    "RequestError",
    "Responses",
    "Sampler",
    "Session",
    "StoppingCriteriaList",
    "SuspendedError",
]
