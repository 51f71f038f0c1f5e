//! Pages of a list: `?limit=` and `?cursor=` in, `next_cursor` and a `Link` header out.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;

use super::{
    Problem, Request, Response,
    bodies::{FirstCursor, NextCursor},
};
use tidemark_domain::{Cursor, Relation};

const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 100;

#[derive(Debug, Clone)]
pub struct Page {
    /// From 1 to 100; 20 if the request has no `limit`.
    pub limit: usize,
    /// The end of the previous page; `None` for the first page.
    pub cursor: Option<Cursor>,
    /// The list has only what is newer than this, the beginning of an earlier first page.
    pub since: Option<Cursor>,
}

impl Page {
    /// Reads the query parameters; 400 if the limit is not 1…100 or a place is not a cursor.
    pub fn of(request: &Request) -> Result<Self, Problem> {
        let limit = match request.query("limit") {
            None => DEFAULT_LIMIT,
            Some(text) => tidemark_domain::ids::parse_decimal(text)
                .and_then(|limit| usize::try_from(limit).ok())
                .filter(|limit| (1..=MAX_LIMIT).contains(limit))
                .ok_or_else(|| Problem::invalid("limit", format!("must be 1 to {MAX_LIMIT}")))?,
        };
        let place = |name| request.query(name).map(|text| decode(text).ok_or_else(|| not_of(name))).transpose();
        Ok(Self { limit, cursor: place("cursor")?, since: place("since")? })
    }

    /// Cuts the rest of a list at the end of the page. Returns the last item of the page if there are more.
    pub fn cut<T: Clone>(&self, items: &mut Vec<T>) -> Option<T> {
        tidemark_app::cut(items, self.limit)
    }

    /// The beginning of a first page.
    pub fn first(cursor: &Cursor) -> FirstCursor {
        FirstCursor(URL_SAFE_NO_PAD.encode(cursor.to_bytes()))
    }

    /// A response with a page, which `body` makes of the cursor, and with a `Link` header.
    pub fn response<T: Serialize>(request: &Request, next: Option<Cursor>, body: impl FnOnce(NextCursor) -> T) -> Response {
        let cursor = next.map(|cursor| URL_SAFE_NO_PAD.encode(cursor.to_bytes()));
        let response = Response::json(200, &body(NextCursor(cursor.clone())));
        let Some(cursor) = cursor else { return response };
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(request.query_pairs().iter().filter(|(name, _)| name != "cursor" && name != "offset"));
        let query = query.append_pair("cursor", &cursor).finish();
        response.header("link", &format!("<{}?{query}>; rel=\"next\"", request.path()))
    }

    /// The position in a list of this kind; `None` on the first page, 400 if the cursor is of another list.
    pub fn position<T>(&self, of_kind: impl FnOnce(Cursor) -> Option<T>) -> Result<Option<T>, Problem> {
        self.cursor.clone().map(|cursor| of_kind(cursor).ok_or_else(|| not_of("cursor"))).transpose()
    }

    /// The same for the place above which the list ends.
    pub fn end<T>(&self, of_kind: impl FnOnce(Cursor) -> Option<T>) -> Result<Option<T>, Problem> {
        self.since.clone().map(|cursor| of_kind(cursor).ok_or_else(|| not_of("since"))).transpose()
    }

    pub fn below_relation(&self) -> Result<Option<Relation>, Problem> {
        self.position(|cursor| if let Cursor::Relation(relation) = cursor { Some(relation) } else { None })
    }
}

fn not_of(field: &str) -> Problem {
    Problem::invalid(field, "is not a cursor of this list")
}

fn decode(text: &str) -> Option<Cursor> {
    Cursor::from_bytes(&URL_SAFE_NO_PAD.decode(text).ok()?)
}
