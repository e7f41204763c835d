# SPDX-License-Identifier: Apache-2.0
"""Chat templates in Jinja2, rendered as transformers renders them, in a sandbox: a template comes with a checkpoint and is not to be trusted.

A template sees `messages`, `tools`, `documents`, `add_generation_prompt`, the special tokens by name (`bos_token` ...) and what the caller adds; the functions
`raise_exception(text)`, `strftime_now(format)`, `namespace` and `dict`, the filter `tojson` that leaves HTML alone, `{% break %}`, `{% continue %}`
and `{% generation %}`. What it gets is rebuilt of plain types: no object of the caller's is within its reach. Needs jinja2, 3.1.6 or newer:
older ones let templates out.
"""

import functools
import numbers
from collections.abc import Mapping

from ..errors import UnsupportedError, UsageError

_OLDEST = (3, 1, 6)


def render(template, messages, *, tools=None, documents=None, add_generation_prompt=False, **variables):
    """The text of a chat. messages: dicts with `role`, `content` and what else the template knows; a key whose value is None counts as absent.

    tools: JSON schemas, dicts. Errors of jinja2 pass through, TemplateError from `raise_exception`. UsageError for values that are not plain.
    """
    if not isinstance(messages, (list, tuple)) or not messages or not all(isinstance(one, Mapping) for one in messages):
        raise UsageError("a chat is a list of messages, dicts with `role` and `content`, at least one", message="a chat is a list of messages",
                         expected="a list of dicts", found=repr(messages)[:80])  # fmt: skip
    if tools is not None and not all(isinstance(tool, Mapping) for tool in tools):
        raise UsageError("a tool is told by its JSON schema, a dict", message="a tool is no JSON schema", expected="a dict", found=type(next(t for t in tools if not isinstance(t, Mapping))).__name__)
    messages = [{key: value for key, value in one.items() if value is not None} for one in messages]
    return _compiled(template).render(messages=_plain(messages), tools=_plain(tools), documents=_plain(documents), add_generation_prompt=bool(add_generation_prompt),
                                      **_plain(variables))  # fmt: skip


def _plain(value):
    if value is None or type(value) in (str, int, float, bool):
        return value
    for kind in (str, int, float):   # enums and numbers of libraries carry methods along
        if isinstance(value, kind):
            return kind.__str__(value) if kind is str else kind(value)
    if isinstance(value, numbers.Real):   # numpy's, but for its truth values
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {_plain(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    raise UsageError(f"a chat template takes texts, numbers, lists and dicts, no {type(value).__name__}", message="a value is not plain",
                     expected="text, number, list or dict", found=type(value).__name__)  # fmt: skip


@functools.lru_cache(maxsize=16)
def _compiled(template):
    return _environment().from_string(template)


@functools.lru_cache(maxsize=1)
def _environment():
    import datetime
    import importlib.metadata
    import json

    import jinja2
    import jinja2.ext
    import jinja2.nodes
    import jinja2.sandbox
    import jinja2.utils

    version = importlib.metadata.version("jinja2")
    if tuple(int(part) for part in version.split(".")[:3] if part.isdecimal()) < _OLDEST:
        raise UnsupportedError(f"jinja2 {version} lets templates out of their sandbox\nhint: pip install 'jinja2>=3.1.6'", message="jinja2 is too old",
                               expected="3.1.6 or newer", found=version, hint="pip install 'jinja2>=3.1.6'")  # fmt: skip

    class Generation(jinja2.ext.Extension):
        """`{% generation %}` marks what the model says; as text it is what is in it."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            return jinja2.nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    class Namespace(jinja2.utils.Namespace):
        """Jinja's own, without names that Python keeps for itself."""

        def __init__(*args, **named):
            self, *rest = args
            values = dict(*rest, **named)
            for name in values:
                _check(name)
            jinja2.utils.Namespace.__init__(self, values)

        def __setitem__(self, name, value):
            _check(name)
            super().__setitem__(name, value)

    def _check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a chat template may not set `{name}` of a namespace")

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(format):
        return datetime.datetime.now().strftime(format)

    def make_dict(*args, **named):   # not the class, whose attributes would be within reach
        return dict(*args, **named)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, namespace=Namespace, dict=make_dict)
    return environment
