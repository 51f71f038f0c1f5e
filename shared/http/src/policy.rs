//! [`Policy`]: what a route asks of a request before its handler runs. Every entry of [`routes!`](crate::routes!) has
//! one. The check of requests and the document follow from it.

use tidemark_app::ErasedCallers;
use tidemark_domain::Budget;

/// The conditions of a route. Without more words, callers who have asked to leave are refused, and the handler waits
/// for the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Policy {
    /// The bucket from which a request is taken; `None` if the route needs no identity and has no limit.
    pub budget: Option<Budget>,
    pub(crate) erased: ErasedCallers,
    pub(crate) scope: Option<&'static str>,
    pub(crate) own_view: bool,
}

impl Policy {
    /// Anybody may call.
    pub const OPEN: Self = Self { budget: None, erased: ErasedCallers::Refused, scope: None, own_view: false };

    pub const fn takes(budget: Budget) -> Self {
        Self { budget: Some(budget), ..Self::OPEN }
    }

    /// Lets callers in who have asked to leave.
    pub const fn of_erased(self) -> Self {
        Self { erased: ErasedCallers::Allowed, ..self }
    }

    /// The token of the caller must have this scope.
    pub const fn scope(self, scope: &'static str) -> Self {
        Self { scope: Some(scope), ..self }
    }

    /// The handler begins with a trip to Redis that reads the caller's own view. The check of the limit shares that
    /// trip: both go to the same node, and the check comes first. Other handlers may read facts at once.
    pub const fn begins_with_own_view(self) -> Self {
        Self { own_view: true, ..self }
    }
}
