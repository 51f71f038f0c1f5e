//! `template.yaml`, read and resolved into the resources that this stack runs.
//!
//! The template is the only description of the system: this module knows no table, queue or route by name. It skips
//! resources that have no local counterpart (alarms, roles, dashboards), but checks their references.

mod events;
mod parameters;
mod resources;
mod values;

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

pub use events::{Event, EventSource, HttpRoute, ScheduleSource, SqsSource, StreamSource};
pub use resources::{Cors, Index, Queue, Redrive, Table};

use values::{Scope, long_forms, scalar};

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
    pub cors: Option<Cors>,
}

/// One `AWS::Serverless::Function`.
#[derive(Clone, Debug)]
pub struct Function {
    pub logical_id: String,
    /// From `Metadata.BuildProperties.Binary`. It also names the function in the local stack's API.
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
pub fn document(text: &str) -> Result<Value> {
    let yaml: serde_yaml_ng::Value = serde_yaml_ng::from_str(text).context("the template is not YAML")?;
    Ok(long_forms(serde_json::to_value(yaml)?))
}

impl Function {
    pub fn arn(&self) -> String {
        format!("arn:aws:lambda:{REGION}:{ACCOUNT}:function:{}", self.binary)
    }

    fn read(id: &str, body: &Value, defaults: &Value, apis: &events::Apis, template: &Template) -> Result<Self> {
        let binary = body["Metadata"]["BuildProperties"]["Binary"].as_str();
        let binary = binary.context("`Metadata.BuildProperties.Binary` must name the function's binary")?;
        let properties = &body["Properties"];
        let number =
            |name: &str| -> Result<Option<u64>> { Ok(events::number(properties, name)?.or(events::number(defaults, name)?)) };
        let mut environment = BTreeMap::new();
        for layer in [defaults, properties] {
            for (name, value) in layer["Environment"]["Variables"].as_object().into_iter().flatten() {
                environment.insert(name.clone(), scalar(value).with_context(|| format!("environment variable `{name}`"))?);
            }
        }
        let mut sources = Vec::new();
        for (name, event) in properties["Events"].as_object().into_iter().flatten() {
            sources.extend(events::read(name, event, apis, template).with_context(|| format!("event `{name}`"))?);
        }
        Ok(Self {
            logical_id: id.to_owned(),
            binary: binary.to_owned(),
            timeout_seconds: number("Timeout")?.unwrap_or(3),
            memory_mib: number("MemorySize")?.unwrap_or(128),
            environment,
            events: sources,
        })
    }
}

impl Template {
    /// Reads and resolves the template at `path`.
    pub fn load(path: &Path, bindings: &Bindings) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the template {}", path.display()))?;
        Self::parse(&text, bindings).with_context(|| format!("template {}", path.display()))
    }

    /// Resolves the text of a template. Fails if a resource refers to something that does not exist, and names it.
    pub fn parse(text: &str, bindings: &Bindings) -> Result<Self> {
        let root = document(text)?;
        let declared = root["Resources"].as_object().filter(|declared| !declared.is_empty());
        let declared = declared.context("the template has no `Resources` section")?;
        for name in ["Parameters", "Conditions"] {
            ensure!(root[name].is_null() || root[name].is_object(), "section `{name}` must be a mapping");
        }
        let mut scope = Scope {
            parameters: parameters::read(&root["Parameters"], bindings)?,
            conditions: root["Conditions"].clone(),
            attributes: BTreeMap::new(),
            resources: declared.iter().map(|(id, body)| (id.clone(), kind(body).starts_with("AWS::Serverless::"))).collect(),
        };
        for (id, body) in declared {
            resources::describe(id, body, &bindings.sqs_endpoint, &mut scope).with_context(|| format!("resource `{id}`"))?;
        }

        let globals = scope.value(&root["Globals"]).context("section `Globals`")?;
        let mut resources = Resources::default();
        for (id, body) in declared {
            if let Some(body) = scope.resource(body).with_context(|| format!("resource `{id}`"))? {
                resources.0.insert(id, body);
            }
        }
        let mut template = Self {
            parameters: scope.parameters.iter().map(|(name, value)| Ok((name.clone(), scalar(value)?))).collect::<Result<_>>()?,
            tables: resources.read("AWS::DynamoDB::Table", Table::read)?,
            queues: resources.read("AWS::SQS::Queue", |id, body| Queue::read(id, body, &scope))?,
            cors: resources.read("AWS::Serverless::HttpApi", |_, api| Cors::read(api))?.into_values().next_back().flatten(),
            ..Self::default()
        };
        template.check_redrives()?;
        let apis = resources.read("AWS::Serverless::HttpApi", |_, api| events::default_scopes(api))?;
        let defaults = &globals["Function"];
        let function = |id: &str, body: &Value| Function::read(id, body, defaults, &apis, &template);
        template.functions = resources.read("AWS::Serverless::Function", function)?;
        let mut owners = BTreeMap::new();
        for Function { logical_id, binary, .. } in template.functions.values() {
            if let Some(other) = owners.insert(binary, logical_id) {
                bail!("resource `{logical_id}`: the binary `{binary}` already belongs to `{other}`");
            }
        }
        let routes = resources.read("AWS::ApiGatewayV2::Route", |_, route| resources.live_route(route, &template.functions))?;
        template.live = routes.into_values().collect();
        scope.value(&root["Outputs"]).context("section `Outputs`")?;
        Ok(template)
    }

    /// Finds a function by binary name or logical id.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.get(name).or_else(|| self.functions.values().find(|function| function.binary == name))
    }

    /// The event sources of all functions.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&Function, &EventSource)> {
        self.functions.values().flat_map(|function| function.events.iter().map(move |event| (function, &event.source)))
    }

    fn check_redrives(&self) -> Result<()> {
        for queue in self.queues.values() {
            if let Some(redrive) = &queue.redrive {
                let exists = self.queues.values().any(|target| target.name == redrive.target);
                ensure!(exists, "resource `{}`: its dead-letter queue `{}` does not exist", queue.logical_id, redrive.target);
            }
        }
        Ok(())
    }
}

/// The evaluated resources whose conditions are true, by logical id.
#[derive(Default)]
struct Resources<'a>(BTreeMap<&'a str, Value>);

impl Resources<'_> {
    fn read<T>(&self, of: &str, read: impl Fn(&str, &Value) -> Result<T>) -> Result<BTreeMap<String, T>> {
        let chosen = self.0.iter().filter(|(_, body)| kind(body) == of);
        chosen.map(|(id, body)| Ok(((*id).to_owned(), read(id, body).with_context(|| format!("resource `{id}`"))?))).collect()
    }

    /// The key and the function of a route: it names an integration, whose address names the function.
    fn live_route(&self, route: &Value, functions: &BTreeMap<String, Function>) -> Result<(String, String)> {
        let (key, target) = (text(route, "RouteKey")?, text(route, "Target")?);
        let integration = target.strip_prefix("integrations/").and_then(|name| self.0.get(name));
        let integration = integration.with_context(|| format!("its target `{target}` does not exist"))?;
        let address = text(integration, "IntegrationUri")?;
        let function = functions.keys().find(|function| address.contains(&format!("/{function}.Alias/")));
        let function = function.with_context(|| format!("no function has the address `{address}`"))?;
        Ok((key.to_owned(), function.clone()))
    }
}

fn text<'a>(body: &'a Value, property: &str) -> Result<&'a str> {
    body["Properties"][property].as_str().with_context(|| format!("`{property}` is missing"))
}

fn kind(body: &Value) -> &str {
    body["Type"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
