//! The local stack: everything `template.yaml` declares, on one machine, without a cloud or a container.
//!
//! The template is read and embodied: its tables and streams by an embedded DynamoDB, its queues by an SQS
//! endpoint with a journal, its routes by a gateway that speaks API Gateway's event format, its event sources by pollers with Lambda's
//! semantics. Functions run in this process through the `handle` their own `main.rs` uses, or as the deployed binaries behind an
//! emulated Lambda Runtime API. What runs here is what deploys, and a mistake in the template fails here first.
//!
//! | module | embodies |
//! |---|---|
//! | [`template`] | the template, resolved and typed |
//! | `dynamodb` | `AWS::DynamoDB::Table`, streams, expiry |
//! | `sqs` | `AWS::SQS::Queue`, dead letters |
//! | `redis` | ElastiCache |
//! | `gateway` | `AWS::Serverless::HttpApi`, `/_local/…`, the page at `/` |
//! | `pollers` | event source mappings and schedules |
//! | `runner` | Lambda itself |
//! | `weather` | what makes the real services less kind than these; faults that tests ask for |
//! | `stack` | all of it: [`Stack`] |

mod clock;
mod core;
mod data_dir;
mod dynamodb;
mod gateway;
mod http_server;
mod options;
mod pollers;
mod redis;
mod runner;
pub mod schedule;
mod sqs;
mod stack;
mod stop;
mod store;
pub mod template;
mod weather;

pub use crate::{
    core::{Behind, FunctionStatus, Status},
    options::Options,
    redis::{ClusterSetup, Redis, RedisData, RedisSetup},
    sqs::Counts,
    stack::Stack,
    weather::{Callback, Fault, FaultAction, Faults, OpenRequests, Planted, Weather},
};
