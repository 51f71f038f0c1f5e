// Polls what live messages do not tell.

const FAILED_PAUSE = 2000;

/**
 * Calls `changed(body)` at the start, after a failure, and whenever the body at `path` changes, while the page is
 * visible. Returns `{ poke, stop }`; `poke` polls at once.
 */
export function watch(api, path, interval, changed) {
  let etag = null, stopped = false, wake = () => {};

  const pause = (time) => new Promise((done) => {
    const timer = setTimeout(() => document.hidden || done(), time);
    wake = () => (clearTimeout(timer), done());
  });
  const visible = () => document.hidden || wake();
  document.addEventListener("visibilitychange", visible);

  (async () => {
    while (!stopped) {
      let time = interval;
      try {
        const response = await api.call("GET", path, { headers: etag ? { "If-None-Match": etag } : {} });
        if (!stopped && response.status !== 304) {
          etag = response.etag;
          await changed(response.data);
        }
      } catch {
        time = Math.max(interval, FAILED_PAUSE);
        etag = null;
      }
      await pause(time);
    }
    document.removeEventListener("visibilitychange", visible);
  })();

  return { poke: () => wake(), stop: () => ((stopped = true), wake()) };
}
