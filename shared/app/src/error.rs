//! The one error of the stores.

use std::{error::Error, fmt};

/// The error beneath an adapter's.
pub type Source = Box<dyn Error + Send + Sync>;

/// Which store an error is about.
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

/// A store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store is unreachable, throttles, or did not respond in time. A write may have happened.
    #[error("the {store} is unavailable ({operation})")]
    Unavailable {
        /// The store.
        store: Store,
        /// The operation that failed.
        operation: &'static str,
        /// The client's own error.
        #[source]
        source: Source,
    },
    /// Concurrent writes kept changing the same items. Nothing was written.
    #[error("too many concurrent changes of the same items ({operation})")]
    Contention {
        /// The operation that gave up.
        operation: &'static str,
    },
    /// An item of a table cannot be decoded. Repeating does not help.
    #[error("damaged item in {table}: {detail}")]
    DamagedItem {
        /// The table.
        table: &'static str,
        /// The item's key, as text.
        key: String,
        /// What is wrong.
        detail: String,
    },
    /// A view cannot be decoded, or Redis returned a value of another shape. Repeating does not help; a rebuild does.
    #[error("damaged view: {detail}")]
    DamagedView {
        /// What is wrong.
        detail: String,
    },
}

impl StoreError {
    /// The store it is about. Contention is met in facts alone.
    pub fn store(&self) -> Store {
        match self {
            Self::Unavailable { store, .. } => *store,
            Self::Contention { .. } | Self::DamagedItem { .. } => Store::Facts,
            Self::DamagedView { .. } => Store::Views,
        }
    }

    /// Whether a later attempt may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Contention { .. } => true,
            Self::DamagedItem { .. } | Self::DamagedView { .. } => false,
        }
    }

    /// Whether a store did not respond, as opposed to having responded with something unexpected.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}
