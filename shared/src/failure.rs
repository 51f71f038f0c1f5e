//! Failed invocations, as Lambda shows them.

use std::{error::Error, fmt};

use lambda_runtime::Diagnostic;
use tidemark_domain::StoreError;

/// The error of an invocation. Lambda returns its kind as `errorType`, and its text as `errorMessage`.
#[derive(Debug)]
pub struct Failure {
    kind: &'static str,
    source: Box<dyn Error + Send + Sync>,
}

impl Failure {
    /// `kind` is a name that does not change, such as `InvalidEvent`. Operators and alarms may rely on it.
    pub fn new(kind: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: source.into() }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(error.kind(), error)
    }
}

impl From<Failure> for Diagnostic {
    fn from(failure: Failure) -> Self {
        Self { error_type: failure.kind.to_owned(), error_message: failure.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}
