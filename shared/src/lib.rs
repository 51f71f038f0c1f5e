//! Tidemark: edges between users, their posts, and the read state of every reader.
//!
//! This crate assembles the [`App`] from its layers. The functions use it. A layer depends only on layers to its left:
//!
//! ```text
//! domain <- facts (DynamoDB), views (Redis), queue (SQS, EventBridge) <- app (use cases) <- http <- this crate <-
//! functions
//! ```

mod app;
mod failure;
mod settings;
mod tasks;
pub mod telemetry;
mod traces;

pub use app::{App, StartError, SystemClock, aws_config, run};
pub use failure::Failure;
pub use settings::{AuthorizerSettings, AwsOverrides, LegacySettings, SenderSettings, Settings, SettingsError, UserIds};
pub use tasks::run_tasks;
pub use tidemark_app::{
    Clock, CommentsPage, Denied, ErasedCallers, Hide, Hiding, MarkForm, Membership, PendingEvent, Place, PostChange, Price,
    Recorder, Reposting, Stores, Withdrawn, fan_out, metrics, notices, once, outage, project, reader, relations,
};
pub use tidemark_domain as domain;
pub use tidemark_facts as facts;
pub use tidemark_http as http;
pub use tidemark_queue as queue;
pub use tidemark_views as views;
