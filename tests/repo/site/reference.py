"""The API reference as pages of Markdown, from the objects that Python has imported, as pdoc describes them.

It has the names in `__all__` of each of MODULES, and nothing else: a page for each class of kstore, one for its errors,
one for its functions and constants, and one for each other module. A public name or member has a line, or is reported.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module

import pdoc.doc

MODULES = ("kstore", "kstore.aio", "kstore.serializers", "kstore.serve", "kstore.spark", "kstore.testing")
# A class of kstore by the module that has it, where the reference has it by its name alone.
_INNER = re.compile(r"\bkstore\.(?:[a-z_]\w*\.)+(?=[A-Z])|\btyping\.(?=Any)")
_PART = re.compile(r"(?:^|(?<=\S)  )(Args|Attributes|Cost|Lifetime|Raises|Returns|Source|Threads):[ \n]", re.MULTILINE)
# What Markdown would take for emphasis, or for a tag, outside of code.
_MARKUP = re.compile(r"(?P<code>`[^`]*`)|(?P<name>(?<![\w.*])(?:kstore\.)?[A-Za-z]\w+(?:\.\w+)*)|[*_<\[]")
# Members that hold a docstring of their own, besides functions; any other is a value, whose docstring is its type's.
_DOCUMENTED = (property, functools.cached_property, types.GetSetDescriptorType, classmethod, staticmethod)


def names_without_a_line() -> Iterator[str]:
    """Yield each public name, and each member of a public class, that neither it nor its class says anything of."""
    for module in map(import_module, MODULES):
        for name in _public_names_of(module):
            found = getattr(module, name)
            if not _line_of(found) and (inspect.isclass(found) or callable(found)):
                yield f"{module.__name__}.{name}"
            if inspect.isclass(found):
                yield from (f"{module.__name__}.{name}.{member}" for member in members_without_a_line(found))


def _public_names_of(module: types.ModuleType) -> Iterator[str]:
    """Yield those of `__all__`, or the ones that the module defines itself: what pdoc takes."""
    for name in getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]:
        if hasattr(module, "__all__") or getattr(getattr(module, name), "__module__", None) == module.__name__:
            yield name


def members_without_a_line(kind: type) -> Iterator[str]:
    """Yield the public members that kstore's classes of a class's MRO define, and none of their docstrings names."""
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == "kstore"]
    words = {word for base in bases for word in re.findall(r"\w+", _line_of(base))}
    members = {name for base in bases for name in (*vars(base), *vars(base).get("__annotations__", ()))}
    for name in sorted(members - words):
        member = inspect.getattr_static(kind, name, None)
        has_own = isinstance(member, _DOCUMENTED) or (callable(member) and not inspect.isclass(member))
        if not name.startswith("_") and not (has_own and _line_of(member)):
            yield name


def _line_of(found: object) -> str:
    return getattr(found, "__doc__", None) or ""


def in_parts(docstring: str, link: Callable[[str], str | None] = lambda _: None) -> str:
    """Return a docstring as Markdown, with a paragraph for each of its parts, and a list of the arguments.

    link: gets each name and each code in it, and returns the link to what it names, or None.
    """

    def shown(found: re.Match[str]) -> str:
        if found["name"]:
            return link(found["name"]) or found["name"].replace("_", "\\_")
        return (found["code"] and (link(found["code"].strip("`")) or found["code"])) or f"\\{found[0]}"

    text = _MARKUP.sub(shown, docstring)
    text = re.sub(r"^    (?=[\w\\]+(?:, [\w\\]+)*: )", "\n- ", text, flags=re.MULTILINE)
    return _PART.sub(r"\n\n**\1:** ", text)


class _Pages:
    """The pages of a set of modules, and the place of each public name on them: the file and the anchor."""

    def __init__(self, modules: Mapping[str, pdoc.doc.Module]) -> None:
        self._modules = modules
        self._public: dict[object, str] = {}
        for module in modules.values():
            for name, member in module.members.items():
                if isinstance(member, pdoc.doc.Class):
                    self._public.setdefault(member.obj, f"{module.modulename}.{name}")
        self._places = {
            f"{module.modulename}.{name}": (self._page_of(module, member), name)
            for module in modules.values()
            for name, member in module.members.items()
        }

    def _page_of(self, module: pdoc.doc.Module, member: pdoc.doc.Doc) -> str:
        if module.modulename != "kstore" or not isinstance(member, pdoc.doc.Class):
            return f"{module.modulename}.md"
        return "kstore.errors.md" if issubclass(member.obj, Exception) else f"kstore.{member.name}.md"

    def write(self) -> dict[str, str]:
        """Return the text of each page by its name."""
        pages: dict[str, list[str]] = {"index.md": self._overview()}
        for module in self._modules.values():
            for member in (module, *module.members.values()):
                name = self._page_of(module, member)
                title = {"kstore.errors.md": "Errors of kstore", "kstore.md": "kstore: functions and constants"}
                lines = pages.setdefault(name, [f"# {title.get(name, name.removesuffix('.md'))}", ""])
                if member is not module:
                    lines += self._section(member, is_alone=name == f"kstore.{member.name}.md")
                elif module.modulename != "kstore":
                    lines += [self._text(module), ""]
        return {name: "\n".join(lines) for name, lines in pages.items()}

    def _overview(self) -> list[str]:
        lines = ["# Every public name", ""]
        for module in self._modules.values():
            lines += [f"## {module.modulename}", "", "| name | what it is |", "|---|---|"]
            for name, member in module.members.items():
                page, anchor = self._places[f"{module.modulename}.{name}"]
                first = in_parts(member.docstring).partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
                lines.append(f"| [`{name}`]({page}#{anchor}) | {first} |")
            lines.append("")
        return lines

    def _section(self, member: pdoc.doc.Doc, *, is_alone: bool) -> list[str]:
        """Return what a page says of a public name; is_alone: it is the only one on its page."""
        if isinstance(member, pdoc.doc.Class):
            lines = [f'<span id="{member.name}"></span>'] if is_alone else [f"## `{member.name}` {{ #{member.name} }}"]
            return [*lines, "", *self._of_class(member, level="##" if is_alone else "###")]
        return [f"## `{member.name}` {{ #{member.name} }}", "", *self._of_value(member)]

    def _of_class(self, kind: pdoc.doc.Class, *, level: str) -> list[str]:
        bases = [
            self._link(self._public[base]) if base in self._public else f"`{base.__name__}`"
            for base in self._bases(kind)
        ]
        lines = [f"Bases: {', '.join(map(str, bases))}", ""] if bases else []
        own, inherited = self._members(kind)
        if constructor := own.pop("__init__", None):
            lines += [f'<span id="{kind.name}.__init__"></span>', "", *_signature(constructor, name=kind.name), ""]
        lines += [self._text(kind), ""]
        # A field, whose meaning the text of the class says.
        fields = [member for member in own.values() if not _has_own_line(member)]
        lines += [
            f'- <span id="{kind.name}.{field.name}"></span>`{field.name}{_type_and_value(field)}`' for field in fields
        ]
        for name, member in own.items():
            if _has_own_line(member):
                lines += ["", f"{level} `{kind.name}.{name}` {{ #{kind.name}.{name} }}", "", *self._of_value(member)]
        for base, names in inherited.items():
            page, anchor = self._places[base]
            links = (f'<span id="{kind.name}.{name}"></span>[`{name}`]({page}#{anchor}.{name})' for name in names)
            lines += ["", f"Of [`{anchor}`]({page}#{anchor}): {', '.join(links)}"]
        return [*lines, ""]

    def _bases(self, kind: pdoc.doc.Class) -> list[type]:
        """Return the nearest bases that are public, or Python's own."""
        found: list[type] = []
        for base in kind.obj.__mro__[1:-1]:
            is_known = base in self._public or base.__module__ == "builtins"
            if is_known and not any(issubclass(nearer, base) for nearer in found):
                found.append(base)
        return found

    def _members(self, kind: pdoc.doc.Class) -> tuple[dict[str, pdoc.doc.Doc], dict[str, list[str]]]:
        """Return what classes of kstore define: the members that no public base has, and the names of each base."""
        own: dict[str, pdoc.doc.Doc] = {}
        inherited: dict[str, list[str]] = {}
        for (module, origin), members in kind._members_by_origin.items():
            base = self._public.get(getattr(import_module(module), origin, None))
            for member in members:
                name = member.name
                if module.partition(".")[0] != "kstore" or (name.startswith("_") and name != "__init__"):
                    continue
                if base is None or self._public[kind.obj] == base or name == "__init__":
                    own[name] = member
                else:
                    inherited.setdefault(base, []).append(name)
        return own, inherited

    def _of_value(self, member: pdoc.doc.Doc) -> list[str]:
        if isinstance(member, pdoc.doc.Function):
            marks = [mark for mark in member.decorators if not mark.startswith("@_") and "old_names" not in mark]
            return [*_signature(member, name=member.name, before=marks), "", self._text(member), ""]
        said = _type_and_value(member)
        return [*([f"`{member.name}{said}`", ""] if said else []), self._text(member), ""]

    def _text(self, member: pdoc.doc.Doc) -> str:
        return in_parts(member.docstring, self._link)

    def _link(self, name: str) -> str | None:
        """Return a link to a public name, also to a member Class.name and without "kstore."; None for another one."""
        full = name if name.startswith("kstore.") else f"kstore.{name}"
        kind, _, inner = full.removeprefix("kstore.").partition(".")
        page, anchor = self._places.get(full) or self._places.get(f"kstore.{kind}") or ("", "")
        # A word in lower case is a function only where it has its module.
        if not page or (full != name and not kind[0].isupper()):
            return None
        if full not in self._places:
            if not hasattr(getattr(import_module("kstore"), kind), inner):
                return None
            anchor = f"{kind}.{inner}"
        return f"[`{name}`]({page}#{anchor})"


