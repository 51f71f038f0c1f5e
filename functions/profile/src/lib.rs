//! Profiles, handles, and users who leave.
//!
//! A profile is a fact, and so is the user who has a handle. The card, the part of a profile that pages show, is a
//! view. The function replaces it before the response.

mod leaving;
mod users;

use tidemark::{
    App,
    http::{Budget, Kind, Policy, bodies::*, operation, routes},
};

routes!(|app: &App, request| [
    (
        "GET /v1/me",
        Policy::takes(Budget::Reads),
        users::me(app, &request),
        operation("users", "getMe", "Get the caller's user id, profile and privacy").returns::<Me>("The caller."),
    ),
    (
        "DELETE /v1/me",
        Policy::takes(Budget::Posts).of_erased(),
        leaving::erase(app, &request),
        operation("users", "eraseMe", "Erase the caller")
            .describe("It takes a while. From now on, other calls of the caller return 403 `erased`. The user id stays erased.")
            .accepted::<Erasure>("The erasure runs, or is done."),
    ),
    (
        "GET /v1/me/erasure",
        Policy::takes(Budget::Reads).of_erased(),
        leaving::receipt(app, &request),
        operation("users", "getErasure", "Get the state of the caller's erasure")
            .returns::<Erasure>("The receipt.")
            .responds("404", "NotFound"),
    ),
    (
        "GET /v1/me/export",
        Policy::takes(Budget::Reads),
        leaving::export(app, &request),
        operation("users", "exportMe", "Export everything that is stored about the caller")
            .describe("Pages of objects. `kind` says what an object is. What changes during the export may be old or new.")
            .returns::<ExportPage>("One page.")
            .page(),
    ),
    (
        "PUT /v1/me/profile",
        Policy::takes(Budget::Posts),
        users::set(app, &request),
        operation("users", "setProfile", "Replace the caller's profile")
            .describe("Others see the change within five seconds.")
            .accepts::<ProfileRequest>()
            .returns::<Profile>("The profile after the change.")
            .refuses(Kind::HandleTaken, "another user has the handle, or gave it up less than 30 days ago; nothing has changed"),
    ),
    (
        "PUT /v1/me/privacy",
        Policy::takes(Budget::Posts),
        users::set_privacy(app, &request),
        operation("users", "setPrivacy", "Make the caller private or public")
            .describe(
                "Only accepted followers see the posts of a private author; followers stay. An author who becomes public leaves \
                the requests to be answered."
            )
            .accepts::<PrivacyRequest>()
            .returns::<Privacy>("As requested. No later request shows a post of a private caller to a stranger."),
    ),
    (
        "GET /v1/users/{user}",
        Policy::takes(Budget::Reads),
        users::one(app, &request),
        operation("users", "getUser", "Get a user's profile, counters and relation to the caller")
            .returns::<User>("The user. A user who is unknown has no profile and zeros."),
    ),
    (
        "GET /v1/users",
        Policy::takes(Budget::Reads),
        users::many(app, &request),
        operation("users", "listUsers", "Get the profiles of up to 100 users")
            .returns::<Users>("One item for each user, in the order of the request.")
            .parameters(["users"]),
    ),
    (
        "GET /v1/handles/{handle}",
        Policy::takes(Budget::Reads),
        users::by_handle(app, &request),
        operation("users", "getUserByHandle", "Get the user who has a handle")
            .returns::<User>("The user.")
            .responds("404", "NotFound"),
    ),
]);
