//! Bodies of `/v1/health`.

use serde::Serialize;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "status": "ok", "redis": "ok", "dynamodb": "ok", "sqs": "ok" })))]
pub struct Health {
    #[schema(inline)]
    pub status: HealthStatus,
    #[schema(inline)]
    pub redis: StoreStatus,
    #[schema(inline)]
    pub dynamodb: StoreStatus,
    #[schema(inline)]
    pub sqs: StoreStatus,
}

// The two are inline in the document: both have `ok`, and in Go the values of all named enumerations share a namespace.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HealthStatus {
    Ok,
    Degraded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreStatus {
    Ok,
    Down,
}
