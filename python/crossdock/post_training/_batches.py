# SPDX-License-Identifier: Apache-2.0
"""A stream of batches that ends when a run has had its share.

A trainer asks for the next batch before it looks whether it has done its steps: a stream without an end, or one that has to wait for a batch,
is then asked once too often.
"""

from ..errors import UsageError


class BatchBudget:
    """The batches of `iterator`, until `steps` steps of `grad_accumulation` batches each have been had.

    iterator: an iterable of batches. steps: updates of the model in the whole run. grad_accumulation: batches of an update; None as 1.
    consumed: batches that the run had before it was resumed, where `iterator` begins after them; 0 where it begins anew, as with trainers that
    skip what they have seen. UsageError for a count that is no whole number or is negative.
    """

    def __init__(self, iterator, steps, grad_accumulation=1, consumed=0):
        self.total = _count("steps", steps, 0) * _count("grad_accumulation", 1 if grad_accumulation is None else grad_accumulation, 1)
        self.consumed = _count("consumed", consumed, 0)
        self._iterator = iter(iterator)

    @property
    def remaining(self):
        """Batches that are still to come, if the stream has as many."""
        return max(self.total - self.consumed, 0)

    def __iter__(self):
        return self

    def __next__(self):
        if not self.remaining:
            raise StopIteration   # and the stream is not asked
        batch = next(self._iterator)
        self.consumed += 1
        return batch


def _count(name, value, least):
    try:
        number = value.__index__()
    except AttributeError:
        number = None
    if isinstance(value, bool) or number is None or number < least:
        raise UsageError(f"`{name}` is a whole number, {least} or more: {value!r}", message=f"`{name}` is out of range", expected=f"{least} or more", found=repr(value))
    return number
