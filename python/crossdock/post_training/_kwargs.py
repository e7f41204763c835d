# SPDX-License-Identifier: Apache-2.0
"""Arguments for a class whose fields differ from version to version."""

import inspect
import logging

log = logging.getLogger("crossdock")


class Kwargs(dict):
    """What can be passed. `dropped`: the names that cannot, sorted."""

    dropped = ()


def supported_kwargs(cls, kwargs):
    """Those of `kwargs` that the installed version of `cls`, a class or function, takes by name.

    Returns a Kwargs, a dict; what was left out is in its `dropped` and is told as a warning of the logger `crossdock`. Where `cls` takes
    any name (`**kwargs`), or does not say what it takes, nothing is left out.
    """
    kept = Kwargs(kwargs)
    try:
        parameters = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError):
        return kept
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return kept
    named = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    kept.dropped = tuple(sorted(set(kept) - named))
    for name in kept.dropped:
        del kept[name]
    if kept.dropped:
        log.warning("%s of the installed version takes no %s: left out", getattr(cls, "__qualname__", cls), ", ".join(f"`{name}`" for name in kept.dropped))
    return kept
