// Starts Bluesky's reference implementation with accounts: `bluesky.mjs <users>`. It needs Node 22, DB_POSTGRES_URL and
// REDIS_HOST. Prints one line of JSON when it is ready, and one for each line that it reads, when nothing is left to do.
// It ends when its stdin does.
import { createInterface } from "node:readline";

const print = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
console.log = console.info = console.error;
const { TestNetwork } = await import("@atproto/dev-env");
const { createServiceJwt } = await import("@atproto/xrpc-server");

const CREATED_AT_ONCE = 4;
const PATIENCE_MS = 300_000;
const HOURS_4 = 4 * 3600;
const TIMELINE = "app.bsky.feed.getTimeline";

async function createAccount(network, user) {
    const body = { handle: `user${user}.test`, email: `user${user}@example.com`, password: `password-${user}` };
    const response = await fetch(`${network.pds.url}/xrpc/com.atproto.server.createAccount`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`createAccount: ${response.status} ${await response.text()}`);
    const { did, accessJwt } = await response.json();
    // What the PDS sends to the appview with each request of this account.
    const service = await createServiceJwt({
        iss: did,
        aud: network.bsky.ctx.cfg.serverDid,
        lxm: TIMELINE,
        exp: Math.floor(Date.now() / 1000) + HOURS_4,
        keypair: await network.pds.ctx.actorStore.keypair(did),
    });
    return { did, token: accessJwt, service };
}

const users = Number(process.argv[2]);
const network = await TestNetwork.create({ dbPostgresSchema: "peers" });
const accounts = [];
for (let first = 0; first < users; first += CREATED_AT_ONCE) {
    const some = Array.from({ length: Math.min(CREATED_AT_ONCE, users - first) }, (_, number) => createAccount(network, first + number));
    accounts.push(...(await Promise.all(some)));
}
await network.processAll(PATIENCE_MS);
print({ pds: network.pds.url, appview: network.bsky.url, accounts, node: process.version });

for await (const _ of createInterface({ input: process.stdin })) {
    // What `processAll` of the network does, without the tasks of moderation.
    await network.pds.processAll();
    await network.bsky.bsyncSub.processAll(await network.bsync.getStreamHeads(), PATIENCE_MS);
    await network.processFullSubscription(PATIENCE_MS);
    print({ settled: true });
}
process.exit(0);
