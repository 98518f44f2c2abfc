"""Applies plans: moves, merges and renames over src, tests, bench and texts. usage: refactor.py REPO TYPES PLAN..."""
from __future__ import annotations
import ast, io, os, pickle, re, shutil, subprocess, sys, tokenize
from collections import defaultdict
from pathlib import Path
import planlib
from planlib import read, top_names
REPO = Path(sys.argv[1]).resolve()
plan = read(sys.argv[3:])
problems: list[str] = list(plan.errors)
TYPES = pickle.load(open(sys.argv[2], "rb"))

# ---------- files
def tracked():
    return subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True).stdout.split()
FILES = tracked()
PY = [f for f in FILES if f.endswith(".py") and not "/generated/" in f]
def test_target(f):
    best = None
    for o, n in plan.tests.items():
        if f == o or f.startswith(o + "/"):
            if best is None or len(o) > len(best[0]): best = (o, n)
    if best: return best[1] + f[len(best[0]):]
    return f
NEWPATH: dict[str, str] = {}
for f in FILES:
    if f.startswith("src/evermirror/"):
        rel = f[len("src/evermirror/"):]
        if rel in plan.modules: NEWPATH[f] = "src/evermirror/" + plan.modules[rel]
        else: NEWPATH[f] = f
    else: NEWPATH[f] = test_target(f)
for o in plan.modules:
    if "src/evermirror/" + o not in NEWPATH: problems.append(f"module {o}: not tracked")
def modname(path):
    p = path[4:] if path.startswith("src/") else path
    return p[:-3].replace("/", ".").removesuffix(".__init__")
MOD2FILE = {modname(f): f for f in PY}
NEWMOD = {m: modname(NEWPATH[f]) for m, f in MOD2FILE.items()}
TEXT = {f: (REPO / f).read_text() for f in PY}
TREE = {f: ast.parse(TEXT[f]) for f in PY}
TOP = {m: top_names(TREE[f]) for m, f in MOD2FILE.items()}
NAMES = {}
MEMBERS = {}   # fullname class -> {attr: new}
for (p, name), new in plan.names.items():
    m = modname("src/evermirror/" + p)
    head, _, attr = name.partition(".")
    if m not in TOP or head not in TOP[m]: problems.append(f"name {p}:{name} unknown"); continue
    if attr: MEMBERS.setdefault(f"{m}.{head}", {})[attr] = new
    else: NAMES[m, name] = new
# attr words all of whose definitions get one new name: used where the type is unknown
defs = defaultdict(set)
for m, f in MOD2FILE.items():
    if not m.startswith("evermirror"): continue
    for n, node in TOP[m].items():
        if isinstance(node, ast.ClassDef):
            for a in planlib.class_members(node): defs[a].add(MEMBERS.get(f"{m}.{n}", {}).get(a))
BYWORD = {a: next(iter(v)) for a, v in defs.items() if len(v) == 1 and None not in v}
PARTLY = {a for a, v in defs.items() if len(v - {None}) >= 1 and a not in BYWORD}

# ---------- imports of a file
def imports_of(m, tree):
    """local name -> ('sym', module, name) | ('mod', module); only of ours"""
    out = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for a in node.names:
                full = f"{node.module}.{a.name}"
                if full in MOD2FILE: out[a.asname or a.name] = ("mod", full)
                elif node.module in MOD2FILE: out[a.asname or a.name] = ("sym", node.module, a.name)
        elif isinstance(node, ast.Import):
            for a in node.names:
                if a.asname and a.name in MOD2FILE: out[a.asname] = ("mod", a.name)
    return out
IMPORTS = {m: imports_of(m, TREE[f]) for m, f in MOD2FILE.items()}
def resolve(m, name, depth=0):
    """definer of name seen in module m -> ('sym', module, name) or ('mod', module)"""
    if name in TOP.get(m, {}): return ("sym", m, name)
    got = IMPORTS.get(m, {}).get(name)
    if got is None or depth > 6: return ("sym", m, name)
    if got[0] == "mod": return got
    return resolve(got[1], got[2], depth + 1)
def newname(m, name): return NAMES.get((m, name), name)

