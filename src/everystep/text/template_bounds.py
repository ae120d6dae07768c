"""The bounds of a chat template: how much it may work, and how long its texts may grow.

A template is a program that came with the model.  The sandbox keeps it from reaching out; without these bounds it
could still loop for ever (three nested ``range``s), or ask for a text of a terabyte (``'a' * 10**12``), and a message
could be made for a template so that it does.  Owns the counting, in work rather than in seconds: the same template and
messages end the same way on every machine.  Ignorant of chats.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from string import Formatter
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import TemplateRuntimeError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_WORK = 10_000_000  # parts of the program executed, a few seconds; 10,000 messages through a long template
CALL_WORK, FILTER_WORK, ITEM_WORK = 100, 10, 4  # what calls cost beside what they do, and an item that they are given
MAX_SIZE = 2**25  # characters of a text, or bytes of a list's references; a body holds a quarter of it
MAX_NUMBER = 100_000  # that a width, a count or a repetition may be; Jinja2's own bound of range()
MAX_BITS = 4096  # of a whole number
MAX_JSON_INDENT = 16
MAX_SOURCE = 2**18  # characters of a template; the longest known has a quarter
SIZE_OF_WORK = 1000  # characters that are read or copied in the time of one part of the program
REFERENCE_BYTES = 16
CHEAP = ("length", "count", "first", "last", "default", "d")  # however long what they are given
UNUSED = ("pprint", "urlize", "random")  # slow for what they do, or not the same twice; no model's template has them
WIDE_FORMAT = re.compile(r"%(\([^)]*\))?[^%a-zA-Z]*(\d{6}|\*)")
MAX_NUMBERS = {"tojson": MAX_JSON_INDENT} | dict.fromkeys(
    ("batch", "center", "format", "indent", "round", "slice", "truncate", "wordwrap"), MAX_NUMBER
)

_left: ContextVar[list[int]] = ContextVar("work left to a template")


class TemplateTooLong(TemplateRuntimeError):
    """The template works too long, or makes too long a text."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox, in which loops, calls, texts and numbers are counted."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        del self.globals["lipsum"]
        self.filters = {name: _bounded(name, used) for name, used in self.filters.items() if name not in UNUSED}
        self.filters |= {"charge": _charge_filter, "weigh": _weigh_filter}
        self.binop_table |= {"+": _add, "*": _multiply, "**": _raise, "%": _remainder}
        self.concat = _concat  # type: ignore[method-assign]

    def add_filter(self, name: str, used: Callable[..., Any]) -> None:
        """Counted as Jinja2's own are."""
        self.filters[name] = _bounded(name, used)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > MAX_SOURCE:
            raise TemplateSyntaxError(f"it has {len(source)} characters; at most {MAX_SOURCE} are compiled", 1)
        tree = super()._parse(source, name, filename)
        _have_counted(tree)
        return tree

    def call(self, context: Any, called: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls of the template, its own macros' and methods of texts alike."""
        _charge(CALL_WORK + sum(map(_work, (*args, *kwargs.values()))))
        method = getattr(called, "__wrapped__", called)  # the sandbox wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str | bytes | int | float):
            args = _check_method(owner, method.__name__, args, kwargs)
        return _checked(super().call(context, called, *args, **kwargs))


def with_budget(render: Callable[[], str]) -> str:
    """Run ``render`` with the work that one rendering has.  Raises :class:`TemplateTooLong`."""
    token = _left.set([MAX_WORK])
    try:
        return render()
    finally:
        _left.reset(token)


# --- counting ------------------------------------------------------------------------------------
def _have_counted(tree: nodes.Template) -> None:
    """Each round of a loop and each run of a macro pays for its body; whatever grows or is compared is weighed."""
    repeated = list(tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock)))
    costs = [1 + sum(1 for _ in part.find_all(nodes.Node)) for part in repeated]
    for joined in tree.find_all(nodes.Concat):
        joined.nodes = [_filtered(node, "weigh") for node in joined.nodes]
    for compared in tree.find_all(nodes.Compare):
        compared.expr = _filtered(compared.expr, "weigh")
        for operand in compared.ops:
            operand.expr = _filtered(operand.expr, "weigh")
    for part, cost in zip(repeated, costs, strict=True):
        paid = _filtered(nodes.Const(cost, lineno=part.lineno), "charge")
        if isinstance(part, nodes.For) and part.test is not None:
            part.test = nodes.And(paid, part.test, lineno=part.lineno)
        part.body.insert(0, nodes.ExprStmt(paid, lineno=part.lineno))  # type: ignore[attr-defined]
    assert tree.environment is not None
    tree.set_environment(tree.environment)


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _charge(work: int) -> None:
    left = _left.get([MAX_WORK])  # none is set while Jinja2 folds constants
    left[0] -= work
    if left[0] < 0:
        raise TemplateTooLong(f"it works for too long: over {MAX_WORK} parts of it were executed")


@pass_context
def _charge_filter(_: Any, work: int) -> bool:
    _charge(work)
    return True


@pass_context
def _weigh_filter(_: Any, value: Any) -> Any:
    return _checked(value)


