"""Submit, watch and end transfers of carrack."""

from ._client import Client
from ._errors import Away, CarrackError, Forbidden, NotFound, Refused
from ._records import Failure, Mover, Session, Skipped, State, Submission, Tally, Transfer

__all__ = [
    "Away",
    "CarrackError",
    "Client",
    "Failure",
    "Forbidden",
    "Mover",
    "NotFound",
    "Refused",
    "Session",
    "Skipped",
    "State",
    "Submission",
    "Tally",
    "Transfer",
]
__version__ = "0.1.0"
