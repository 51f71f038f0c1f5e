//! The bodies of requests and responses. `openapi.yaml` is generated from them: a comment on a type or a field is its
//! description there.

mod comments;
mod feed;
mod inbox;
mod leaving;
mod notices;
mod operations;
mod people;
mod posts;
mod relations;
mod values;

pub use comments::*;
pub use feed::*;
pub use inbox::*;
pub use leaving::*;
pub use notices::*;
pub use operations::*;
pub use people::*;
pub use posts::*;
pub use relations::*;
pub use values::{FirstCursor, NextCursor, raw};

use crate::{Problem, body::Body};

/// The body of a request, which is read field by field, so that a refusal names the field.
pub trait RequestBody: Sized {
    /// Reads the fields; 400 with the first that is absent or invalid.
    fn read(body: &Body) -> Result<Self, Problem>;
}
