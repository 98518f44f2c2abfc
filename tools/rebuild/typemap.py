"""Types of attribute owners, by mypy: pickles {file: {'attr': {(line,col,eline,ecol): [definer classes] }, 'call': {(line,col,eline,ecol): class or None}}}."""
import os, sys, pickle, time
os.chdir(sys.argv[1])
from pathlib import Path
from mypy import build
from mypy.options import Options
from mypy.fscache import FileSystemCache
from mypy.find_sources import create_source_list
from mypy.nodes import *
from mypy.types import *
from mypy.patterns import ClassPattern
o = Options()
o.export_types = True; o.preserve_asts = True; o.check_untyped_defs = True; o.strict_optional = True
o.python_version = (3, 11); o.mypy_path = ["src", "."]; o.explicit_package_bases = True; o.namespace_packages = True
o.ignore_missing_imports = True; o.incremental = False; o.cache_dir = os.devnull; o.warn_unreachable = False
o.follow_untyped_imports = False
srcs = create_source_list(["src/evermirror", "tests", "bench"], o, FileSystemCache())
t = time.time()
res = build.build(srcs, o)
print("built", time.time() - t, len(res.errors), "errors", len(res.types))
types = res.types
def infos(ty, depth=0):
    ty = get_proper_type(ty)
    if ty is None or depth > 5: return ["?"]
    if isinstance(ty, AnyType): return ["?"]
    if isinstance(ty, Instance): return [ty.type]
    if isinstance(ty, UnionType): return [i for x in ty.items for i in infos(x, depth + 1)]
    if isinstance(ty, TypeVarType): return infos(ty.upper_bound, depth + 1)
    if isinstance(ty, TupleType): return infos(ty.partial_fallback, depth + 1)
    if isinstance(ty, LiteralType): return infos(ty.fallback, depth + 1)
    if isinstance(ty, TypeType): return infos(ty.item, depth + 1)
    if isinstance(ty, FunctionLike):
        if ty.is_type_obj(): return [ty.type_object()]
        return []
    return []
def definers(ty, name):
    out = []
    for i in infos(ty):
        if i == "?": out.append("?"); continue
        for base in i.mro:
            if name in base.names: out.append(base.fullname); break
    return out
class V:
    def __init__(self): self.attr = {}; self.call = {}; self.pat = {}
    def visit_member_expr(self, e):
        pos = (e.line, e.column, e.end_line, e.end_column, e.name)
        if isinstance(e.expr, RefExpr) and isinstance(e.expr.node, MypyFile): pass
        else:
            ty = types.get(e.expr)
            if ty is None and isinstance(e.expr, RefExpr) and isinstance(e.expr.node, TypeInfo):
                d = [b.fullname for b in e.expr.node.mro if e.name in b.names][:1]
            else: d = definers(ty, e.name)
            self.attr.setdefault(pos, set()).update(d)
    def visit_super_expr(self, e):
        if e.info:
            d = [b.fullname for b in e.info.mro[1:] if e.name in b.names][:1]
            self.attr.setdefault((e.line, e.column, e.end_line, e.end_column, e.name), set()).update(d)
    def visit_call_expr(self, e):
        if any(e.arg_names):
            ty = types.get(e.callee); pos = (e.line, e.column, e.end_line, e.end_column)
            if isinstance(e.callee, RefExpr) and (e.callee.fullname in ("dataclasses.replace", "copy.replace")): ty = types.get(e.args[0]); cls = [i for i in infos(ty)] if ty else ["?"]
            elif isinstance(e.callee, RefExpr) and isinstance(e.callee.node, TypeInfo): cls = [e.callee.node]
            else:
                p = get_proper_type(ty) if ty else None
                if isinstance(p, FunctionLike) and p.is_type_obj(): cls = [p.type_object()]
                elif isinstance(p, TypeType): cls = infos(p)
                elif p is None or isinstance(p, AnyType): cls = ["?"]
                else: cls = []
            for n in e.arg_names:
                if n:
                    for i in cls:
                        if i == "?": self.call.setdefault(pos, {}).setdefault(n, set()).add("?")
                        else:
                            for b in i.mro:
                                if n in b.names: self.call.setdefault(pos, {}).setdefault(n, set()).add(b.fullname); break
    def visit_class_pattern(self, p):
        if isinstance(p.class_ref, RefExpr) and isinstance(p.class_ref.node, TypeInfo):
            for n in p.keyword_keys:
                for b in p.class_ref.node.mro:
                    if n in b.names: self.pat.setdefault((p.line, p.column, p.end_line, p.end_column), {}).setdefault(n, set()).add(b.fullname); break

SKIP = {"info", "node", "defn", "mro", "names", "type", "var", "analyzed", "target", "imports", "alias_deps", "unanalyzed_type", "original_def", "def_var", "method_type", "method_types", "original_type", "impl", "is_lvalue", "special_alias", "plugin_deps"}
_attrs = {}
def attrs(cls):
    if cls not in _attrs:
        found = set()
        for k in cls.__mro__:
            for n, d in vars(k).items():
                if type(d).__name__ in ("getset_descriptor", "member_descriptor") and n not in SKIP and not n.startswith("__"): found.add(n)
        _attrs[cls] = sorted(found)
    return _attrs[cls]
from mypy.nodes import Node, Context
def children(v):
    if isinstance(v, (list, tuple)):
        for x in v: yield from children(x)
    elif isinstance(v, Node) and not isinstance(v, (TypeInfo, MypyFile)): yield v
def walk(tree, v):
    stack = list(tree.defs); seen = set()
    while stack:
        n = stack.pop()
        if id(n) in seen: continue
        seen.add(id(n))
        if isinstance(n, MemberExpr): v.visit_member_expr(n)
        elif isinstance(n, SuperExpr): v.visit_super_expr(n)
        elif isinstance(n, CallExpr): v.visit_call_expr(n)
        elif isinstance(n, ClassPattern): v.visit_class_pattern(n)
        for a in attrs(type(n)):
            try: val = getattr(n, a)
            except Exception: continue
            stack.extend(children(val))
        if isinstance(n, OverloadedFuncDef) and n.impl: stack.append(n.impl)
out = {}
for name, f in res.files.items():
    path = f.path
    if not path: continue
    rp = os.path.relpath(path, ".")
    if not rp.startswith(("src/evermirror", "tests", "bench")): continue
    v = V(); walk(f, v)
    out[rp] = {"attr": v.attr, "call": v.call, "pat": v.pat}
# class bases for reference
pickle.dump(out, open(sys.argv[2], "wb"))
na = sum(len(x["attr"]) for x in out.values()); unk = sum(1 for x in out.values() for d in x["attr"].values() if "?" in d or not d)
print(len(out), "files", na, "attrs", unk, "unknown")
