// The screen Profile: name, handle, picture and text of the person, and who sees the posts.

import { submit } from "./dom.js";

export class Profile {
  constructor(person) {
    const { part, api } = person;
    Object.assign(this, { person, part });
    submit(part.profile, () => person.run(async () => {
      const values = [...new FormData(part.profile)].map(([name, value]) => [name, value.trim() || null]);
      await api.put("/v1/me/profile", { ...Object.fromEntries(values), data: person.profile?.data });
      await person.changed("The profile is saved.");
    }));
    part.private.addEventListener("change", async () => {
      const wanted = part.private.checked;
      part.private.disabled = true;
      const done = await person.run(() => api.put("/v1/me/privacy", { private: wanted }));
      part.private.disabled = false;
      part.private.checked = done ? wanted : !wanted;
      if (done) await person.changed(wanted ? "Only followers whom you accept see your posts." : "Everybody sees your posts.");
    });
  }

  /** Fills the form, unless the person is writing there. */
  identified({ profile, private: isPrivate }) {
    const { part } = this;
    if (!part.private.disabled) part.private.checked = isPrivate;
    if (part.profile.contains(document.activeElement)) return;
    for (const name of ["name", "handle", "picture", "bio"]) part.profile.elements.namedItem(name).value = profile?.[name] ?? "";
  }
}
