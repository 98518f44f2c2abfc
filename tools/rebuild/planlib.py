"""Reads plan files."""
from __future__ import annotations
import ast, re, sys
from dataclasses import dataclass, field
from pathlib import Path
HERE = Path(__file__).resolve().parent; ROOT = HERE.parents[1]; SRC = ROOT / "src/evermirror"
@dataclass
class Plan:
    modules: dict[str, str] = field(default_factory=dict)      # old path -> new path
    order: dict[str, list[str]] = field(default_factory=dict)  # new path -> olds
    docs: dict[str, str] = field(default_factory=dict)
    names: dict[tuple[str, str], str] = field(default_factory=dict)  # (old path, Name[.attr]) -> new
    tests: dict[str, str] = field(default_factory=dict)
    words: list[tuple[str, str, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
def read(paths, plan=None):
    plan = plan or Plan()
    for path in paths:
        for n, line in enumerate(Path(path).read_text().splitlines(), 1):
            line = line.strip()
            if not line or line.startswith("#"): continue
            line = re.sub(r"\s+#\s.*$", "", line) if not line.startswith("doc ") else line
            where = f"{Path(path).name}:{n}"
            kind, _, rest = line.partition(" ")
            try:
                if kind == "doc":
                    new, text = rest.split(":", 1); plan.docs[new.strip()] = text.strip(); continue
                if kind == "word":
                    m = re.fullmatch(r"(\w+) -> (\w+) in (\S+)", rest); plan.words.append((m[3], m[1], m[2])); continue
                old, new = (s.strip() for s in rest.split("->"))
                if kind == "module":
                    olds = old.split()
                    for o in olds:
                        if o in plan.modules: plan.errors.append(f"{where}: {o} twice")
                        plan.modules[o] = new
                    if new in plan.order: plan.errors.append(f"{where}: {new} made twice")
                    plan.order[new] = olds
                elif kind == "name":
                    p, name = old.split(":")
                    if (p, name) in plan.names: plan.errors.append(f"{where}: {old} twice")
                    if not new.isidentifier(): plan.errors.append(f"{where}: {new} is no identifier")
                    plan.names[p, name] = new
                elif kind == "test": plan.tests[old.rstrip("/")] = new.rstrip("/")
                else: plan.errors.append(f"{where}: unknown directive {kind}")
            except (ValueError, TypeError) as e: plan.errors.append(f"{where}: cannot read: {line} ({e})")
    return plan
def top_names(tree):
    out = {}
    def target(t, node):
        if isinstance(t, ast.Name): out.setdefault(t.id, node)
        elif isinstance(t, (ast.Tuple, ast.List)):
            for e in t.elts: target(e, node)
    def body(stmts):
        for s in stmts:
            if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)): out.setdefault(s.name, s)
            elif isinstance(s, ast.Assign):
                for t in s.targets: target(t, s)
            elif isinstance(s, (ast.AnnAssign, ast.AugAssign)): target(s.target, s)
            elif isinstance(s, ast.If) and not (isinstance(s.test, ast.Name) and s.test.id == "TYPE_CHECKING"): body(s.body); body(s.orelse)
            elif isinstance(s, ast.Try): body(s.body); [body(h.body) for h in s.handlers]; body(s.orelse); body(s.finalbody)
            elif isinstance(s, (ast.For, ast.With)): 
                if isinstance(s, ast.For): target(s.target, s)
                body(s.body)
    body(tree.body); return out
def class_members(cls):
    out = set()
    for s in cls.body:
        if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)): out.add(s.name)
        elif isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name): out.add(s.target.id)
        elif isinstance(s, ast.Assign): out |= {t.id for t in s.targets if isinstance(t, ast.Name)}
    for n in ast.walk(cls):
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "self" and isinstance(n.ctx, ast.Store): out.add(n.attr)
    return out
