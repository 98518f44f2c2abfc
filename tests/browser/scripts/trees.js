// Trees at random, and what must not happen to who reads them. Each answer is true where it held.
async () => {
  const { fold, h, memo, patch } = await import("/static/lib/dom.js");
  const told = { patches: 0, equal: true, kept: true, unmoved: true };
  const root = document.createElement("main");
  root.tabIndex = -1;
  document.body.append(root);

  // The same numbers each time.
  let seed = 20261116;
  const below = (n) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor((seed / 2 ** 32) * n);
  };
  const pick = (items) => items[below(items.length)];

  // What is wanted is kept as plain data, so that it can be made twice.
  function some(depth) {
    const keys = ["a", "b", "c", "d", "e"].sort(() => below(3) - 1);
    return Array.from({ length: below(6) }, () => {
      const kind = below(10);
      if (kind < 2) return null;
      if (kind < 4) return `text ${below(3)}`;
      const children = depth ? some(depth - 1) : [];
      const props = { ...(kind < 8 && keys.length ? { key: keys.pop() } : {}), ...(below(2) ? { class: `c${below(3)}` } : {}) };
      return { tag: pick(["p", "div", "span"]), props, children, of: below(4) ? null : JSON.stringify(children) };
    });
  }
  const made = (one) => {
    if (one === null || typeof one === "string") return one;
    const children = () => one.children.map(made);
    return one.of === null ? h(one.tag, one.props, children()) : memo(one.tag, one.props, [one.of], children);
  };
  const plain = (one) => (one === null || typeof one === "string" ? one : h(one.tag, one.props, one.children.map(plain)));
  const written = (parent) => [...parent.childNodes].map((one) =>
    (one.nodeType === 1 ? `<${one.nodeName} ${one.className}>${written(one)}</>` : `${one.nodeType}${one.data}`)).join("|");

  for (let i = 0; i < 3000; i += 1) {
    const wanted = some(3), fresh = document.createElement("main");
    fresh.append(...wanted.map(plain).map((one) => one ?? document.createComment("")));
    const before = new Map([...root.children].filter((one) => one.emKey !== undefined).map((one) => [one.emKey, one]));
    patch(root, wanted.map(made));
    told.patches += 1;
    told.equal &&= written(root) === written(fresh);
    for (const one of root.children) {
      const old = before.get(one.emKey);
      if (old && old.nodeName === one.nodeName) told.kept &&= old === one;
    }
  }

  // What appears in a place that was empty moves nothing; what has gone moves nothing.
  const row = (key) => h("p", { key }, key);
  const watcher = new MutationObserver(() => {});
  for (const lists of [[[null, "a", "b"], ["x", "a", "b"]], [["x", "a", "b"], [null, "a", "b"]], [["a", null, "b"], ["a", "x", "b"]]]) {
    const [from, to] = lists.map((list) => list.map((key) => key && row(key)));
    root.replaceChildren();
    patch(root, from);
    const stay = [...root.children].filter((one) => one.emKey !== "x");
    watcher.observe(root, { childList: true });
    patch(root, to);
    told.unmoved &&= watcher.takeRecords().every((record) => ![...record.removedNodes].some((one) => stay.includes(one)));
    watcher.disconnect();
  }

  // A tick is the user's until the program says otherwise.
  const tick = (checked) => patch(root, h("input", { key: "tick", type: "checkbox", ...(checked === undefined ? {} : { checked }) }));
  tick();
  root.firstChild.click();
  tick();
  told.ticked = root.firstChild.checked;
  root.replaceChildren();
  tick(false);
  root.firstChild.click();
  tick(false);
  const stayed = root.firstChild.checked;
  tick(true);
  tick(false);
  told.unticked = stayed && !root.firstChild.checked;

  // What did not change is not even made.
  let times = 0;
  const charts = (of) => h("section", null, memo("div", { key: "m" }, of, () => { times += 1; return h("b", null, times); }));
  root.replaceChildren();
  for (const of of [[1, "x"], [1, "x"], [2, "x"], [2, "x"]]) patch(root, charts(of));
  told.madeOnce = times === 2 && root.textContent === "2";

  // What is folded is made when it is opened, and goes on being shown as it changes.
  const folded = (text) => h("div", null, fold({ class: "f" }, h("summary", null, "open"), () => { times += 1; return h("i", null, text); }));
  times = 0;
  root.replaceChildren();
  patch(root, folded("one"));
  patch(root, folded("two"));
  const unopened = times === 0 && !root.querySelector("i");
  root.querySelector("summary").click();
  const opened = root.querySelector("i")?.textContent === "two";
  patch(root, folded("three"));
  told.folded = unopened && opened && root.querySelector("i").textContent === "three";

  // The focus is never sent to the top of the page.
  const button = (disabled) => h("p", { key: "row" }, h("button", { key: "b", disabled }, "save"));
  root.replaceChildren();
  patch(root, button(false));
  root.querySelector("button").focus();
  patch(root, button(true));
  await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  patch(root, button(false));
  told.busyFocus = document.activeElement === root.querySelector("button");
  patch(root, []);
  told.goneFocus = document.activeElement === root;
  return told;
}
