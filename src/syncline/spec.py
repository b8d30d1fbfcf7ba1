"""Convert text to parts and back: `parse("sync", "ssp:3") == Ssp(3)` and `parse(kind, str(part)) == part`.

1. A part is written `name`, `name:value,...` or `name:key=value,...`.
2. A name with a dot is your own class, e.g. `mypackage.models.Patient:3`. A placement may also be your own function,
   e.g. `mypackage.models.by_size`.
3. A value may be a part. It needs brackets if its text has more than a name and one value:
   `by_size:1000,large=[topk:ratio=0.01,momentum=0.9]`.
4. A value may be a list of pairs, always in brackets: `per_table:[*.bias=dense]`.
5. A chain is written with a plus: `topk:0.01+fp16`.

Only the code that reads a user's input calls this module: the command line, files and `distribute(sync="ssp:3")`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from difflib import get_close_matches
from enum import StrEnum
from importlib import import_module
from itertools import accumulate
from types import FunctionType
from typing import Any, TypeVar

from syncline import codecs, gates, placement, rules, sync, units
from syncline.errors import UsageError
from syncline.parts import Part, written

Choice = TypeVar("Choice", bound=StrEnum)

_KINDS: Mapping[str, tuple[tuple[type[Part], ...], type]] = {
    "sync": (sync.SYNC_MODELS, sync.SyncModel),
    "rule": (rules.RULES, rules.Rule),
    "optimizer": (rules.RULES, rules.Rule),
    "codec": (codecs.CODECS, codecs.Codec),
    "gate": (gates.GATES, gates.Gate),
    "placement": (placement.PLACEMENTS, placement.Placement),
}


def parse(kind: str, words: str, option: str | None = None) -> Any:
    """The part of this kind that the text describes; errors name `option`, or the kind if it is not given."""
    shipped, protocol = _KINDS[kind]
    if kind == "placement" and "." in words and ":" not in words:
        found = _own(words.strip(), option or kind)
        if callable(found) and not isinstance(found, type):
            return placement.Own(found)
    return parse_among(shipped, protocol, words, option or kind)


def part_of(kind: str, given: object, option: str | None = None) -> Any:
    """The part of this kind: `given` itself, or what its text describes; `UsageError` if it is neither."""
    if isinstance(given, str):
        return parse(kind, given, option)
    if kind == "placement":
        return placement.placement_of(given)
    shipped, protocol = _KINDS[kind]
    if isinstance(given, type) or not isinstance(given, protocol):
        problem = f"{given!r:.80} is not a {protocol.__qualname__}"
        raise UsageError(option or kind, f"{problem}; give an object, or its text, such as {example(shipped[-1])!r}")
    return given


def parse_among(shipped: tuple[type[Part], ...], protocol: type, words: str, option: str) -> Any:
    """The part that the text describes: a shipped part, or your own class with the methods of the protocol."""
    if _depth(words) > _DEEPEST:
        raise UsageError(option, f"parts are nested more than {_DEEPEST} levels deep; nest fewer")
    for joined in (part for part in shipped if part.infix):
        halves = _split(words, rf"{re.escape(joined.infix)}(?=\s*[A-Za-z_])", option)
        if len(halves) > 1:
            return _joined(joined, shipped, halves, words, option)
    name, colon, rest = words.strip().partition(":")
    found = _class(shipped, name.strip(), option)
    if colon and not rest.strip():
        raise UsageError(option, f"{words!r}: there is no value after the colon; write it like {example(found)}")
    positional, named = arguments(rest, option, words)
    part = _made(found, positional, named, words, option)
    if not isinstance(part, protocol):
        raise UsageError(option, f"{name} does not have the methods of a {protocol.__qualname__}")
    return part


def _joined(joined: type[Part], shipped: tuple[type[Part], ...], halves: list[str], words: str, option: str) -> Any:
    """Join two parts into one.

    If that fails, and the last value of the first text is itself a part, the user probably forgot brackets: the error
    says so.
    """
    try:
        return _made(joined, halves, {}, words, option)
    except UsageError:
        *before, last = _split(halves[0], "[,=]", option)
        if before and last.partition(":")[0].strip() in {part.name for part in shipped}:
            first = _split(halves[-1], ",", option)[0]
            inner = joined.infix.join([last, *halves[1:-1], first]).strip()
            problem = f"{words!r}: write a {joined.name} inside another part in brackets: [{inner}]"
            raise UsageError(option, problem) from None
        raise


def _depth(words: str) -> int:
    """How deep parts are nested, by brackets or without them: `by_size:large=by_size:large=...`."""
    brackets = max(accumulate((letter == "[") - (letter == "]") for letter in words), default=0)
    return max(brackets, *(piece.count(":") for piece in re.split(r"[,\[\]]", words)))


def _made(found: type, positional: list[str], named: dict[str, str], words: str, option: str) -> Any:
    try:
        return found(*_typed(found, positional, option), **_typed_named(found, named, option))
    except UsageError as error:
        raise UsageError(option, f"{words!r}: {error.problem}") from None
    except ValueError as error:
        raise UsageError(option, f"{words!r}: {error}") from None
    except TypeError:
        raise UsageError(option, f"cannot read {words!r}; write it like {example(found)}") from None


def write(part: object) -> str:
    """The text of a part, shipped or your own; `parse` reads it back."""
    if isinstance(part, placement.Own):
        part = part.assign
    if isinstance(part, FunctionType):
        return f"{part.__module__}.{part.__qualname__}"
    return written(part)


def sendable(kind: str, part: object, option: str | None = None) -> str:
    """The text of a part, from which another process rebuilds it; `UsageError` if that would give another part."""
    option, protocol = option or kind, _KINDS[kind][1]
    if isinstance(part, type) or not isinstance(part, protocol):
        problem = f"{part!r:.80} is not text and not a {protocol.__qualname__}"
        raise UsageError(option, f"{problem}; write it as on the command line, e.g. sync='ssp:3'")
    word = write(part)
    if parse(kind, word, option) != part:
        problem = f"{part!r:.80} cannot be sent to other processes: its text {word!r} gives another part"
        raise UsageError(option, f"{problem}; make it a dataclass")
    return word


def one_of(choices: type[Choice], word: str, option: str) -> Choice:
    """The choice that this word is."""
    try:
        return choices(word)
    except ValueError:
        raise UsageError(option, f"{word!r} is not one of {', '.join(choices)}") from None


def example(part: type) -> str:
    """An example text of a part of this class, for error messages: `pssp:s=3,p=0.5`."""
    if issubclass(part, Part):
        return part.example or part.name
    names = ",".join(f"{field.name}=..." for field in fields(part)) if is_dataclass(part) else ""
    return f"{part.__module__}.{part.__qualname__}" + (f":{names}" if names else "")


def _class(shipped: tuple[type[Part], ...], name: str, option: str) -> type:
    known = {part.name: part for part in shipped}
    if name in known:
        return known[name]
    if "." in name:
        return own_class(name, option)
    offered = {part.name: example(part) for part in shipped if part.offered}
    close = get_close_matches(name, offered)
    close.sort(key=lambda each: sorted(each) != sorted(name))  # swapped letters are the likeliest mistake
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise UsageError(option, f"{name!r} is unknown; {hint}choose one of: {', '.join(offered.values())}")


def own_class(name: str, option: str) -> type:
    """The class that a dotted path names."""
    found = _own(name, option)
    if not isinstance(found, type):
        raise UsageError(option, f"{name!r} is not a class")
    return found


def _own(name: str, option: str) -> object:
    module, _, attribute = name.rpartition(".")
    if not all(word.isidentifier() for word in name.split(".")):
        raise UsageError(option, f"{name!r} is not the dotted path of a class, like mypackage.models.Patient")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # the user's module may raise anything
        raise UsageError(option, f"cannot import {name!r}: {type(error).__name__}: {error}") from None


def own_names(words: str) -> list[str]:
    """The dotted paths in this text that `parse` would import, or more: all that do not stand directly before a `=`.

    The text may have one part for each server, with spaces between them.
    """
    pieces = _MARKS.split(words)
    names = [name for name, mark in zip(pieces[::2], [*pieces[1::2], ""], strict=True) if mark != "="]
    return [name for name in names if "." in name and all(word.isidentifier() for word in name.split("."))]


def arguments(rest: str, option: str, words: str) -> tuple[list[str], dict[str, str]]:
    """The values of `value,...,key=value,...`: those without a key, and those with one."""
    positional: list[str] = []
    named: dict[str, str] = {}
    for key, value in _pairs(rest, option):
        if key is None and named:
            raise UsageError(option, f"{words!r}: put {value!r} before the named values")
        if key is None:
            positional.append(value)
        elif key in named:
            raise UsageError(option, f"{words!r}: {key!r} is given twice")
        else:
            named[key] = value
    return positional, named


def _pairs(words: str, option: str) -> Iterator[tuple[str | None, str]]:
    """The comma-separated values, each with its key, or None if it has no key."""
    if not words.strip():
        return
    for word in (word.strip() for word in _split(words, ",", option)):
        if not word:
            raise UsageError(option, f"{words.strip()!r}: there is no value at one side of a comma; write it there")
        key, *value = _split(word, "=", option)
        yield (key.strip(), "=".join(value).strip()) if value else (None, word)


def _split(words: str, mark: str, option: str) -> list[str]:
    """The text, split at every match of the pattern `mark` that is outside brackets."""
    cuts, depth, found = [0], 0, {match.start(): match.end() for match in re.finditer(mark, words)}
    pieces: list[str] = []
    for place, letter in enumerate(words):
        depth += (letter == "[") - (letter == "]")
        if depth < 0:
            break
        if not depth and place in found:
            pieces.append(words[cuts[-1] : place])
            cuts.append(found[place])
    if depth:
        raise UsageError(option, f"{words!r}: the brackets are not balanced")
    return [*pieces, words[cuts[-1] :]]


def _typed(part: type, words: list[str], option: str) -> list[Any]:
    known = fields(part) if is_dataclass(part) else ()
    if len(words) > len(known):
        raise TypeError
    return [value_of(word, field, option) for word, field in zip(words, known, strict=False)]


def _typed_named(part: type, words: dict[str, str], option: str) -> dict[str, Any]:
    known = {field.name: field for field in fields(part)} if is_dataclass(part) else {}
    if words.keys() - known.keys():
        raise TypeError
    return {key: value_of(word, known[key], option) for key, word in words.items()}


def value_of(word: str, field: Field[Any], option: str) -> Any:
    """The word, converted to the type of the field: a part, pairs of name and part, int, float, size, bool or text."""
    kind = str(field.type)
    nested = next(
        (name for name, (_, protocol) in _KINDS.items() if re.search(rf"\b{protocol.__name__}\b", kind)), None
    )
    if nested and "tuple[" in kind:
        return tuple(_pair(key, value, nested, field, option) for key, value in _pairs(_unwrapped(word), option))
    if nested:
        return parse(nested, _unwrapped(word), option)
    if kind in ("bool", "<class 'bool'>"):
        if word.lower() in ("true", "false"):
            return word.lower() == "true"
        raise UsageError(option, f"{_named(field, option)}must be true or false, not {word!r}")
    if kind == "Size":
        return int(word) if word.isdecimal() and len(word) < 20 else units.size(word, option)
    for python_type in (int, float):
        if python_type.__name__ in kind:
            try:
                return python_type(word)
            except ValueError:
                continue
    literals = _LITERAL.findall(kind)
    if word in literals or ("str" in kind and not literals):
        return word
    numbers = ["a whole number"] if "int" in kind else ["a number"] if "float" in kind else []
    wanted = " or ".join([*numbers, *map(repr, literals)])
    raise UsageError(option, f"{_named(field, option)}must be {wanted}, not {word!r}")


def _named(field: Field[Any], option: str) -> str:
    """The name of a field for a message, unless the option that the message is about has that name."""
    return "" if option.rpartition(".")[2] == field.name else f"{field.name} "


def _pair(key: str | None, word: str, kind: str, field: Field[Any], option: str) -> tuple[str, Any]:
    if key is None:
        raise UsageError(option, f"write {field.name} as [name={kind},...]; {word!r} has no name")
    return key, parse(kind, _unwrapped(word), option)


def _unwrapped(word: str) -> str:
    """The word without the brackets around it."""
    return word[1:-1].strip() if word.startswith("[") and word.endswith("]") else word


_MARKS = re.compile(r"([\[\],=:+\s])")
"""The characters that can stand before or after the name of a part."""

_DEEPEST = 8
"""The largest nesting depth allowed; it bounds the recursion."""

_LITERAL = re.compile(r"""Literal\[['"](\w+)['"]\]""")
