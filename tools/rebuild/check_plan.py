import sys, ast
from planlib import *
areas = sys.argv[1:]
plan = read([HERE / "plans" / f"{a}.plan" for a in areas])
errs = list(plan.errors)
trees = {}
def tree(p):
    if p not in trees: trees[p] = ast.parse((SRC / p).read_text()) if (SRC / p).is_file() else None
    return trees[p]
for o in plan.modules:
    if tree(o) is None: errs.append(f"module {o}: no such file")
for (p, name), new in plan.names.items():
    t = tree(p)
    if t is None: errs.append(f"name {p}:{name}: no such file"); continue
    head, _, attr = name.partition(".")
    tops = top_names(t)
    if head not in tops: errs.append(f"name {p}:{name}: no top-level {head}"); continue
    if attr and (not isinstance(tops[head], ast.ClassDef) or attr not in class_members(tops[head])): errs.append(f"name {p}:{name}: class has no {attr} of its own")
    if attr and isinstance(tops[head], ast.ClassDef) and new in class_members(tops[head]) and (p, f"{head}.{new}") not in plan.names: errs.append(f"name {p}:{name}: {head} has a {new} already")
def imported(t):
    out = set()
    for s in ast.walk(t):
        if isinstance(s, (ast.Import, ast.ImportFrom)):
            out |= {(a.asname or a.name).split(".")[0] for a in s.names}
    return out
allmods = {str(p.relative_to(SRC)) for p in SRC.rglob("*.py")}
for new, olds in plan.order.items():
    if new in allmods and new not in plan.modules and new not in olds: errs.append(f"module -> {new}: exists and does not move away; list it among the old ones")
    seen = {}
    for o in olds:
        if not tree(o): continue
        for n, node in top_names(tree(o)).items():
            final = plan.names.get((o, n), n)
            if final in seen and seen[final][0] != o:
                same = ast.dump(node) == ast.dump(seen[final][1])
                if not same: errs.append(f"{new}: {final} comes from {seen[final][0]} and {o}")
            seen[final] = (o, node)
    if len(olds) > 1 and new not in plan.docs: errs.append(f"doc {new}: missing")
for o, n in plan.tests.items():
    if not (ROOT / o).exists(): errs.append(f"test {o}: does not exist")
for p, _, _ in plan.words:
    if tree(p) is None: errs.append(f"word in {p}: no such file")
print("RESULT")
for new, olds in sorted(plan.order.items()):
    lines = sum((SRC / o).read_text().count("\n") for o in olds if (SRC / o).is_file())
    print(f"{lines:6} {new}  <- {len(olds)}" + ("   LONG" if lines > 600 else ""))
print(f"{len(plan.modules)} old modules -> {len(plan.order)} new, {len(plan.names)} names")
print("ERRORS" if errs else "CLEAN")
for e in errs: print("  " + e)
