// Trees of elements, and how a new one becomes the one that is shown without disturbing who reads it.
//
// A view makes its whole tree anew whenever something changed; `patch` then changes what differs in the tree
// that is shown. Elements stay the same elements, so that focus, scroll, selected text, what was typed, and what
// was opened stay as they are. Among its siblings an element is known by its `key`, else by its place and tag; what
// is not there now (null, false) keeps its place, and rows of a list have keys.
//
// Names come from strangers: texts are only ever set as text, and no attribute takes code.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "path", "line", "rect", "circle", "polyline", "title", "desc", "text", "clipPath", "defs"]);
const USERS = new Set(["open"]);  // attributes that people change by themselves

/** An element. Props: `key`; `on: {click: f}`; `value` and `checked` (they count when the program gives others: in
 * between they are the user's), `disabled`, `hidden` and other attributes; `false`, `null` and `undefined` leave one out. */
export function h(tag, props, ...children) {
  const made = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) give(made, name, value);
  made.append(...nodes(children));
  if (tag === "select" && made.emValue !== undefined) made.value = made.emValue;  // its options are there now
  return made;
}

/** An element whose children are made, and compared with those shown, only when one of the values `of` is another. */
export function memo(tag, props, of, make) {
  const made = h(tag, props);
  Object.assign(made, { emOf: of, emMake: make });
  unmade.add(made);
  return made;
}

// Those that are not filled yet; each patch fills what it put in, and forgets the others.
const unmade = new Set();

function fill(made) {
  unmade.delete(made);
  made.append(...nodes([made.emMake()]));
}

const same = (a, b) => a?.length === b.length && a.every((one, i) => one === b[i]);

/** A `details` whose content is made only while it is open. */
export function fold(props, summary, make) {
  const made = h("details", { ...props, on: { click: unfold, toggle: unfold } }, summary);
  made.emInside = make;
  return made;
}

/** A click comes before it opens, so that it opens with all that is in it. */
function unfold({ type, target, currentTarget: box }) {
  if (type === "click" ? target.closest("summary") === box.firstChild : box.open) patch(box, [box.firstChild, box.emInside()]);
}

const nodes = (children) => children.flat(9).map(node);

function node(child) {
  if (child instanceof Node) return child;
  const nothing = child === null || child === undefined || child === false;
  return nothing ? document.createComment("") : document.createTextNode(String(child));
}

function give(made, name, value) {
  if (name === "key") made.emKey = value;
  else if (name === "on") listen(made, value);
  else if (name === "checked") { made.checked = value; made.emChecked = value; }
  else if (name === "indeterminate") made.indeterminate = value;
  else if (name === "value") { made.value = value; made.emValue = value; }
  else if (/^on/i.test(name) || name === "style" || name === "srcdoc") throw new Error(`no attribute for ${name}`);
  else if (value === true) made.setAttribute(name, "");
  else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, String(value));
}

function listen(made, handlers) {
  made.emOn = handlers;
  for (const type of Object.keys(handlers)) made.addEventListener(type, dispatch);
}

// One function for all: whose handlers hold is looked up when something happens, so `patch` can exchange them.
function dispatch(event) {
  event.currentTarget.emOn?.[event.type]?.(event);
}

/** Makes `parent` show `wanted` (elements and texts), changing as little as can be. */
export function patch(parent, wanted) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const around = focused ? ancestors(focused) : [];
  become(parent, nodes([wanted]));
  for (const made of unmade) if (parent.contains(made)) fill(made);
  unmade.clear();
  // Where the focus was is gone: what it was in takes it, so that who has no mouse is not sent back to the top.
  if (focused && !focused.isConnected && document.activeElement === document.body) {
    around.find((one) => one.isConnected && one.hasAttribute("tabindex"))?.focus({ preventScroll: true });
  }
}

function ancestors(one) {
  const found = [];
  for (let up = one.parentElement; up; up = up.parentElement) found.push(up);
  return found;
}

function become(parent, wanted) {
  const stay = new Set(wanted.map((next) => next.emKey));
  const known = new Map();
  for (const old of [...parent.childNodes]) {
    if (old.emKey === undefined) continue;
    if (stay.has(old.emKey)) known.set(old.emKey, old);
    else old.remove();  // first, so that what stays need not be moved, which would take the focus from it
  }
  let place = parent.firstChild;
  for (const next of wanted) {
    const old = next.emKey !== undefined ? known.get(next.emKey) : place;
    if (old && old.emKey === next.emKey && alike(old, next)) {
      if (old === place) place = place.nextSibling;
      else move(parent, old, place);
      morph(old, next);
      known.delete(next.emKey);
    } else if (place && takesPlace(next, place)) {
      const gone = place;
      place = place.nextSibling;
      gone.replaceWith(next);
    } else {
      parent.insertBefore(next, place);
    }
  }
  while (place) {
    const gone = place;
    place = place.nextSibling;
    gone.remove();
  }
}

/** Whether it comes in place of what stands there, so that what follows need not move: another of its kind, or what has
 * a key and was not there until now. */
function takesPlace(next, gone) {
  if (next.emKey === gone.emKey) return true;
  return gone.emKey === undefined && gone.nodeType === Node.COMMENT_NODE;
}

/** A browser takes the focus from what is moved. */
function move(parent, old, place) {
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  parent.insertBefore(old, place);
  focused?.focus({ preventScroll: true });
}

const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName;

function morph(old, next) {
  if (old === next) return;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  if (next.emMake) {
    const unchanged = same(old.emOf, next.emOf);
    if (unchanged) unmade.delete(next);
    else fill(next);
    Object.assign(old, { emOf: next.emOf, emMake: next.emMake });
    morphAttributes(old, next);
    if (!unchanged) become(old, [...next.childNodes]);
    return;
  }
  old.emOf = undefined;
  morphAttributes(old, next);
  if (old.nodeName !== "SELECT") morphInput(old, next);
  old.emInside = next.emInside;
  become(old, [...next.childNodes, ...(next.emInside && old.open ? nodes([next.emInside()]) : [])]);
  if (old.nodeName === "SELECT") morphInput(old, next);  // its options are there now
}

function morphAttributes(old, next) {
  const busy = old.hasAttribute("disabled") && old.emFocused;
  if (next.hasAttribute("disabled") && old === document.activeElement) old.emFocused = true;
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && !USERS.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value && !USERS.has(name)) old.setAttribute(name, value);
  }
  for (const type of Object.keys(next.emOn ?? {})) old.addEventListener(type, dispatch);
  old.emOn = next.emOn;
  // A button that could not be used while it was busy takes the focus again, where nothing else has it.
  if (busy && !old.hasAttribute("disabled")) {
    old.emFocused = false;
    if (document.activeElement === document.body) old.focus({ preventScroll: true });
  }
}

function morphInput(old, next) {
  if (old.nodeName === "INPUT") old.indeterminate = next.indeterminate;
  // Another value from the program counts; the same one again does not undo what was typed or ticked since.
  if (next.emChecked !== undefined && next.emChecked !== old.emChecked) {
    old.checked = next.emChecked;
    old.emChecked = next.emChecked;
  }
  if (next.emValue !== undefined && next.emValue !== old.emValue) {
    if (old.value !== next.emValue) old.value = next.emValue;
    old.emValue = next.emValue;
  }
}
