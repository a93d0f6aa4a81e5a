"""Errors of the API: a status and a JSON object in the form of OpenAI's, whatever went wrong.

{"error": {"type": "invalid_request", "message": "The column 'context' is not there. ...", "param": "context"}}
"""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from seqfit.errors import SeqfitError, describe_error, is_out_of_memory
from seqfit.serving.queue import QueueFull


class ApiError(Exception):
    def __init__(self, status: int, kind: str, message: str, param: str | None = None, *, close: bool = False) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.param, self.close = status, kind, message, param, close

    @classmethod
    def of(cls, error: BaseException) -> ApiError:
        """For whatever a queue or a model raised."""
        if isinstance(error, ApiError):
            return error
        if isinstance(error, QueueFull):
            return cls(429, "queue_full", str(error))
        if is_out_of_memory(error):
            return cls(503, "out_of_memory", "Out of memory (OOM): send fewer or shorter rows")
        if isinstance(error, SeqfitError):
            return cls(422, "invalid_request", str(error))
        return cls(500, "internal_error", describe_error(error))

    def to_json(self) -> dict[str, Any]:
        return {"error": {"type": self.kind, "message": self.message, "param": self.param}}

    def to_response(self) -> JSONResponse:
        headers = {"Retry-After": "1"} if self.status in (429, 503) else {}
        headers |= {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        headers |= {"Connection": "close"} if self.close else {}
        return JSONResponse(self.to_json(), self.status, headers)