# ---------- scopes
class Scope:
    def __init__(self, kind, parent): self.kind, self.parent, self.bound, self.glob = kind, parent, set(), set()
    def finds(self, name):
        """the scope that binds name, as seen from self"""
        s, first = self, True
        while s:
            if name in s.glob:
                while s.parent: s = s.parent
                return s
            if name in s.bound and (s.kind != "class" or first): return s
            s, first = s.parent, False
        return None
class Scoper(ast.NodeVisitor):
    def __init__(self, tree):
        self.at = {}; self.module = self.cur = Scope("module", None); self.names = []
        for st in tree.body: self.visit(st)
    def bind(self, n): self.cur.bound.add(n)
    def sub(self, kind): s = Scope(kind, self.cur); return s
    def visit_Name(self, n):
        if isinstance(n.ctx, (ast.Store, ast.Del)): self.bind(n.id)
        self.names.append((n, self.cur))
    def fn(self, n, name=None):
        if name: self.bind(name); self.at[n] = self.cur
        for d in getattr(n, "decorator_list", []): self.visit(d)
        a = n.args
        for d in [*a.defaults, *[k for k in a.kw_defaults if k]]: self.visit(d)
        for x in [*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []), *([a.kwarg] if a.kwarg else [])]:
            if x.annotation: self.visit(x.annotation)
        if getattr(n, "returns", None): self.visit(n.returns)
        old = self.cur; self.cur = s = self.sub("function")
        for x in [*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []), *([a.kwarg] if a.kwarg else [])]: s.bound.add(x.arg)
        for st in (n.body if isinstance(n.body, list) else [n.body]): self.visit(st)
        self.cur = old
    def visit_FunctionDef(self, n): self.fn(n, n.name)
    visit_AsyncFunctionDef = visit_FunctionDef
    def visit_Lambda(self, n): self.fn(n)
    def visit_ClassDef(self, n):
        self.bind(n.name); self.at[n] = self.cur
        for d in [*n.decorator_list, *n.bases, *n.keywords]: self.visit(d)
        old = self.cur; self.cur = self.sub("class")
        for st in n.body: self.visit(st)
        self.cur = old
    def comp(self, n):
        gens = n.generators
        self.visit(gens[0].iter)
        old = self.cur; self.cur = self.sub("comp")
        for i, g in enumerate(gens):
            self.visit(g.target)
            if i: self.visit(g.iter)
            for c in g.ifs: self.visit(c)
        for e in ([n.key, n.value] if isinstance(n, ast.DictComp) else [n.elt]): self.visit(e)
        self.cur = old
    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = comp
    def visit_NamedExpr(self, n):
        s = self.cur
        while s.kind == "comp": s = s.parent
        s.bound.add(n.target.id); self.names.append((n.target, s)); self.visit(n.value)
    def visit_Global(self, n): self.cur.glob |= set(n.names)
    def visit_Nonlocal(self, n): pass
    def visit_Import(self, n):
        for a in n.names: self.bind((a.asname or a.name).split(".")[0])
    visit_ImportFrom = visit_Import
    def visit_ExceptHandler(self, n):
        if n.name: self.bind(n.name)
        self.generic_visit(n)
    def visit_MatchAs(self, n):
        if n.name: self.bind(n.name)
        self.generic_visit(n)
    def visit_MatchStar(self, n):
        if n.name: self.bind(n.name)
    def visit_MatchMapping(self, n):
        if n.rest: self.bind(n.rest)
        self.generic_visit(n)

# ---------- text positions
class Edits:
    def __init__(self, text):
        self.text = text; self.lines = text.splitlines(keepends=True)
        self.start = [0]
        for l in self.lines: self.start.append(self.start[-1] + len(l))
        self.edits = {}
    def pos(self, line, col):
        l = self.lines[line - 1]
        return self.start[line - 1] + (col if l.isascii() else len(l.encode()[:col].decode()))
    def put(self, a, b, s):
        if self.text[a:b] == s: return
        if (a, b) in self.edits and self.edits[a, b] != s: problems.append(f"two edits at {a}: {self.edits[a, b]} / {s}")
        self.edits[a, b] = s
    def node(self, n, s): self.put(self.pos(n.lineno, n.col_offset), self.pos(n.end_lineno, n.end_col_offset), s)
    def done(self):
        out, at = [], 0
        for (a, b), s in sorted(self.edits.items()):
            if a < at: continue  # inside a replaced part
            out += [self.text[at:a], s]; at = b
        return "".join(out) + self.text[at:]

