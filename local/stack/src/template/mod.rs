//! `template.yaml`, read and resolved into the resources that this stack runs.
//!
//! The template is the only description of the system: this module knows no table, queue or route by name. It skips
//! resources that have no local counterpart (alarms, roles, dashboards), but checks their references.

mod cors;
mod events;
mod live;
mod parameters;
mod resources;
mod values;

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde_json::{Map, Value};

pub use cors::Cors;
pub use events::{Event, EventSource, HttpRoute, ScheduleSource, SqsSource, StreamSource};
pub use resources::{Index, Queue, Redrive, Table};

use values::{Scope, normalise, scalar};

/// The account in all local ARNs.
pub(crate) const ACCOUNT: &str = "000000000000";
/// The region in all local ARNs.
pub(crate) const REGION: &str = "us-east-1";

/// Values of the machine for which the template is resolved.
#[derive(Clone, Debug)]
pub struct Bindings {
    /// The address of the queue endpoint, without a trailing slash. Queue URLs begin with it.
    pub sqs_endpoint: String,
    /// Values of template parameters. They override the defaults.
    pub parameters: BTreeMap<String, String>,
}

impl Default for Bindings {
    fn default() -> Self {
        Self { sqs_endpoint: "http://127.0.0.1:9324".to_owned(), parameters: BTreeMap::new() }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Template {
    /// The values of the parameters, by name.
    pub parameters: BTreeMap<String, String>,
    pub functions: BTreeMap<String, Function>,
    pub tables: BTreeMap<String, Table>,
    pub queues: BTreeMap<String, Queue>,
    /// The functions of the WebSocket API's routes, by route key.
    pub live: BTreeMap<String, String>,
    /// The `CorsConfiguration` of the HTTP API.
    pub cors: Option<Cors>,
}

/// One `AWS::Serverless::Function`.
#[derive(Clone, Debug)]
pub struct Function {
    pub logical_id: String,
    /// The binary's name, from `Metadata.BuildProperties.Binary`. It also names the function in the local stack's
    /// API.
    pub binary: String,
    /// The time limit of an invocation.
    pub timeout_seconds: u64,
    /// The declared memory in MiB. The stack only passes it on.
    pub memory_mib: u64,
    /// The environment, merged with the environment of `Globals`.
    pub environment: BTreeMap<String, String>,
    pub events: Vec<Event>,
}

/// Converts the text of a template to JSON without resolving it. Every `!Tag x` becomes `{"Fn::Tag": x}`. Tests use
/// it for resources that this stack does not run.
///
/// # Errors
/// Fails if the text is not YAML.
pub fn document(text: &str) -> Result<Value> {
    normalise(serde_yaml_ng::from_str(text).context("the template is not YAML")?)
}

impl Function {
    /// The ARN of the function.
    #[must_use]
    pub fn arn(&self) -> String {
        format!("arn:aws:lambda:{REGION}:{ACCOUNT}:function:{}", self.binary)
    }
}

impl Template {
    /// Reads and resolves the template at `path`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, and under the conditions of [`Template::parse`].
    pub fn load(path: &Path, bindings: &Bindings) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the template {}", path.display()))?;
        Self::parse(&text, bindings).with_context(|| format!("template {}", path.display()))
    }

    /// Resolves the text of a template.
    ///
    /// # Errors
    /// Fails if the text is not YAML, or if a resource refers to something that does not exist. The error names the
    /// resource.
    pub fn parse(text: &str, bindings: &Bindings) -> Result<Self> {
        let root = document(text)?;
        let resources = section(&root, "Resources")?;
        ensure!(!resources.is_empty(), "the template has no `Resources` section");

        let mut scope = Scope {
            parameters: parameters::read(&root, bindings)?,
            mappings: root.get("Mappings").cloned().unwrap_or_default(),
            conditions: section(&root, "Conditions")?,
            attributes: BTreeMap::new(),
            resources: resources.iter().map(|(id, body)| (id.clone(), kind(body).starts_with("AWS::Serverless::"))).collect(),
            region: REGION.to_owned(),
            account: ACCOUNT.to_owned(),
        };
        for (id, body) in &resources {
            resources::describe(id, body, &bindings.sqs_endpoint, &mut scope).with_context(|| format!("resource `{id}`"))?;
        }

        let globals = evaluate(&scope, &root.get("Globals").cloned().unwrap_or_default()).context("section `Globals`")?;
        let mut template = Self {
            parameters: scope.parameters.iter().map(|(name, value)| Ok((name.clone(), scalar(value)?))).collect::<Result<_>>()?,
            ..Self::default()
        };
        let mut functions = Vec::new();
        for (id, body) in &resources {
            let named = || format!("resource `{id}`");
            let Some(body) = resolve(&scope, body).with_context(named)? else { continue };
            match kind(&body) {
                "AWS::Serverless::Function" => functions.push((id.clone(), body)),
                "AWS::DynamoDB::Table" => {
                    template.tables.insert(id.clone(), Table::read(id, &body).with_context(named)?);
                }
                "AWS::SQS::Queue" => {
                    template.queues.insert(id.clone(), Queue::read(id, &body, &scope).with_context(named)?);
                }
                "AWS::Serverless::HttpApi" => template.cors = Cors::read(&body).with_context(named)?,
                other => tracing::debug!(resource = %id, kind = other, "has no local counterpart"),
            }
        }
        template.check_redrives()?;
        let apis = events::apis(&resources, &scope)?;
        for (id, body) in functions {
            let function = read_function(&id, &body, &globals, &apis, &template).with_context(|| format!("resource `{id}`"))?;
            if let Some(other) = template.functions.values().find(|other| other.binary == function.binary) {
                bail!("resource `{id}`: the binary `{}` already belongs to `{}`", function.binary, other.logical_id);
            }
            template.functions.insert(id, function);
        }
        template.live = live::routes(&resources, &scope, &template.functions)?;
        evaluate(&scope, &root.get("Outputs").cloned().unwrap_or_default()).context("section `Outputs`")?;
        Ok(template)
    }

    /// Finds a function by binary name or logical id.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.get(name).or_else(|| self.functions.values().find(|function| function.binary == name))
    }

