//! Bodies of `/v1/health`.

use serde::Serialize;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "status": "ok", "redis": "ok", "dynamodb": "ok", "sqs": "ok" })))]
pub struct Health {
    pub status: HealthStatus,
    pub redis: StoreStatus,
    pub dynamodb: StoreStatus,
    pub sqs: StoreStatus,
}

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
