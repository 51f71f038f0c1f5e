//! The local stack runs everything that `template.yaml` declares on one machine, without a cloud or a container.
//!
//! It reads the template. An embedded DynamoDB holds the tables and streams. An SQS endpoint with a journal holds the
//! queues. A gateway serves the routes with API Gateway's event format. Pollers serve the event sources with Lambda's
//! semantics. A function runs in this process through the `handle` of its own `main.rs`, or as the deployed binary
//! behind an emulated Lambda Runtime API. A mistake in the template that is deployed fails here first.
//!
//! | module | purpose |
//! |---|---|
//! | [`template`] | the template, resolved and typed |
//! | `dynamodb` | `AWS::DynamoDB::Table`, streams, expiry |
//! | `sqs` | `AWS::SQS::Queue`, dead letters |
//! | `bus` | EventBridge |
//! | `elsewhere` | both in an emulator that is not this stack's |
//! | `redis` | ElastiCache |
//! | `gateway` | `AWS::Serverless::HttpApi`, `/_local/…`, the page at `/` |
//! | `pollers` | event source mappings and schedules |
//! | `runner` | Lambda |
//! | `metrics` | what `GET /_local/metrics` returns |
//! | `weather` | latency, limits and failures of the real services; faults that tests plant |
//! | `stack` | [`Stack`], which starts and stops all of these |

mod bus;
mod clock;
mod connections;
mod core;
mod data_dir;
mod dynamodb;
mod elsewhere;
mod gateway;
mod http_server;
mod lock;
mod metrics;
mod options;
mod pollers;
mod redis;
mod runner;
pub mod schedule;
mod sqs;
mod stack;
mod status;
mod store;
pub mod template;
mod weather;

/// The target of the event that is logged for each request of the API.
pub const REQUESTS: &str = "tidemark_local::requests";
/// The target of the events that tell the state of Redis.
pub const REDIS: &str = "tidemark_local::redis";

pub use crate::{
    options::{Options, redis_server},
    redis::{ClusterSetup, Redis, RedisData, RedisSetup},
    sqs::Counts,
    stack::Stack,
    status::{Behind, FunctionStatus, Status},
    weather::{Callback, Consumption, Fault, FaultAction, Faults, OpenRequests, Planted, Weather},
};
