//! `GET /v1/me`, `PUT /v1/me/profile`, `PUT /v1/me/privacy`, `GET /v1/users…` and `GET /v1/handles/{handle}`.

use tidemark::{
    App,
    domain::{Handle, UserId},
    facts::ProfileSet,
    http::{
        Kind, Problem, Request, Response,
        bodies::{KnownFollowers, Me, Privacy, PrivacyRequest, Profile, ProfileRequest, Rollout, User, UserEntry, Users},
    },
};
use tidemark_legacy::rollout;

const MAX_USERS: usize = 100;

pub(crate) async fn me(app: &App, request: &Request) -> Result<Response, Problem> {
    let id = request.caller()?;
    let (profile, private, (counters, degraded), inbox_unread) = futures::try_join!(
        app.people.profile(id),
        app.people.is_private(id),
        app.relations.counters(id, id),
        app.inboxes.unread(id)
    )?;
    let rollout = if rollout::is_on(&app.settings.legacy, id) { Rollout::On } else { Rollout::Off };
    let (profile, counters) = (profile.map(Profile::from), counters.into());
    let body = Me { id, profile, private, counters, inbox_unread, rollout };
    Ok(Response::json(200, &body).degraded(degraded))
}

pub(crate) async fn set(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let content = request.body::<ProfileRequest>()?.into();
    match app.people.set(caller, &content).await? {
        ProfileSet::Stands(profile) => Ok(Response::json(200, &Profile::from(profile))),
        ProfileSet::HandleTaken => {
            let detail = "another user has this handle, or gave it up less than 30 days ago; nothing changed";
            Err(Problem::new(Kind::HandleTaken, detail))
        }
    }
}

pub(crate) async fn set_privacy(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let PrivacyRequest { private } = request.body()?;
    app.people.set_privacy(caller, private).await?;
    Ok(Response::json(200, &Privacy { private }))
}

pub(crate) async fn one(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    user(app, caller, request.parameter("user")?).await
}

pub(crate) async fn by_handle(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let handle = Handle::mentioned(&request.parameter::<String>("handle")?);
    let handle = handle.map_err(|error| Problem::invalid("handle", error.to_string()))?;
    let found = app.stores.facts.user_of_handle(&handle).await?.ok_or_else(|| Problem::not_found(format!("no user {handle}")))?;
    user(app, caller, found).await
}

/// The profiles of many users, in the order of the request.
pub(crate) async fn many(app: &App, request: &Request) -> Result<Response, Problem> {
    request.caller()?;
    let users: Vec<UserId> = request.many("user", MAX_USERS)?;
    let profiles = app.stores.facts.profiles(&users).await?;
    let entry = |&id: &UserId| UserEntry { id, profile: profiles.get(&id).cloned().map(Profile::from) };
    Ok(Response::json(200, &Users { items: users.iter().map(entry).collect() }))
}

async fn user(app: &App, caller: UserId, id: UserId) -> Result<Response, Problem> {
    let users = [id];
    let (profile, private, (counts, without_counts), mut relations, (known, without_list)) = futures::try_join!(
        app.people.profile(id),
        app.people.is_private(id),
        app.relations.counters(caller, id),
        app.relations.relations_to(caller, &users),
        app.relations.known_followers(caller, id)
    )?;
    let known_followers = KnownFollowers::from(known);
    let cards = app.people.cards(known_followers.users.iter().copied().collect(), None).await?;
    let body = User {
        id,
        profile: profile.map(Profile::from),
        private,
        counters: counts.into(),
        relation: relations.remove(&id).unwrap_or_default().into(),
        known_followers,
        profiles: cards.of.into(),
    };
    Ok(Response::json(200, &body).degraded(without_counts || without_list || cards.degraded))
}