DOTTED = re.compile(r"\b(?:evermirror|tests|bench)(?:\.\w+)+")
def dotted(m):
    parts = m[0].split(".")
    for i in range(len(parts), 0, -1):
        mod = ".".join(parts[:i])
        if mod in NEWMOD:
            rest = parts[i:]
            if not rest: return NEWMOD[mod]
            if mod in TOP and MOD2FILE[mod].endswith("__init__.py") and rest[0] not in TOP[mod]: return m[0]
            got = resolve(mod, rest[0])
            first = newname(got[1], got[2]) if got[0] == "sym" else rest[0]
            tail = rest[1:]
            if tail and got[0] == "sym": tail[0] = MEMBERS.get(f"{got[1]}.{got[2]}", {}).get(tail[0], tail[0])
            return ".".join([NEWMOD[mod], first, *tail])
    return m[0]
MOVED = {o: n for o, n in NEWPATH.items() if o != n and o.endswith(".py")}
SHORT = {o.removeprefix("src/evermirror/"): n.removeprefix("src/evermirror/") for o, n in MOVED.items()}
PATHS = re.compile(r"(?<![\w/.])(src/evermirror/)?((?:core|edge|faces|nodes|model|config|sim|tests)/[\w/]+\.py)")
def paths(m):
    return (m[1] or "") + SHORT.get(m[2], m[2]) if m[2] in SHORT else m[0]
TESTDIRS = [(o, n) for o, n in sorted(plan.tests.items(), key=lambda i: -len(i[0])) if not o.endswith(".py")]
CAMEL = {}
_all = defaultdict(set)
for m in TOP:
    if m.startswith("evermirror"):
        for n in TOP[m]: _all[n].add(newname(m, n))
CAMEL = {n: next(iter(v)) for n, v in _all.items() if len(v) == 1 and next(iter(v)) != n and len(n) > 3 and n[0].isupper()}
TICKS = re.compile(r"``?(\w+)(?=(?:\.\w+)*(?:\(\))?`)")
def texts(s, ticks=True):
    s = DOTTED.sub(dotted, s)
    s = PATHS.sub(paths, s)
    if ticks: s = TICKS.sub(lambda m: m[0].replace(m[1], CAMEL[m[1]]) if m[1] in CAMEL else m[0], s)
    return s

