//! The facts of a stack: the running local one, or a deployed one.

use anyhow::Context;
use aws_config::BehaviorVersion;
use aws_sdk_dynamodb::{Client, config::Credentials};
use serde::Deserialize;
use tidemark_facts::{Facts, Limits, Tables};
use tidemark_tools::{StackArgs, api::Call};

/// The tables of a deployed stack and its parameters, by their names in the template. `local/transfer/stack.py` reads
/// them from CloudFormation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deployed {
    pub region: String,
    pub tables: std::collections::BTreeMap<String, String>,
    pub following_limit: u64,
    pub pull_threshold: u64,
}

/// The parts of `GET /_local/status` that name the facts.
#[derive(Debug, Clone, Deserialize)]
struct Local {
    dynamodb_endpoint: String,
    #[serde(default)]
    parameters: std::collections::BTreeMap<String, String>,
}

/// Returns the facts of the running local stack.
pub async fn local(stack: &StackArgs) -> anyhow::Result<Facts> {
    let api = stack.client().await?;
    let status: Local = serde_json::from_value(api.fetch(Call::get("/_local/status"), 200).await?).context("/_local/status")?;
    let number = |name: &str, otherwise| status.parameters.get(name).and_then(|value| value.parse().ok()).unwrap_or(otherwise);
    let limits = Limits { following: number("FollowingLimit", 500), pull_threshold: number("PullThreshold", 1_000_000) };
    Ok(at(&status.dynamodb_endpoint, limits).await)
}

/// Returns the facts at an endpoint of the local stack, whose tables have the names of the template.
pub async fn at(endpoint: &str, limits: Limits) -> Facts {
    let credentials = Credentials::new("local", "local", None, None, "local");
    let loader = aws_config::defaults(BehaviorVersion::latest()).region("us-east-1").credentials_provider(credentials);
    let client = Client::new(&loader.endpoint_url(endpoint).load().await);
    let Ok(tables) = Tables::named(|variable| Ok::<_, std::convert::Infallible>(in_template(variable)));
    Facts { client, tables, limits }
}

/// Returns the facts of a deployed stack, with the credentials of this shell.
pub async fn deployed(stack: &Deployed) -> anyhow::Result<Facts> {
    let region = aws_config::Region::new(stack.region.clone());
    let client = Client::new(&aws_config::defaults(BehaviorVersion::latest()).region(region).load().await);
    let name = |variable| {
        let name = in_template(variable);
        stack.tables.get(&name).cloned().with_context(|| format!("the stack has no {name}"))
    };
    let limits = Limits { following: stack.following_limit, pull_threshold: stack.pull_threshold };
    Ok(Facts { client, tables: Tables::named(name)?, limits })
}

/// The name in the template of the table that a variable of the environment names: `NoticeReadsTable`.
fn in_template(variable: &str) -> String {
    variable.split('_').map(|word| format!("{}{}", &word[..1], word[1..].to_lowercase())).collect()
}
