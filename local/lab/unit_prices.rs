//! On-demand prices of DynamoDB in us-east-1, in US dollars (docs/scale.md names the page).

/// A read unit.
pub(crate) const READ_UNIT: f64 = 0.125 / 1e6;
/// A write unit.
pub(crate) const WRITE_UNIT: f64 = 0.625 / 1e6;