# ---------- one python file
def indent_of(e, n): return e.lines[n.lineno - 1][: n.col_offset]
def transform(f):
    m, text, tree = modname(f), TEXT[f], TREE[f]
    e = Edits(text); sc = Scoper(tree); me = NEWMOD[m]; types = TYPES.get(f, {"attr": {}, "call": {}, "pat": {}})
    isrc = m.startswith("evermirror")
    uses = defaultdict(list)
    for n, s in sc.names: uses[n.id].append((n, s))
    nodes = list(ast.walk(tree))
    parent = {c: n for n in nodes for c in ast.iter_child_nodes(n)}
    rename_local = {}  # local binding -> new text, for names bound at module scope by import or def
    modattr = {}       # local binding -> (module, new local name or None where merged into this)
    # definitions of this module
    for name, node in TOP[m].items():
        new = newname(m, name)
        if new != name: rename_local[name] = new
    def free(new, name, scope_of=None):
        """may ``name``'s uses be called ``new``: is new bound nowhere where it is used, and not otherwise at module scope"""
        for n, s in uses[name]:
            b = s.finds(name); c = s.finds(new)
            if c is not None and c is not b and c.kind != "module": return False
        return True
    taken = set(sc.module.bound)
    # imports
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module and (node.module in MOD2FILE or node.module.split(".")[0] in ("evermirror", "tests", "bench")):
            groups, keep = defaultdict(list), []
            inner = node
            while inner in parent and not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)): inner = parent[inner]
            for a in node.names:
                full = f"{node.module}.{a.name}"; local = a.asname or a.name
                if full in MOD2FILE:  # a module
                    new = NEWMOD[full]; pkg, _, last = new.rpartition(".")
                    if new == me: modattr[local] = (full, None); continue
                    nl = a.asname
                    if nl and nl == last: nl = None
                    want = nl or last
                    if want != local:
                        if (want in taken and IMPORTS[m].get(want) != ("mod", full) and not (want in IMPORTS[m] and IMPORTS[m][want][0] == "mod" and NEWMOD[IMPORTS[m][want][1]] == new)) or not free(want, local):
                            problems.append(f"{f}: module {want} for {local}: name taken, alias kept"); nl = local; want = local
                        else: rename_local[local] = want
                    modattr[local] = (full, want)
                    groups[pkg].append(f"{last} as {nl}" if nl and nl != last else last)
                elif node.module in MOD2FILE:
                    got = resolve(node.module, a.name)
                    if got[0] == "mod": keep.append(a); continue
                    _, dm, dn = got
                    nn = newname(dm, dn); new = NEWMOD[dm]
                    if new == me:
                        if local != nn:
                            if not free(nn, local): problems.append(f"{f}: {nn} for {local} is bound in a function")
                            rename_local[local] = nn
                        continue
                    if a.asname and a.asname != nn: groups[new].append(f"{nn} as {a.asname}")
                    elif a.asname: groups[new].append(nn)
                    else:
                        if nn != a.name:
                            other = nn in taken and not (IMPORTS[m].get(nn, ("", "", ""))[0] == "sym" and resolve(m, nn) == got)
                            if other and nn in TOP[m] and newname(m, nn) != nn: other = False
                            if other and nn in IMPORTS[m] and IMPORTS[m][nn][0] == "sym" and newname(*resolve(m, nn)[1:]) != nn: other = False
                            if other or not free(nn, a.name):
                                problems.append(f"{f}: {nn} for {a.name}: name taken, alias kept"); groups[new].append(f"{nn} as {a.name}")
                            else: rename_local[a.name] = nn; groups[new].append(nn)
                        else: groups[new].append(nn)
                else: keep.append(a)
            ind = indent_of(e, node); out = []
            for mod in sorted(groups): out.append(f"from {mod} import " + ", ".join(sorted(set(groups[mod]))))
            if keep: out.append(f"from {node.module} import " + ", ".join(x.name + (f" as {x.asname}" if x.asname else "") for x in keep))
            if len(out) == 1 and len(out[0]) + len(ind) > 110:
                head, _, names = out[0].partition(" import "); out[0] = f"{head} import ({names})"
            body_siblings = getattr(parent.get(node), "body", [])
            e.node(node, f"\n{ind}".join(out) or ("pass" if isinstance(parent.get(node), (ast.If, ast.FunctionDef, ast.AsyncFunctionDef, ast.With, ast.Try)) else "pass  # merged"))
        elif isinstance(node, ast.Import):
            for a in node.names:
                if a.name in NEWMOD and a.name.split(".")[0] in ("evermirror", "tests", "bench"):
                    e.node(a, NEWMOD[a.name] + (f" as {a.asname}" if a.asname else ""))
                    if a.asname: modattr[a.asname] = (a.name, a.asname)
    # names
    for name, new in rename_local.items():
        if name in modattr and modattr[name][1] is None: continue
        for n, s in uses[name]:
            b = s.finds(name)
            if b is None or b.kind == "module" or (name in modattr or name in IMPORTS[m]) and b is not None and name not in getattr(b, "args", ()) and _imported_in(b, name, parent, nodes, m):
                c = s.finds(new)
                if c is not None and c.kind != "module" and c is not b: problems.append(f"{f}:{n.lineno}: {name} -> {new} is shadowed")
                e.node(n, new)
    # definitions
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            p = parent.get(node); new = None
            while isinstance(p, (ast.If, ast.Try)): p = parent.get(p)
            if isinstance(p, ast.Module): new = rename_local.get(node.name) if node.name in TOP[m] else None
            elif isinstance(p, ast.ClassDef) and isinstance(parent.get(p), ast.Module): new = MEMBERS.get(f"{m}.{p.name}", {}).get(node.name)
            if new:
                at = text.index(node.name, e.pos(node.lineno, node.col_offset) + (5 if isinstance(node, ast.ClassDef) else 3))
                if isinstance(node, ast.AsyncFunctionDef): at = text.index(node.name, text.index("def", e.pos(node.lineno, node.col_offset) ) + 3)
                e.put(at, at + len(node.name), new)
        if isinstance(node, ast.ClassDef) and isinstance(parent.get(node), ast.Module) and f"{m}.{node.name}" in MEMBERS:
            ren = MEMBERS[f"{m}.{node.name}"]
            for st in node.body:
                ts = [st.target] if isinstance(st, ast.AnnAssign) else st.targets if isinstance(st, ast.Assign) else []
                for t in ts:
                    if isinstance(t, ast.Name) and t.id in ren: e.node(t, ren[t.id])
                    if isinstance(t, ast.Name) and t.id in ("__slots__", "__match_args__"):
                        for c in ast.walk(st.value):
                            if isinstance(c, ast.Constant) and c.value in ren: e.node(c, f'"{ren[c.value]}"')
            # names used in the class body itself (defaults, decorators such as x.setter)
            for st in node.body:
                for n in ([d for d in getattr(st, "decorator_list", [])] + ([st.value] if isinstance(st, (ast.Assign, ast.AnnAssign)) and st.value else [])):
                    for x in ast.walk(n):
                        if isinstance(x, ast.Name) and x.id in ren and x.id in planlib.class_members(node): e.node(x, ren[x.id])
    # attributes
    def enclosing(n):
        while n in parent:
            n = parent[n]
            if isinstance(n, ast.ClassDef): return n
        return None
    def member(owners, attr, where, n=None):
        new = {MEMBERS.get(o, {}).get(attr) for o in owners if o != "?"}
        known = {o for o in owners if o != "?"}
        if known:
            new2 = new - {None}
            if len(new2) == 1: return next(iter(new2))
            if len(new2) > 1: problems.append(f"{where}: {attr} has several new names {new2}")
            return None
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id in ("self", "cls"):
            c = enclosing(n)
            if c is not None:
                got = MEMBERS.get(f"{m}.{c.name}", {}).get(attr)
                if got: return got
                if attr in planlib.class_members(c): return None
        if attr in BYWORD and BYWORD[attr] != attr: return BYWORD[attr]
        if attr in PARTLY: unsure.append(f"{where}: {attr}")
        return None
    for node in nodes:
        if isinstance(node, ast.Attribute):
            v = node.value
            if isinstance(v, ast.Name) and v.id in modattr:
                s = next((s for n, s in uses[v.id] if n is v), None); b = s.finds(v.id) if s else None
                if b is None or b.kind == "module" or v.id in IMPORTS[m]:
                    mod, loc = modattr[v.id]
                    got = resolve(mod, node.attr)
                    nn = newname(got[1], got[2]) if got[0] == "sym" else node.attr
                    if loc is None:
                        c = s.finds(nn) if s else None
                        if c is not None and c.kind != "module": problems.append(f"{f}:{node.lineno}: {v.id}.{node.attr} -> {nn} is shadowed")
                        e.node(node, nn)
                    elif nn != node.attr:
                        end = e.pos(node.end_lineno, node.end_col_offset); e.put(end - len(node.attr), end, nn)
                    continue
            key = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, node.attr)
            # class imported: Class.attr handled by types
            owners = types["attr"].get(key, {"?"})
            new = member(owners, node.attr, f"{f}:{node.lineno}", node)
            if new:
                end = e.pos(node.end_lineno, node.end_col_offset); e.put(end - len(node.attr), end, new)
        elif isinstance(node, ast.Call):
            kws = types["call"].get((node.lineno, node.col_offset, node.end_lineno, node.end_col_offset), {})
            for k in node.keywords:
                if k.arg is None: continue
                owners = kws.get(k.arg)
                if not owners: continue
                new = member(owners, k.arg, f"{f}:{node.lineno}", k) if owners != {"?"} else None
                if owners == {"?"} and k.arg in BYWORD: new = BYWORD[k.arg]
                if new:
                    a = e.pos(k.lineno, k.col_offset); e.put(a, a + len(k.arg), new)
            # monkeypatch.setattr(x, "name", ...), getattr
            fn = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
            if fn in ("setattr", "delattr", "getattr", "object", "patch") and len(node.args) >= 2 and isinstance(node.args[1], ast.Constant) and isinstance(node.args[1].value, str):
                x, c = node.args[0], node.args[1]; new = None
                if isinstance(x, ast.Name) and x.id in modattr:
                    got = resolve(modattr[x.id][0], c.value)
                    if got[0] == "sym": new = newname(got[1], got[2])
                elif isinstance(x, ast.Name) and x.id in IMPORTS[m] and IMPORTS[m][x.id][0] == "sym":
                    got = resolve(m, x.id)
                    if got[0] == "sym": new = MEMBERS.get(f"{got[1]}.{got[2]}", {}).get(c.value)
                if new is None and c.value in BYWORD: new = BYWORD[c.value]
                if new is None and c.value in PARTLY: unsure.append(f"{f}:{node.lineno}: setattr {c.value}")
                if new and new != c.value: e.node(c, f'"{new}"')
        elif isinstance(node, ast.MatchClass):
            ren = types["pat"].get((node.lineno, node.col_offset, node.end_lineno, node.end_col_offset), {})
            a, b = e.pos(node.lineno, node.col_offset), e.pos(node.end_lineno, node.end_col_offset)
            for kw in node.kwd_attrs:
                owners = ren.get(kw)
                if owners is None:  # by the class as imported
                    cl = node.cls
                    got = resolve(m, cl.id) if isinstance(cl, ast.Name) else None
                    owners = {f"{got[1]}.{got[2]}"} if got and got[0] == "sym" else {"?"}
                new = member(owners, kw, f"{f}:{node.lineno}")
                if new:
                    hit = re.compile(rf"\b{kw}\s*=").search(text, a, b)
                    if hit: e.put(hit.start(), hit.start() + len(kw), new)
    # names in strings: __all__, quoted annotations
    for node in nodes:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            for c in ast.walk(node.value):
                if isinstance(c, ast.Constant) and isinstance(c.value, str):
                    new = rename_local.get(c.value)
                    if new: e.node(c, f'"{new}"')
        quoted = [getattr(node, k, None) for k in ("annotation", "returns")]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("cast", "TypeVar"): quoted += [*node.args[:1], *[k.value for k in node.keywords]]
        if isinstance(node, ast.ClassDef): quoted += node.bases
        if isinstance(node, ast.Assign) and parent.get(node) is tree: quoted += [x for x in ast.walk(node.value) if isinstance(x, ast.BinOp | ast.Subscript)]
        for q in quoted:
            for c in (ast.walk(q) if q is not None else ()):
                if isinstance(c, ast.Constant) and isinstance(c.value, str) and re.fullmatch(r"[\w\[\], |.]+", c.value):
                    new = re.sub(r"(?<![.\w])\w+", lambda mm: rename_local.get(mm[0], mm[0]), c.value)
                    if new != c.value: e.node(c, f'"{new}"')
    # local words
    for p, old, new in plan.words:
        if "src/evermirror/" + p == f:
            for n, s in uses[old]:
                b = s.finds(old)
                if b and b.kind != "module":
                    if s.finds(new) not in (None,): problems.append(f"{f}:{n.lineno}: word {new} is taken"); 
                    e.node(n, new)
            for node in nodes:
                if isinstance(node, ast.arg) and node.arg == old:
                    a = e.pos(node.lineno, node.col_offset); e.put(a, a + len(old), new)
                if isinstance(node, ast.MatchAs) and node.name == old:
                    b = e.pos(node.end_lineno, node.end_col_offset); a = text.rindex(old, 0, b); e.put(a, b, new)
                if isinstance(node, ast.ExceptHandler) and node.name == old: problems.append(f"{f}: word {old} in except")
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(x.arg == old for x in [*node.args.args, *node.args.kwonlyargs]): params.append((f, node.name, old, new))
    # strings and comments
    try:
        for tok in tokenize.generate_tokens(io.StringIO(text).readline):
            if tok.type in (tokenize.STRING, tokenize.COMMENT):
                new = texts(tok.string, ticks=True)
                for o, n in TESTDIRS:
                    new = re.sub(rf"(?<![\w/]){re.escape(o)}(?=/)", n, new)
                if new != tok.string:
                    l0, c0 = tok.start; l1, c1 = tok.end
                    a, b = e.start[l0 - 1] + c0, e.start[l1 - 1] + c1
                    if not any(x[0] >= a and x[1] <= b for x in e.edits): e.put(a, b, new)
    except tokenize.TokenError: pass
    return e.done()
