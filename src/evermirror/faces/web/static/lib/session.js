// Who looks at the page, and what he may do. The server decides; the page only does not offer the rest.
import { Denied, ask, token } from "./api.js";

const RANK = ["public", "reader", "submitter", "operator", "admin"];
const listeners = new Set();
let me = { name: null, role: "public", known: false, denied: false };
let learning = null;  // {of, end}: the question under way, and with whose token

export const session = {
  get me() { return me; },

  /** Whether to offer what needs this role. */
  may: (role) => RANK.indexOf(me.role) >= RANK.indexOf(role),

  /** Asks the server who we are: once, however many want to know. */
  learn() {
    const of = token.get();
    if (learning?.of !== of) {
      const mine = (learning = { of });
      mine.end = learnFor(of).finally(() => { if (learning === mine) learning = null; });
    }
    return learning.end;
  },

  /** Throws where the token is not good, or nobody says so; then nothing changed. */
  async signIn(text) {
    const told = await ask("/api/me", { as: text });
    token.set(text);
    turn({ ...told, known: true, denied: false });
  },

  async signOut() {
    token.set(null);
    await session.learn();
  },

  get signedIn() { return token.get() !== null; },

  on(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};

async function learnFor(of) {
  const told = await ask("/api/me").catch((error) => {
    if (error instanceof Denied) return null;
    throw error;
  });
  if (token.get() !== of) return;  // somebody else signed in meanwhile
  turn(told ? { ...told, known: true, denied: false } : { name: null, role: "public", known: true, denied: true });
}

function turn(next) {
  me = next;
  for (const listener of [...listeners]) listener();
}
