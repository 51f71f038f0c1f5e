//! One attempt at a bundle: the node for it, and what follows from the response.

use redis::{ServerErrorKind, Value};

use super::unavailable;
use crate::{
    LinkError, Result,
    bundle::{Bundle, Reply},
    epoch::Epoch,
    error::{is_unknown_function, link_error, server_error},
    topology::Address,
};

/// The node for the next attempt of a bundle.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// The node that the map names.
    Map,
    /// The primary that the map names, after a replica failed.
    Primary,
    /// The node that a `MOVED` redirection names.
    Moved(Address),
    /// The node that an `ASK` redirection names, for one attempt.
    Ask(Address),
}

/// The final responses, by the index of the bundle.
pub(super) type Responses = Vec<Option<Result<Reply>>>;

/// A bundle without a response yet.
pub(super) struct Open {
    pub(super) index: usize,
    pub(super) slot: Option<u16>,
    pub(super) bundle: Bundle,
    pub(super) way: Way,
    /// The node that did not respond, and its error.
    pub(super) failed: Option<(Address, LinkError)>,
}

impl Open {
    /// Makes no other attempt. The response is the error of the node that did not respond, or one with this `detail`.
    pub(super) fn give_up(self, operation: &'static str, detail: &str, responses: &mut Responses) {
        let error = self.failed.map_or_else(|| unavailable(operation, detail), |(_, error)| error);
        responses[self.index] = Some(Err(error));
    }
}

/// The role of a node in a round trip.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Primary,
    /// The epoch is that of its primary.
    Replica(Epoch),
    Importing,
}

impl Role {
    pub(super) fn is_replica(self) -> bool {
        matches!(self, Self::Replica(_))
    }
}

/// The result of one attempt at a bundle.
pub(super) enum Outcome {
    Done(Result<Reply>),
    Again { way: Way, refresh: bool, pause: bool, failed: Option<LinkError> },
}

impl Outcome {
    /// Decides the next step after the response to one bundle.
    pub(super) fn of(operation: &'static str, reply: Reply, way: &Way, role: Role, address: &Address) -> Self {
        let again = |way, refresh, pause| Self::Again { way, refresh, pause, failed: None };
        let Some(error) = reply.values.iter().find(|response| matches!(response, Value::ServerError(_))) else {
            return Self::Done(Ok(reply));
        };
        let named = || {
            let error = error.clone().extract_error().err()?;
            Address::of_redirect(error.redirect_node()?.0, &address.host)
        };
        match server_error(error) {
            _ if is_unknown_function(error) => again(way.clone(), false, false),
            Some(_) if role.is_replica() => again(Way::Primary, true, false),
            Some(ServerErrorKind::Moved) => again(named().map_or(Way::Map, Way::Moved), true, false),
            Some(ServerErrorKind::Ask) => again(named().map_or(Way::Map, Way::Ask), false, false),
            Some(ServerErrorKind::TryAgain) => again(Way::Map, false, true),
            Some(ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown) => again(Way::Map, true, true),
            _ => {
                let error = error.clone().extract_error().err();
                let error = error.map_or_else(|| unavailable(operation, "an empty error"), |error| link_error(operation, error));
                Self::Done(Err(error))
            }
        }
    }
}
