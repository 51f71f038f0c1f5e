//! [`StoreError`]: the one error of all stores.

use std::{error::Error, fmt};

/// The underlying error of an adapter.
pub type Source = Box<dyn Error + Send + Sync>;

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// DynamoDB, which holds the facts.
    Facts,
    /// Redis, which holds the views.
    Views,
    /// SQS, which holds tasks.
    Queue,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Facts => "fact store",
            Self::Views => "view store",
            Self::Queue => "task queue",
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store is unreachable, throttles requests, or did not respond in time. A write may have been done.
    #[error("the {store} is unavailable ({operation})")]
    Unavailable { store: Store, operation: &'static str, source: Source },
    /// Concurrent writes kept changing the same items. A change may be done, or some of its transactions.
    #[error("too many concurrent changes of the same items ({operation})")]
    Contention { operation: &'static str },
    /// The same, but a read after the last write has shown that nothing is done.
    #[error("too many concurrent changes of the same items, nothing is done ({operation})")]
    Undone { operation: &'static str },
    /// An item of a table, with its key as text, cannot be decoded. A retry does not help.
    #[error("damaged item in {table}: {detail}")]
    DamagedItem { table: &'static str, key: String, detail: String },
    /// A view cannot be decoded, or Redis returned a value of another type. A retry does not help, but a rebuild does.
    #[error("damaged view: {detail}")]
    DamagedView { detail: String },
}

impl StoreError {
    /// The error of a change that is known not to be done, if its cause is contention.
    #[must_use]
    pub fn undone(self) -> Self {
        match self {
            Self::Contention { operation } => Self::Undone { operation },
            error => error,
        }
    }

    /// Returns the store that failed. Contention counts as an error of the fact store.
    pub fn store(&self) -> Store {
        match self {
            Self::Unavailable { store, .. } => *store,
            Self::Contention { .. } | Self::Undone { .. } | Self::DamagedItem { .. } => Store::Facts,
            Self::DamagedView { .. } => Store::Views,
        }
    }

    /// The name of the error that operators see. It does not change.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "StoreUnavailable",
            Self::Contention { .. } | Self::Undone { .. } => "Contention",
            Self::DamagedItem { .. } => "DamagedItem",
            Self::DamagedView { .. } => "DamagedView",
        }
    }

    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Contention { .. } | Self::Undone { .. } => true,
            Self::DamagedItem { .. } | Self::DamagedView { .. } => false,
        }
    }

    /// Returns whether a store did not respond, in contrast to an unexpected response.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}