    fn check_redrives(&self) -> Result<()> {
        for queue in self.queues.values() {
            if let Some(redrive) = &queue.redrive
                && !self.queues.values().any(|target| target.name == redrive.target)
            {
                bail!("resource `{}`: its dead-letter queue `{}` does not exist", queue.logical_id, redrive.target);
            }
        }
        Ok(())
    }
}

fn read_function(id: &str, body: &Value, globals: &Value, apis: &events::Apis, template: &Template) -> Result<Function> {
    let binary = body
        .pointer("/Metadata/BuildProperties/Binary")
        .and_then(Value::as_str)
        .ok_or_else(|| anyhow!("`Metadata.BuildProperties.Binary` must name the function's binary"))?;
    let none = Value::Null;
    let defaults = globals.get("Function").unwrap_or(&none);
    let properties = body.get("Properties").unwrap_or(&none);
    let number = |name, fallback| events::number(properties.get(name).or_else(|| defaults.get(name)), name, fallback);
    let mut environment = BTreeMap::new();
    for layer in [defaults, properties] {
        for (name, value) in layer.pointer("/Environment/Variables").and_then(Value::as_object).into_iter().flatten() {
            environment.insert(name.clone(), scalar(value).with_context(|| format!("environment variable `{name}`"))?);
        }
    }
    let mut sources = Vec::new();
    for (name, event) in properties.get("Events").and_then(Value::as_object).into_iter().flatten() {
        sources.extend(events::read(name, event, apis, template).with_context(|| format!("event `{name}`"))?);
    }
    Ok(Function {
        logical_id: id.to_owned(),
        binary: binary.to_owned(),
        timeout_seconds: number("Timeout", 3)?,
        memory_mib: number("MemorySize", 128)?,
        environment,
        events: sources,
    })
}

/// Evaluates a resource. Returns `None` if its condition is false.
fn resolve(scope: &Scope, body: &Value) -> Result<Option<Value>> {
    match body.get("Condition").and_then(Value::as_str) {
        Some(condition) if !scope.condition(condition)? => Ok(None),
        _ => evaluate(scope, body).map(Some),
    }
}

fn evaluate(scope: &Scope, value: &Value) -> Result<Value> {
    Ok(scope.evaluate(value)?.unwrap_or_default())
}

fn kind(body: &Value) -> &str {
    body.get("Type").and_then(Value::as_str).unwrap_or_default()
}

fn section(root: &Value, name: &str) -> Result<Map<String, Value>> {
    match root.get(name) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map.clone()),
        Some(_) => bail!("section `{name}` must be a mapping"),
    }
}

#[cfg(test)]
mod tests;