def _imported_in(b, name, parent, nodes, m): return b.kind == "function" and name in IMPORTS[m] and any(
    isinstance(n, ast.ImportFrom) and any((a.asname or a.name) == name for a in n.names) and not isinstance(parent.get(n), ast.Module) for n in nodes)
unsure: list[str] = []; params: list = []

# ---------- merging
def parts(text):
    """docstring, import statements (runtime, type checking), other text"""
    tree = ast.parse(text); lines = text.splitlines(keepends=True)
    doc = ast.get_docstring(tree, clean=True); drop = set(); run, chk = [], []
    for i, st in enumerate(tree.body):
        rng = range(st.lineno - 1, st.end_lineno)
        seg = "".join(lines[st.lineno - 1: st.end_lineno])
        if i == 0 and doc is not None and isinstance(st, ast.Expr): drop |= set(rng)
        elif isinstance(st, (ast.Import, ast.ImportFrom)): drop |= set(rng); run.append(seg.rstrip("\n") + "\n")
        elif isinstance(st, ast.Pass): drop |= set(rng)
        elif isinstance(st, ast.If) and isinstance(st.test, ast.Name) and st.test.id == "TYPE_CHECKING" and not st.orelse:
            drop |= set(rng)
            for s in st.body:
                if not isinstance(s, ast.Pass): chk.append("".join(lines[s.lineno - 1: s.end_lineno]).rstrip("\n") + "\n")
    body = "".join(l for i, l in enumerate(lines) if i not in drop)
    return doc, run, chk, body.strip("\n") + "\n"
