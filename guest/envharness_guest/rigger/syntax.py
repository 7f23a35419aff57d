"""What one source says of what it needs, by its syntax tree; nothing of it is run."""

import ast
import re

#: Language features by the first minor version that has them.
NODES = {"NamedExpr": 8, "Match": 10, "TryStar": 11, "TypeAlias": 12, "TemplateStr": 14}
#: What the standard library got late: (module, name or None for the module itself) and the minor version.
ADDED = {
    ("graphlib", None): 9, ("zoneinfo", None): 9, ("tomllib", None): 11,
    ("functools", "cache"): 9, ("itertools", "pairwise"): 10, ("itertools", "batched"): 12, ("enum", "StrEnum"): 11,
    ("datetime", "UTC"): 11, ("asyncio", "TaskGroup"): 11, ("asyncio", "timeout"): 11, ("asyncio", "Runner"): 11,
    ("asyncio", "to_thread"): 9, ("typing", "Annotated"): 9, ("typing", "ParamSpec"): 10, ("typing", "TypeAlias"): 10,
    ("typing", "Self"): 11, ("typing", "assert_never"): 11, ("typing", "override"): 12, ("contextlib", "chdir"): 11,
    ("types", "UnionType"): 10, ("types", "NoneType"): 10, ("math", "cbrt"): 11, ("warnings", "deprecated"): 13,
}  # fmt: skip
#: What the standard library lost, and the first minor version without it.
REMOVED = {
    ("asynchat", None): 12, ("asyncore", None): 12, ("distutils", None): 12, ("imp", None): 12, ("smtpd", None): 12,
    ("aifc", None): 13, ("audioop", None): 13, ("cgi", None): 13, ("cgitb", None): 13, ("chunk", None): 13, ("crypt", None): 13,
    ("imghdr", None): 13, ("mailcap", None): 13, ("msilib", None): 13, ("nis", None): 13, ("nntplib", None): 13,
    ("ossaudiodev", None): 13, ("pipes", None): 13, ("sndhdr", None): 13, ("spwd", None): 13, ("sunau", None): 13,
    ("telnetlib", None): 13, ("uu", None): 13, ("xdrlib", None): 13, ("lib2to3", None): 13, ("parser", None): 10,
    ("symbol", None): 10, ("formatter", None): 10, ("binhex", None): 11, ("xml.etree.cElementTree", None): 9,
    ("asyncio", "coroutine"): 11, ("inspect", "getargspec"): 11, ("fractions", "gcd"): 9, ("base64", "encodestring"): 9,
    ("base64", "decodestring"): 9, ("configparser", "SafeConfigParser"): 12, ("unittest", "makeSuite"): 13,
    ("locale", "format"): 12, ("pkgutil", "ImpImporter"): 12, ("collections", "Mapping"): 10,
    ("collections", "MutableMapping"): 10, ("collections", "Sequence"): 10, ("collections", "MutableSequence"): 10,
    ("collections", "Iterable"): 10, ("collections", "Iterator"): 10, ("collections", "Callable"): 10,
    ("collections", "Hashable"): 10, ("collections", "Set"): 10, ("collections", "Sized"): 10, ("time", "clock"): 8,
}  # fmt: skip
GENERICS = {"list", "dict", "tuple", "set", "frozenset", "type"}
DATE = re.compile(
    r"(?i)(?:date|created(?: on)?|updated|last modified)\W{0,4}"
    r"(?:(\d{4})[-/](\d\d)[-/](\d\d)|[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) [\d: ]*?(\d{4}))"
)
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
PYTHON_2 = re.compile(r"^[ \t]*(print\s+[\"'\w%(]|except\s+[\w.]+\s*,\s*\w+\s*:|raise\s+\w+\s*,|exec\s+[\"'])", re.MULTILINE)


def date_in(text):
    """A date that the head of a source states, as ISO text."""
    for found in DATE.finditer("\n".join(text.splitlines()[:40])):
        year, month, day, name, day_too, year_too = found.groups()
        if year:
            return "%s-%s-%s" % (year, month, day)
        if name.lower() in MONTHS:
            return "%s-%02d-%02d" % (year_too, MONTHS.index(name.lower()) + 1, int(day_too))
    return None


