// The server's clock: what it tells is as old as it says, however wrong the browser's own clock is.

const COUNTS_MS = 2000;  // its Date header has whole seconds, and an answer takes its time
let ahead = 0;  // of the browser's

/** Milliseconds by the server's clock. */
export const now = () => Date.now() + ahead;

/** An answer came: its head says when it was sent. */
export function heard(answer) {
  const told = Date.parse(answer.headers.get("Date") ?? "");
  if (Number.isFinite(told) && Math.abs(told - now()) > COUNTS_MS) ahead = told - Date.now();
}
