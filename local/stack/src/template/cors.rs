//! The `CorsConfiguration` of the HTTP API.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

/// The CORS configuration of the API.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Cors {
    /// Origins, or `*`.
    pub allow_origins: Vec<String>,
    pub allow_methods: Vec<String>,
    pub allow_headers: Vec<String>,
    /// Headers of responses that a page may read.
    pub expose_headers: Vec<String>,
    /// The time that a browser may keep the response to a preflight request, in seconds.
    pub max_age: u64,
}

impl Cors {
    pub(super) fn read(api: &Value) -> Result<Option<Self>> {
        let body = api.pointer("/Properties/CorsConfiguration").filter(|body| !body.is_null());
        body.map(|body| serde_json::from_value(body.clone()).context("`CorsConfiguration`")).transpose()
    }
}
