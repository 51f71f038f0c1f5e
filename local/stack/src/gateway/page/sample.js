// People with something to say, for an empty local stack. `make demo` has the same people.

import { Api } from "./api.js";

/** The ids of the sample's people after the first two, who are those of the page. */
const FIRST_ID = 3;

/**
 * Lets the first two people of the sample be those of the page, and the others follow, publish, like and comment. The local
 * stack accepts an id as a token. Who has a profile keeps it.
 */
export async function fill({ base }, [first, second]) {
  const { people, follows, posts, likes, comments } = await (await fetch("sample.json")).json();
  const ids = people.map((_, index) => [first.id, second.id][index] ?? String(FIRST_ID + index - 2));
  const id = Object.fromEntries(people.map(({ name }, index) => [name, ids[index]]));
  const as = (name) => new Api(base, id[name]);
  const { items } = await first.api.get(`/v1/users?${ids.map((user) => `user=${user}`).join("&")}`);
  await Promise.all(people.map(async (profile, index) => {
    if (items[index].profile) return;
    const taken = (error) => (error.slug === "handle-taken" ? as(profile.name).put("/v1/me/profile", { ...profile, handle: null }) : Promise.reject(error));
    await as(profile.name).put("/v1/me/profile", profile).catch(taken);
  }));
  await Promise.all(Object.entries(follows).map(([reader, authors]) => as(reader).post("/v1/following", { authors: authors.map((author) => id[author]) })));
  const published = [];
  // One after the other, so that their order is the sample's.
  for (const { author, ...post } of posts) published.push(await as(author).post("/v1/posts", post));
  await Promise.all([
    ...likes.map(([reader, post]) => as(reader).put(`/v1/posts/${published[post].id}/like`)),
    ...comments.map(([reader, post, text]) => as(reader).post(`/v1/posts/${published[post].id}/comments`, { text })),
  ]);
  await Promise.all([first, second].map((person) => person.changed("These are sample people. Publish as one, and watch the other.")));
}
