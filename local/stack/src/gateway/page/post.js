// The screen of one post, with its comments, and who has reacted.

import { Timeline } from "./timeline.js";

export class Post {
  constructor(person) {
    Object.assign(this, { person, id: null, timeline: new Timeline(person, person.part.post) });
  }

  async shown(id) {
    this.id = id;
    this.timeline.open = new Set([id]);
    this.timeline.show([]);
    await this.refresh();
  }

  async refresh() {
    const { id, person } = this;
    // Both at once: the comments do not wait for the post.
    const comments = this.timeline.comments.load(id);
    const post = await person.api.get(`/v1/posts/${id}`);
    await comments;
    if (id !== this.id) return;
    const { profiles, ...item } = post;
    person.learn(profiles);
    this.timeline.show([item]);
    if (!item.read) await this.timeline.mark(item, true);
  }
}