def _has_own_line(member: pdoc.doc.Doc) -> bool:
    return isinstance(member, pdoc.doc.Function) or bool(member.docstring)


def _type_and_value(member: pdoc.doc.Variable) -> str:
    value = f" = {member.default_value_str}" if member.default_value_str else ""
    return _INNER.sub("", f"{member.annotation_str}{value}").replace("`", "'").replace("\n", " ")


def _signature(function: pdoc.doc.Function, *, name: str, before: Sequence[str] = ()) -> list[str]:
    text = _INNER.sub("", str(function.signature))
    if function.name == "__init__":
        text = re.sub(r"^\(\s*self(?:,\s*)?(\n?)", r"(\1", text).removesuffix(" -> None")
        return ["```python", f"class {name}{text}", "```"]
    return ["```python", *before, f"{function.funcdef} {name}{text}", "```"]


def pages() -> dict[str, str]:
    """Return each page of the reference by its name, as Markdown."""
    for module in map(import_module, MODULES):
        for name in _public_names_of(module):
            getattr(module, name)
    modules = {name: pdoc.doc.Module.from_name(name) for name in MODULES}
    with warnings.catch_warnings():
        # Of types that only type checkers import: the reference shows their names.
        warnings.filterwarnings("ignore", message="Error parsing type annotation|Cannot determine where")
        return _Pages(modules).write()
