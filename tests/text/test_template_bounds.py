"""A chat template that would run for ever or fill the memory ends with one line, in counted work and never in time."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from everystep.errors import InvalidParameter, InvalidRequest, ModelError
from everystep.text import template_bounds
from everystep.text.chat import ChatTemplate

MESSAGES = [{"role": "user", "content": "hello"}]
SOURCES = Path(__file__).parents[2] / "src"


def render(source: str) -> str:
    return ChatTemplate(source, {}).render({"messages": MESSAGES}, now=datetime(2026, 1, 1))


def nested(body: str) -> str:
    loops = "".join(f"{{% for {name} in range(100000) %}}" for name in "abc")
    return loops + body + "{% endfor %}" * 3


def doubled(change: str, begin: str = "'aa'") -> str:
    return f"{{% set ns = namespace(x={begin}) %}}{{% for i in range(100) %}}{{% set ns.x = {change} %}}{{% endfor %}}"


ENDLESS = {
    "three loops in each other": nested(""),
    "loops that write": nested("x"),
    "a loop whose rounds are all passed over": "{% for a in range(100000) if false %}{% endfor %}" * 100,
    "a macro that calls itself twice": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
    ),
    "sorting again and again": "{% for i in range(100000) %}{% set x = range(100000)|sort %}{% endfor %}",
    "searching a long text": "{% set s = 'a' * 10000000 %}" + nested("{% if 'b' in s %}{% endif %}"),
    "a cycle": nested("{% set c = cycler(1, 2) %}{{ c.next() }}"),
    "writing the messages again and again": nested("{{ messages|tojson(indent=2) }}"),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_a_template_that_would_run_for_ever_ends(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_bounds, "MAX_WORK", 500_000)
    with pytest.raises(InvalidParameter, match="it works for too long: over 500000 parts"):
        render(ENDLESS[what])


BOMBS = {
    "a text times a number": "{{ 'a' * 10**12 }}",
    "a list times a number": "{{ [1] * 10**12 }}",
    "a sum with itself": doubled("ns.x + ns.x"),
    "a list with itself": doubled("ns.x + ns.x", "[1, 2]"),
    "joined to itself": doubled("ns.x ~ ns.x"),
    "written twice into a block": (
        "{% set ns = namespace(x='aa') %}{% for i in range(100) %}"
        "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}"
    ),
    "a number times itself": doubled("ns.x * ns.x", "9"),
    "a power": "{{ 9 ** (9 ** 9) }}",
    "a wide field": "{{ 'a'|center(10**12) }}",
    "a wide field by method": "{{ 'a'.ljust(10**9) }}",
    "tabs": "{{ '\\t'.expandtabs(10**9) }}",
    "a percent format": "{{ '%1000000000d' % 1 }}",
    "a percent format by name": "{{ '%(a)1000000000d' % {'a': 1} }}",
    "a percent format of given width": "{{ '%*d'|format(1000000000, 1) }}",
    "a format": "{{ '{:>1000000000}'.format(1) }}",
    "a format of given width": "{{ '{:{}}'.format(1, 10**9) }}",
    "a format of many": "{% set s = 'a' * 10000000 %}{{ '{0}{0}{0}{0}{0}'.format(s) }}",
    "each letter replaced": "{{ ('a' * 100000).replace('a', 'a' * 100000) }}",
    "each letter replaced by filter": "{{ ('a' * 100000)|replace('a', 'a' * 100000) }}",
    "many joined": "{{ (['a' * 100000] * 100000)|join }}",
    "an iterator joined": "{{ range(100000)|map('string')|join('a' * 1000000) }}",
    "an iterator joined by method": "{{ ('a' * 1000000).join(range(100000)|map('string')) }}",
    "lines indented": "{{ ('a\n' * 1000000)|indent(100000) }}",
    "JSON indented": "{{ messages|tojson(indent=100000000) }}",
    "bytes of a number": "{{ (1).to_bytes(10**9) }}",
    "a text written again and again": "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s }}{% endfor %}",
    "filler": "{{ lipsum(100000) }}",
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_template_that_would_fill_the_memory_ends(what: str) -> None:
    with pytest.raises(InvalidParameter, match="can't render the messages"):
        render(BOMBS[what])


def test_none_of_them_takes_a_gigabyte() -> None:
    """In a process that has no more: where one did, it would end in a MemoryError or a signal."""
    script = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
from everystep.text.chat import ChatTemplate
for source in {list(BOMBS.values())!r}:
    try:
        ChatTemplate(source, {{}}).render({{"messages": {MESSAGES!r}}})
    except Exception as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={"PYTHONPATH": str(SOURCES)}, check=True
    )
    assert len(done.stdout.splitlines()) == len(BOMBS)
    assert "MemoryError" not in done.stdout
    assert done.stderr == ""


OUTWARD = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__']['__mro__'] }}",
    "{{ (messages|attr('__class__')).mro() }}",
    "{{ '{0.__class__.__init__.__globals__}'.format(messages) ~ '{0.__class__.__mro__[1]}'.format(1)[0] }}",
    "{{ self.__init__.__globals__ }}",
    "{{ raise_exception.__globals__['os'].system('true') }}",
    "{{ strftime_now.__self__.__class__.__base__ }}",
    "{{ messages.append(1) }}",
    "{% import 'os' as os %}",
    "{% include '/etc/passwd' %}",
    "{% extends '/etc/passwd' %}",
]


@pytest.mark.parametrize("source", OUTWARD)
def test_a_template_reaches_nothing_but_the_messages(source: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        render(source)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{% for a in b %}" * 25 + "{% endfor %}" * 25, "too many statically nested blocks"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "recursion"),
        ("x" * (2**18 + 1), "it has 262145 characters"),
        ("{{ messages|nothing }}", "No filter named 'nothing'"),
        ("\0{{", "unexpected"),
    ],
)
def test_a_template_that_can_t_be_compiled_is_said_in_one_line(source: str, words: str) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        render(source)
    assert "\n" not in caught.value.message


def test_what_a_template_says_is_cut_to_a_line() -> None:
    with pytest.raises(InvalidParameter) as caught:
        render("{{ raise_exception('much\n' * 100000) }}")
    assert len(caught.value.message) <= 500
    assert "\n" not in caught.value.message


def test_what_templates_really_do_is_as_jinja_does_it() -> None:
    source = (
        "{% macro line(m, n=3) %}{{ m.role ~ ': ' ~ m['content'][:n]|trim }}{% endmacro %}"
        "{% for m in messages if m.role in ['user'] %}{{ line(m) }}{% if not loop.last %}-{% endif %}{% endfor %}"
        "{{ '%05d' % 7 }}{{ '{:>5}|{}'.format(3, 'x') }}{{ ', '.join(['a', 'b']) }}{{ 'a-b'.split('-')|join('+') }}"
        "{{ messages|map(attribute='role')|join(' ') }}{{ [1, 2] + [3] }}{{ 2 ** 5 }}{{ 'ab' * 2 }}{{ 7 % 4 }}"
        "{{ 'x'|center(5) }}{{ messages|length }}{{ messages|tojson }}{{ 1767225600 }}{{ 'a\nb'|indent(2) }}"
    )
    assert render(source) == (
        'user: hel00007    3|xa, ba+buser[1, 2, 3]32abab3  x  1[{"role": "user", "content": "hello"}]1767225600a\n  b'
    )


def test_a_long_chat_has_work_enough() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'user' and not m.content.startswith('x') %}"
        "<{{ m.role }}>{{ m.content | trim }}{% if loop.index0 == messages | length - 1 %}!{% endif %}"
        "{% endif %}{% endfor %}"
    )
    text = ChatTemplate(source, {}).render({"messages": MESSAGES * 5000})
    assert text == "<user>hello" * 5000 + "!"
