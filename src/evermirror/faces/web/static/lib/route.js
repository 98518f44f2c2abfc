// Where in the page we are: `#/repos?status=failing`, `#/repo/github.com/owner/name`.

/** `{name, path, query}`; the path is what follows the name, decoded. */
export function here() {
  const [place, asked] = splitOnce(location.hash.replace(/^#\/?/, ""), "?");
  const [name, path] = splitOnce(place, "/");
  return { name: name || "overview", path: decode(path), query: Object.fromEntries(new URLSearchParams(asked)) };
}

export function href(name, path = "", query = {}) {
  const kept = Object.entries(query).filter(([, v]) => v !== "" && v !== null && v !== undefined && v !== false);
  const asked = new URLSearchParams(kept.map(([k, v]) => [k, String(v)])).toString();
  const way = path ? `/${path.split("/").map(encodeURIComponent).join("/")}` : "";
  return `#/${name}${way}${asked ? `?${asked}` : ""}`;
}

/** Goes there; `replace`: Back does not lead to where we were. */
export function go(name, path, query, { replace = false } = {}) {
  const to = href(name, path, query);
  if (to === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  dispatchEvent(new Event("hashchange"));
}

function splitOnce(text, at) {
  const i = text.indexOf(at);
  return i < 0 ? [text, ""] : [text.slice(0, i), text.slice(i + 1)];
}

function decode(path) {
  try {
    return path.split("/").map(decodeURIComponent).join("/");
  } catch {
    return path;
  }
}