def _size(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return REFERENCE_BYTES * len(value) if isinstance(value, list | tuple | dict | range) else 0


def _work(value: Any) -> int:
    """What it takes to go through it: each item of a list is handled by Python, a text as a whole."""
    size = _size(value)
    return size // SIZE_OF_WORK if isinstance(value, str | bytes) else ITEM_WORK * size // REFERENCE_BYTES


def _checked(value: Any) -> Any:
    size = _size(value)
    if size >= SIZE_OF_WORK:
        _charge(size // SIZE_OF_WORK)
        _allow(size)
    return value


def _allow(size: int) -> None:
    """Before a text or list of this size is made."""
    if size > MAX_SIZE:
        raise TemplateTooLong(f"it makes a text or list of size {size}; at most {MAX_SIZE} is allowed")


def _concat(parts: Any) -> str:
    texts = list(parts)
    _allow(sum(map(len, texts)))
    return "".join(texts)


# --- what makes something long -------------------------------------------------------------------
def _bounded(name: str, used: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is counted, and whose widths and counts are bounded."""

    @functools.wraps(used)  # with the marks by which Jinja2 knows what to pass
    def bounded(*args: Any, **kwargs: Any) -> Any:
        if name == "join":
            args = tuple(map(_listed, args))
        given = (*args, *kwargs.values())
        texts = [str(value) for value in given if isinstance(value, str)]
        _charge(FILTER_WORK + (0 if name in CHEAP else sum(map(_work, given))))
        if name in MAX_NUMBERS:
            _check_numbers(given, MAX_NUMBERS[name])
        if name == "indent":
            _allow(texts[0].count("\n") * max([4, *(value for value in given if isinstance(value, int))]))
        if name == "format":
            _check_percent(texts[0], given)
        if name == "replace":
            _check_replace(*texts)
        if name == "join":
            _check_join(given)
        return _checked(used(*args, **kwargs))

    return bounded


def _check_method(
    owner: str | bytes | float, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """Methods of texts and numbers that make more of little.  Gives the arguments, iterators among them as lists."""
    given = (*args, *kwargs.values())
    _charge(_size(owner) // SIZE_OF_WORK)
    match name:
        case "format" | "format_map":
            _check_format(str(owner), given)
        case "replace":
            _check_replace(str(owner), *(value for value in given if isinstance(value, str)))
        case "join":
            args = tuple(map(_listed, args))
            _check_join((*args, owner))
        case "translate" | "encode":
            raise TemplateTooLong(f"it calls {name}(), for which templates have no use")
        case _:
            _check_numbers(given, MAX_NUMBER)
    return args


def _listed(value: Any) -> Any:
    """An iterator can be counted only as a list."""
    return list(value) if isinstance(value, Iterator | range) else value


def _check_numbers(given: tuple[Any, ...], limit: int) -> None:
    for number in given:
        if isinstance(number, int) and abs(number) > limit:
            raise TemplateTooLong(f"it gives a number of {number.bit_length()} bits for a width or a count")


def _check_replace(text: str, old: str = "", new: str = "", *_: str) -> None:
    _allow(len(text) + (text.count(old) if old else len(text) + 1) * len(new))


def _check_join(args: tuple[Any, ...]) -> None:
    lists = [value for value in args if isinstance(value, list | tuple | dict)]
    between = max((len(value) for value in args if isinstance(value, str)), default=0)
    for items in lists:
        _allow(sum(_size(item) for item in items) + between * len(items))


def _check_format(text: str, given: tuple[Any, ...]) -> None:
    specs = [spec or "" for _, _, spec, _ in Formatter().parse(text)]
    if any("{" in spec or re.search(r"\d{6}", spec) for spec in specs):
        raise TemplateTooLong("it formats to a width of its own making")
    _allow(len(specs) * _largest(given) + len(text))


def _check_percent(text: str, given: tuple[Any, ...]) -> None:
    if WIDE_FORMAT.search(text):
        raise TemplateTooLong("it formats to a width of its own making")
    _allow(text.count("%") * _largest(given) + len(text))


def _largest(given: tuple[Any, ...]) -> int:
    """Of the texts in it, however they are nested one deep."""
    inner = [item for value in given if isinstance(value, list | tuple) for item in value]
    inner += [item for value in given if isinstance(value, dict) for item in value.values()]
    return max(map(_size, [*given, *inner]), default=0)


def _add(left: Any, right: Any) -> Any:
    _allow(_size(left) + _size(right))
    return _checked(left + right)


def _multiply(left: Any, right: Any) -> Any:
    for value, times in ((left, right), (right, left)):
        if isinstance(value, str | list | tuple) and isinstance(times, int):
            _allow(_size(value) * max(times, 0))
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    return _checked(left * right)


def _raise(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * abs(right))
    return left**right


def _check_bits(num_bits: int) -> None:
    if num_bits > MAX_BITS:
        raise TemplateTooLong(f"it makes a number of over {MAX_BITS} bits")


def _remainder(left: Any, right: Any) -> Any:
    if isinstance(left, str):
        _check_percent(left, right if isinstance(right, tuple) else (right,))
    return _checked(left % right)
