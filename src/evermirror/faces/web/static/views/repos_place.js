// What stays when the list is left and come back to: what was picked, and the way through the pages.
import { session } from "../lib/session.js";

export const FILTERS = ["search", "status", "host", "priority", "worker", "failure"];
export const PICKED_MAX = 1000;  // the server takes no more names at once

const keys = new Set();
export const picked = {
  keys,
  turn(some, on) {
    for (const key of some) {
      if (on) keys.add(key);
      else keys.delete(key);
    }
  },
  clear: () => keys.clear(),
};

const looks = () => `${session.me.name} ${session.me.role}`;
let whose = looks();
session.on(() => {
  if (looks() !== whose) keys.clear();  // what one picked, another does not act on
  whose = looks();
});

let walked = { of: "", cursors: [] };
/** Where each page of this list begins: `[n]` is the cursor of page n + 1. */
export function trail(list) {
  const of = JSON.stringify(list);
  if (walked.of !== of) walked = { of, cursors: [] };
  return walked.cursors;
}
