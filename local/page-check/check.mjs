// `node --test check.mjs`: every flow at both widths and in both colour schemes, on one stack, which other tests call from
// another origin.

import { after, before } from "node:test";
import { access } from "./access.mjs";
import { firstLook } from "./first-look.mjs";
import { flows } from "./flows.mjs";
import { serve } from "./host.mjs";
import { modes } from "./modes.mjs";
import { origins } from "./origins.mjs";
import { requests } from "./requests.mjs";
import { Stack } from "./stack.mjs";
import { BOTH, View, launch } from "./view.mjs";

const host = await serve();
// Few enough reactions for a test to reach the limit, and few enough followers for an author who is pulled.
const stack = new Stack({ CorsOrigins: host.url, LimitReactions: 20, PullThreshold: 30 });
let browser, user = 1000;
const another = () => (user += 1);

before(async () => {
  await stack.start();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await stack.remove();
  host.close();
});

/** Runs a test with a page for two new users. */
const withPage = (size, test, address = BOTH) => async () => {
  const [first, second] = [another(), another()];
  const view = await View.open(browser, stack.url + address, size, first, second);
  try {
    await test({ stack, view, page: view.page, first, second, another });
  } catch (error) {
    if (process.env.PAGE_CHECK_FAILURE) await view.page.screenshot({ path: process.env.PAGE_CHECK_FAILURE });
    throw error;
  }
  await view.close();
};

for (const size of [{ width: 1280, scheme: "light" }, { width: 390, scheme: "dark" }]) {
  flows(size, withPage);
  firstLook(size, withPage);
  modes(size, withPage);
  requests(size, withPage);
}
for (const width of [1280, 1000, 390]) {
  for (const scheme of ["light", "dark"]) access({ width, scheme }, withPage);
}
origins(() => ({ browser, stack, host, another }));