def bindings(stmts):
    out = {}
    for s in stmts:
        for n in ast.walk(ast.parse(s.strip() if not s.startswith(" ") else s.lstrip())):
            if isinstance(n, ast.ImportFrom):
                for a in n.names: out[a.asname or a.name] = (n.module, a.name)
            elif isinstance(n, ast.Import):
                for a in n.names: out[(a.asname or a.name.split(".")[0])] = (a.name if a.asname else a.name.split(".")[0], None)
    return out
def newdoc(new, old):
    want = plan.docs.get(new.removeprefix("src/evermirror/"))
    if not want: return old
    rest = (old or "").partition("\n")[2].strip("\n")
    return want + (f"\n\n{rest}\n" if rest else "")
def quote(doc):
    if doc is None: return ""
    q = '"""'; r = "r" if "\\" in doc else ""
    return f"{r}{q}{doc}{q}\n\n" if "\n" not in doc else f"{r}{q}{doc.rstrip()}\n{q}\n\n"
def merge(new, olds, out):
    import_deps = {}
    group = {modname(o) for o in olds}
    for o in olds:
        deps = set()
        for st in TREE[o].body:
            if isinstance(st, ast.ImportFrom) and st.module:
                for a in st.names:
                    t = f"{st.module}.{a.name}"
                    d = t if t in MOD2FILE else resolve(st.module, a.name)[1] if st.module in MOD2FILE else None
                    if d in group and d != modname(o): deps.add(MOD2FILE[d])
        import_deps[o] = deps
    order, seen = [], set()
    def add(o, trail=()):
        if o in seen: return
        if o in trail: problems.append(f"{new}: import cycle {trail}"); return
        for d in sorted(import_deps[o], key=olds.index): add(d, (*trail, o))
        seen.add(o); order.append(o)
    for o in olds: add(o)
    runs, chks, bodies, had = [], [], [], {}
    allb, topseen = {}, {}
    docs = []
    for o in order:
        doc, run, chk, body = parts(out[o])
        for k, v in {**bindings(chk), **bindings(run)}.items():
            if k in allb and allb[k][0] != v: problems.append(f"{new}: import {k} means {v} in {o} and {allb[k]}")
            allb.setdefault(k, (v, o))
        # fold identical top-level assignments
        tree = ast.parse(body); lines = body.splitlines(keepends=True); drop = set()
        for st in tree.body:
            if isinstance(st, (ast.Assign, ast.AnnAssign)):
                d = ast.dump(st)
                if d in had: drop |= set(range(st.lineno - 1, st.end_lineno))
                had[d] = o
        body = "".join(l for i, l in enumerate(lines) if i not in drop).strip("\n") + "\n"
        for n in top_names(ast.parse(body)):
            if n in topseen and topseen[n] != o: problems.append(f"{new}: {n} defined in {o} and {topseen[n]}")
            topseen.setdefault(n, o)
        runs += run; chks += chk; docs.append(doc); bodies.append((o, doc, body))
    for n, o in topseen.items():
        if n in allb: problems.append(f"{new}: {n} defined in {o}, and imported as {allb[n]}")
    rb = bindings(runs)
    chks = [c for c in chks if not set(bindings([c])) <= set(rb)]
    fut = "from __future__ import annotations\n"
    lines = []
    want = plan.docs.get(new.removeprefix("src/evermirror/")) or (docs[0] or "").partition("\n")[0]
    lines.append(quote(want))
    lines.append(fut + "\n")
    lines += sorted({r for r in runs if r.strip() != fut.strip()})
    if chks:
        if "TYPE_CHECKING" not in rb: lines.append("from typing import TYPE_CHECKING\n")
        lines.append("\nif TYPE_CHECKING:\n" + "".join(sorted(set(chks))))
    lines.append("\n")
    for o, doc, body in bodies:
        if doc: lines.append("\n\n" + "".join(f"# {l}".rstrip() + "\n" for l in doc.strip().splitlines()) + "\n\n")
        lines.append(body)
    return "".join(lines)

