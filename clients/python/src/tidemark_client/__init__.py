"""Client of Tidemark, a follow-feed system."""

from .client import AsyncTidemark, Tidemark
from .generated import api, models
from .generated.types import UNSET, Unset
from .pager import AsyncPager, Page, Pager
from .problem import FieldError, TidemarkProblem
from .request import Request
from .retry import Retries

__all__ = [
    "UNSET",
    "AsyncPager",
    "AsyncTidemark",
    "FieldError",
    "Page",
    "Pager",
    "Request",
    "Retries",
    "Tidemark",
    "TidemarkProblem",
    "Unset",
    "api",
    "models",
]