def catches_import_error(node):
    """Whether a `try` goes on without what it cannot import."""
    for handler in node.handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        for kind in kinds:
            name = getattr(kind, "id", getattr(kind, "attr", None))
            if kind is None or name in ("ImportError", "ModuleNotFoundError", "Exception", "BaseException"):
                return True
    return False


def ends_the_program(handler):
    """Whether a handler gives up, so that what was tried is needed after all."""
    last = handler.body[-1] if handler.body else None
    if isinstance(last, ast.Raise):
        return True
    call = last.value if isinstance(last, ast.Expr) else None
    name = getattr(getattr(call, "func", None), "attr", getattr(getattr(call, "func", None), "id", None))
    return name in ("exit", "_exit", "quit", "abort")


class Reader(ast.NodeVisitor):
    """Collects imports, what of them is used, and what the syntax needs."""

    def __init__(self, future):
        self.imports, self.uses, self.needs, self.gone, self.gpu = [], {}, {}, {}, []
        self.aliases, self.assigned, self.chains = {}, set(), []
        self.kinds, self.group, self.groups, self.future = ["required"], None, 0, future

    def add(self, line, module, names=(), level=0, kind=None):
        self.imports.append({
            "module": module or "", "names": list(names), "level": level, "line": line,
            "kind": kind or self.kinds[-1], "group": self.group,
        })  # fmt: skip
        for name in (None, *names):
            self.standard(module, name, line)

    def standard(self, module, name, line):
        if self.kinds[-1] == "optional":
            return
        if (module, name) in ADDED:
            self.need(ADDED[module, name], "%s%s" % (module, "." + name if name else ""), line)
        key = (module, name) if (module, name) in REMOVED else ((module or "").split(".")[0], None)
        if key in REMOVED and (name is None) == (key[1] is None):
            self.gone.setdefault(REMOVED[key], ["%s%s" % (module, "." + name if name else ""), line])

    def need(self, minor, what, line):
        self.needs.setdefault(minor, [what, line])

    def within(self, kind, nodes):
        # What is optional around stays optional; a type checker's import is never needed.
        order = ["required", "lazy", "optional", "typing"]
        self.kinds.append(max(kind, self.kinds[-1], key=order.index))
        for node in nodes:
            self.visit(node)
        self.kinds.pop()

    def visit_Import(self, node):
        for alias in node.names:
            self.add(node.lineno, alias.name)
            local = alias.asname or alias.name.split(".")[0]
            self.aliases.setdefault(local, alias.name if alias.asname else local)

    def visit_ImportFrom(self, node):
        names = [alias.name for alias in node.names if alias.name != "*"]
        self.add(node.lineno, node.module, names, node.level)
        if not node.level:
            for alias in node.names:
                self.aliases.setdefault(alias.asname or alias.name, "%s.%s" % (node.module, alias.name))

    def visit_Try(self, node):
        if not catches_import_error(node):
            return self.generic_visit(node)
        outer = self.group
        if self.group is None:
            self.groups += 1
            self.group = self.groups
        fatal = all(ends_the_program(handler) for handler in node.handlers)
        self.within(self.kinds[-1] if fatal else "optional", node.body)
        for handler in node.handlers:
            self.within("optional", handler.body)
        self.group = outer
        for part in node.orelse + node.finalbody:
            self.visit(part)

    def visit_TryStar(self, node):
        self.feature(node)
        self.generic_visit(node)

    def visit_If(self, node):
        text = ast.dump(node.test)
        if "TYPE_CHECKING" in text:
            self.within("typing", node.body)
        elif "platform" in text or "version_info" in text or "'name'" in text and "'os'" in text:
            self.within("optional", node.body)
            self.within("optional", node.orelse)
            return
        else:
            self.visit(node.test)
            for part in node.body:
                self.visit(part)
        for part in node.orelse:
            self.visit(part)

    def function(self, node):
        arguments = node.args
        named = getattr(arguments, "posonlyargs", []) + arguments.args + arguments.kwonlyargs
        for argument in named + [a for a in (arguments.vararg, arguments.kwarg) if a]:
            self.assigned.add(argument.arg)
            self.annotation(argument.annotation)
        self.annotation(node.returns)
        if getattr(arguments, "posonlyargs", []):
            self.need(8, "positional-only parameters", node.lineno)
        self.generics(node)
        self.assigned.add(node.name)
        for part in node.decorator_list + arguments.defaults + [d for d in arguments.kw_defaults if d]:
            self.visit(part)
        self.within("lazy", node.body)

    visit_FunctionDef = visit_AsyncFunctionDef = function

    def visit_ClassDef(self, node):
        self.generics(node)
        self.assigned.add(node.name)
        self.generic_visit(node)

    def generics(self, node):
        if getattr(node, "type_params", None):
            self.need(12, "type parameters", node.lineno)

    def visit_AnnAssign(self, node):
        self.annotation(node.annotation)
        for part in (node.target, node.value):
            if part is not None:
                self.visit(part)

    def annotation(self, node):
        """Annotations are evaluated unless the source postpones them."""
        if node is None:
            return
        for part in () if self.future else ast.walk(node):
            if isinstance(part, ast.Subscript) and getattr(part.value, "id", None) in GENERICS:
                self.need(9, "%s[...] as a type" % part.value.id, part.lineno)
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.BitOr):
                self.need(10, "X | Y as a type", part.lineno)
        self.visit(node)

    def visit_Name(self, node):
        if not isinstance(node.ctx, ast.Load):
            self.assigned.add(node.id)

    def visit_Attribute(self, node):
        parts, inner = [node.attr], node.value
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            if isinstance(node.ctx, ast.Load) and self.kinds[-1] in ("required", "lazy") and self.group is None:
                self.chains.append((inner.id, parts[::-1], node.lineno))
        else:
            self.visit(inner)

    def visit_Call(self, node):
        name = getattr(node.func, "id", getattr(node.func, "attr", None))
        first = node.args[0] if node.args else None
        constant = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
        if name in ("import_module", "__import__"):
            if constant and not constant.startswith("."):
                self.add(node.lineno, constant, kind="dynamic")
            elif not constant:
                self.add(node.lineno, None, kind="dynamic")
        if name == "cuda" and isinstance(node.func, ast.Attribute):
            self.gpu.append(node.lineno)
        self.generic_visit(node)

    def visit_Constant(self, node):
        if isinstance(node.value, str) and (node.value == "cuda" or node.value.startswith("cuda:")):
            self.gpu.append(node.lineno)

    def feature(self, node):
        name = type(node).__name__
        if name in NODES:
            self.need(NODES[name], {"NamedExpr": ":=", "Match": "match", "TryStar": "except*"}.get(name, name), node.lineno)

    def visit(self, node):
        self.feature(node)
        return super().visit(node)

    def finish(self):
        """What is used of the modules that the names stand for, where a name stands for nothing else."""
        for local, parts, line in self.chains:
            if local in self.aliases and local not in self.assigned:
                self.uses.setdefault(".".join([self.aliases[local]] + parts), line)
                self.standard(self.aliases[local], parts[0], line)


def read(text):
    """Reads one source; the answer is plain data."""
    answer = {"imports": [], "uses": {}, "needs": {}, "gone": {}, "gpu": [], "date": date_in(text), "error": None, "python2": False}
    try:
        tree = compile(text, "<source>", "exec", ast.PyCF_ONLY_AST | getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0), dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        answer["error"] = "line %s: %s" % (getattr(error, "lineno", "?"), getattr(error, "msg", error))
        answer["python2"] = bool(PYTHON_2.search(text))
        return answer
    future = any(isinstance(n, ast.ImportFrom) and n.module == "__future__" and any(a.name == "annotations" for a in n.names) for n in tree.body)
    reader = Reader(future)
    try:
        reader.visit(tree)
        reader.finish()
    except RecursionError:
        answer["error"] = "nested too deeply to be read"
    answer.update(imports=reader.imports, uses=reader.uses, needs=reader.needs, gone=reader.gone, gpu=reader.gpu[:3])
    return answer