def main():
    out = {f: transform(f) for f in PY}
    write: dict[str, str] = {}
    byNew = defaultdict(list)
    for f in PY: byNew[NEWPATH[f]].append(f)
    for new, olds in byNew.items():
        rel = new.removeprefix("src/evermirror/")
        if len(olds) > 1:
            listed = ["src/evermirror/" + o for o in plan.order.get(rel, [])]
            if sorted(listed) != sorted(olds): problems.append(f"{new}: made of {olds}, plan says {listed}"); 
            try: write[new] = merge(new, listed or olds, out)
            except SyntaxError as x: problems.append(f"{new}: {x}"); [open(f"{sys.argv[2]}.bad{i}", "w").write(out[o]) for i, o in enumerate(listed)]
        else:
            text = out[olds[0]]
            if rel in plan.docs and new.startswith("src/"):
                t = ast.parse(text)
                if t.body and isinstance(t.body[0], ast.Expr) and ast.get_docstring(t) is not None:
                    st = t.body[0]; ls = text.splitlines(keepends=True)
                    text = quote(newdoc(new, ast.get_docstring(t))).rstrip("\n") + "\n" + "".join(ls[st.end_lineno:])
            write[new] = text
    # other texts
    other = {}
    for f in FILES:
        if f in PY or not re.search(r"\.(md|toml|cfg|ini|yml|yaml|js|html|css|service|txt|proto|sh|json)$|Makefile|^tools/|\.ci/run", f) or f.startswith("docs/adr"): continue
        try: t = (REPO / f).read_text()
        except (UnicodeDecodeError, IsADirectoryError): continue
        n = texts(t, ticks=f.endswith(".md"))
        for o, nn in TESTDIRS: n = re.sub(rf"(?<![\w/]){re.escape(o)}(?=/)", nn, n)
        if n != t: other[f] = n
    print("\n".join(problems)); print(len(problems), "problems;", len(unsure), "unsure attributes")
    Path(sys.argv[2] + ".unsure").write_text("\n".join(unsure)); Path(sys.argv[2] + ".params").write_text("\n".join(map(str, params)))
    if "--dry" in os.environ.get("REFACTOR", ""): return
    for f in PY:
        if NEWPATH[f] != f: (REPO / f).unlink()
    for new, t in write.items():
        p = REPO / new; p.parent.mkdir(parents=True, exist_ok=True); p.write_text(t)
        if new.startswith("src/"):
            d = p.parent
            while d != REPO / "src":
                if not (d / "__init__.py").exists(): (d / "__init__.py").write_text("")
                d = d.parent
    for f, t in other.items(): (REPO / f).write_text(t)
    for d in sorted((REPO / "src/evermirror").rglob("*"), reverse=True):  # packages that nothing is left in
        if d.is_dir() and d.name != "__pycache__" and (d / "__init__.py").is_file() and not [x for x in d.iterdir() if x.name not in ("__init__.py", "__pycache__")]:
            shutil.rmtree(d)
    for f in FILES:  # data files in tests follow their folder
        if f not in PY and NEWPATH[f] != f:
            (REPO / NEWPATH[f]).parent.mkdir(parents=True, exist_ok=True); (REPO / f).rename(REPO / NEWPATH[f])
main()
