# SPDX-License-Identifier: Apache-2.0
"""What can go wrong: one class for each code of the engine, all of them `Error`.

`str(error)` is the paragraph that the command line prints; the fields hold its parts.
"""


class Error(Exception):
    """Base of all errors of crossdock.

    Fields: `code` (str, as in the JSON of the command line), `message` (str, what failed), `path` (str, the file),
    `tensor` (str), `offset` (int or None, bytes into `path`), `expected`, `found` and `hint` (str). What does not apply is empty.
    """

    code = ""

    def __init__(self, text: str = "", *, message: str = "", path: str = "", tensor: str = "", offset: "int | None" = None,
                 expected: str = "", found: str = "", hint: str = "") -> None:
        super().__init__(text)
        self.message = message or text
        self.path = path
        self.tensor = tensor
        self.offset = offset
        self.expected = expected
        self.found = found
        self.hint = hint

    def __reduce__(self):
        return _again, (type(self), str(self), dict(self.__dict__))


class UsageError(Error, ValueError):
    """The request itself makes no sense: an option, a value, an impossible layout."""

    code = "usage"


class CorruptError(Error):
    """Bytes that contradict their own format."""

    code = "corrupt"


class IncompleteError(Error):
    """Something that must be there is missing."""

    code = "incomplete"


class UnsafeError(Error):
    """Input that would reach outside its place or run code."""

    code = "unsafe"


class UnsupportedError(Error):
    """Valid, but not something that this version can carry."""

    code = "unsupported"


class IoError(Error):
    """The operating system refused."""

    code = "io"


class NoSpaceError(Error):
    """The disk is, or would be, full."""

    code = "no_space"


class CancelledError(Error):
    """The work was stopped before its end."""

    code = "cancelled"


_CLASSES = {
    cls.code: cls
    for cls in (UsageError, CorruptError, IncompleteError, UnsafeError, UnsupportedError, IoError, NoSpaceError, CancelledError)
}


def _from_core(text, fields):
    """The exception of an error of the engine; called by _core."""
    fields = dict(fields)
    return _CLASSES[fields.pop("code")](text, **fields)


def _again(cls, text, fields):
    error = cls(text)
    error.__dict__.update(fields)
    return error
