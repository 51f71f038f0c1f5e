//! Evaluates CloudFormation's intrinsic functions as a deployment to a fixed region and account does.
//!
//! First rewrites the YAML short forms (`!Ref`, `!GetAtt`, …) to the long ones, so both spellings take one path.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::{Map, Value, json};
use serde_yaml_ng::Value as Yaml;

/// Stands for `AWS::NoValue` during an evaluation. The parent drops an entry with this value.
const NO_VALUE: &str = "\u{0}AWS::NoValue";

/// Converts parsed YAML to JSON, with `!Tag x` as `{"Fn::Tag": x}`.
pub(super) fn normalise(yaml: Yaml) -> Result<Value> {
    Ok(match yaml {
        Yaml::Null => Value::Null,
        Yaml::Bool(b) => Value::Bool(b),
        Yaml::Number(n) => serde_json::to_value(n)?,
        Yaml::String(s) => Value::String(s),
        Yaml::Sequence(items) => Value::Array(items.into_iter().map(normalise).collect::<Result<_>>()?),
        Yaml::Mapping(entries) => {
            let mut map = Map::new();
            for (key, value) in entries {
                let key = match key {
                    Yaml::String(s) => s,
                    Yaml::Number(n) => n.to_string(),
                    Yaml::Bool(b) => b.to_string(),
                    other => bail!("a mapping key must be a plain string, not {other:?}"),
                };
                map.insert(key, normalise(value)?);
            }
            Value::Object(map)
        }
        Yaml::Tagged(tagged) => {
            let tag = tagged.tag.to_string();
            let tag = tag.trim_start_matches('!');
            let value = normalise(tagged.value)?;
            match tag {
                "Ref" => json!({ "Ref": value }),
                "Condition" => json!({ "Condition": value }),
                name => json!({ format!("Fn::{name}"): value }),
            }
        }
    })
}

/// The names, addresses and ARNs that references of one deployment resolve to.
pub(super) struct Scope {
    /// Parameters by name. Values are strings or lists of strings.
    pub(super) parameters: BTreeMap<String, Value>,
    /// The template's `Mappings`, unevaluated.
    pub(super) mappings: Value,
    /// The template's `Conditions`, unevaluated.
    pub(super) conditions: Map<String, Value>,
    /// Values of `Ref` and `GetAtt` for the resources of this stack, by logical id and attribute (empty for `Ref`).
    pub(super) attributes: BTreeMap<(String, String), String>,
    /// Every logical id, and true if SAM generates further resources from it.
    pub(super) resources: BTreeMap<String, bool>,
    pub(super) region: String,
    pub(super) account: String,
}

impl Scope {
    /// Evaluates every intrinsic function in `value`. `None` means `AWS::NoValue`.
    pub(super) fn evaluate(&self, value: &Value) -> Result<Option<Value>> {
        match value {
            Value::Object(map) => {
                if let Some((name, argument)) = single(map)
                    && (name == "Ref" || name == "Condition" || name.starts_with("Fn::"))
                    && (name != "Condition" || argument.is_string())
                {
                    let result = self.call(name, argument).with_context(|| format!("in {name}"))?;
                    return Ok((result != Value::String(NO_VALUE.to_owned())).then_some(result));
                }
                let mut out = Map::new();
                for (key, item) in map {
                    if let Some(item) = self.evaluate(item)? {
                        out.insert(key.clone(), item);
                    }
                }
                Ok(Some(Value::Object(out)))
            }
            Value::Array(items) => {
                let mut out = Vec::with_capacity(items.len());
                for item in items {
                    out.extend(self.evaluate(item)?);
                }
                Ok(Some(Value::Array(out)))
            }
            other => Ok(Some(other.clone())),
        }
    }

    pub(super) fn condition(&self, name: &str) -> Result<bool> {
        let body = self.conditions.get(name).ok_or_else(|| anyhow!("the template has no condition `{name}`"))?;
        self.truth(body).with_context(|| format!("condition `{name}`"))
    }

    fn truth(&self, value: &Value) -> Result<bool> {
        match self.evaluate(value)? {
            Some(Value::Bool(b)) => Ok(b),
            Some(Value::String(s)) if s == "true" => Ok(true),
            Some(Value::String(s)) if s == "false" => Ok(false),
            other => bail!("expected a condition, found {other:?}"),
        }
    }

    fn call(&self, name: &str, argument: &Value) -> Result<Value> {
        match name {
            "Ref" => self.reference(text(argument)?),
            "Condition" => Ok(Value::Bool(self.condition(text(argument)?)?)),
            "Fn::GetAtt" => self.get_att(argument).map(Value::String),
            "Fn::Sub" => self.substitute(argument).map(Value::String),
            "Fn::Join" => {
                let [delimiter, items] = self.arguments::<2>(argument)?;
                let items = self.list(&items)?;
                let parts = items.iter().map(scalar).collect::<Result<Vec<_>>>()?;
                Ok(Value::String(parts.join(text(&delimiter)?)))
            }
            "Fn::Split" => {
                let [delimiter, whole] = self.arguments::<2>(argument)?;
                let whole = self.string(&whole)?;
                Ok(whole.split(text(&delimiter)?).collect())
            }
            "Fn::Select" => {
                let [index, items] = self.arguments::<2>(argument)?;
                let index: usize = self.string(&index)?.parse().context("the index must be a number")?;
                self.list(&items)?.get(index).cloned().ok_or_else(|| anyhow!("the list has no element {index}"))
            }
            "Fn::If" => {
                let [condition, yes, no] = self.arguments::<3>(argument)?;
                let branch = if self.condition(text(&condition)?)? { yes } else { no };
                Ok(self.evaluate(&branch)?.unwrap_or_else(|| Value::String(NO_VALUE.to_owned())))
            }
            "Fn::Equals" => {
                let [a, b] = self.arguments::<2>(argument)?;
                Ok(Value::Bool(self.string(&a)? == self.string(&b)?))
            }
            "Fn::Not" => {
                let [a] = self.arguments::<1>(argument)?;
                Ok(Value::Bool(!self.truth(&a)?))
            }
            "Fn::And" => self.all_of(argument, true),
            "Fn::Or" => self.all_of(argument, false),
            "Fn::FindInMap" => {
                let [map, first, second] = self.arguments::<3>(argument)?;
                let (map, first, second) = (self.string(&map)?, self.string(&first)?, self.string(&second)?);
                let found = self.mappings.get(&map).and_then(|m| m.get(&first)).and_then(|m| m.get(&second));
                found.cloned().ok_or_else(|| anyhow!("the template has no mapping {map}.{first}.{second}"))
            }
            "Fn::Base64" => {
                use base64::Engine as _;
                Ok(Value::String(base64::engine::general_purpose::STANDARD.encode(self.string(argument)?)))
            }
            "Fn::GetAZs" => Ok(json!(["a", "b", "c"].map(|zone| format!("{}{zone}", self.region)))),
            "Fn::ToJsonString" => Ok(Value::String(serde_json::to_string(&self.evaluate(argument)?)?)),
            "Fn::Length" => Ok(json!(self.list(argument)?.len())),
            other => bail!("the local stack cannot evaluate {other}"),
        }
    }

    fn get_att(&self, argument: &Value) -> Result<String> {
        match argument {
            Value::String(path) => {
                let (id, attribute) = path.split_once('.').ok_or_else(|| anyhow!("`{path}` does not name an attribute"))?;
                self.attribute(id, attribute)
            }
            Value::Array(parts) if parts.len() == 2 => self.attribute(text(&parts[0])?, &self.string(&parts[1])?),
            _ => bail!("expected `Resource.Attribute`"),
        }
    }

    fn all_of(&self, argument: &Value, wanted: bool) -> Result<Value> {
        let items = argument.as_array().ok_or_else(|| anyhow!("expected a list of conditions"))?;
        for item in items {
            if self.truth(item)? != wanted {
                return Ok(Value::Bool(!wanted));
            }
        }
        Ok(Value::Bool(wanted))
    }

    fn reference(&self, name: &str) -> Result<Value> {
        if let Some(value) = self.parameters.get(name) {
            return Ok(value.clone());
        }
        let pseudo = match name {
            "AWS::Region" => Some(self.region.as_str()),
            "AWS::AccountId" => Some(self.account.as_str()),
            "AWS::Partition" => Some("aws"),
            "AWS::URLSuffix" => Some("amazonaws.com"),
            "AWS::StackName" => Some("tidemark-local"),
            "AWS::StackId" => {
                Some("arn:aws:cloudformation:us-east-1:000000000000:stack/tidemark-local/00000000-0000-0000-0000-000000000000")
            }
            "AWS::NoValue" => Some(NO_VALUE),
            _ => None,
        };
        if let Some(value) = pseudo {
            return Ok(Value::String(value.to_owned()));
        }
        if let Some(value) = self.attributes.get(&(name.to_owned(), String::new())) {
            return Ok(Value::String(value.clone()));
        }
        self.known(name)?;
        Ok(Value::String(name.to_owned()))
    }

    fn attribute(&self, id: &str, attribute: &str) -> Result<String> {
        if let Some(value) = self.attributes.get(&(id.to_owned(), attribute.to_owned())) {
            return Ok(value.clone());
        }
        self.known(id)?;
        if self.attributes.contains_key(&(id.to_owned(), String::new())) {
            bail!("`{id}` has no attribute `{attribute}`");
        }
        Ok(format!("{id}.{attribute}"))
    }

    /// Accepts a resource of the template, or a resource that SAM generates. A generated name begins with its
    /// parent's name.
    fn known(&self, id: &str) -> Result<()> {
        let generated = || self.resources.iter().any(|(parent, sam)| *sam && id.len() > parent.len() && id.starts_with(parent));
        if self.resources.contains_key(id) || id == "ServerlessHttpApi" || generated() {
            return Ok(());
        }
        bail!("`{id}` is neither a parameter nor a resource of this template{}", self.suggestion(id))
    }

    fn suggestion(&self, id: &str) -> String {
        let names: BTreeSet<&String> = self.parameters.keys().chain(self.resources.keys()).collect();
        let near =
            names.into_iter().find(|name| name.eq_ignore_ascii_case(id) || name.starts_with(id) || id.starts_with(name.as_str()));
        near.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
    }

    fn substitute(&self, argument: &Value) -> Result<String> {
        let (pattern, own) = match argument {
            Value::String(pattern) => (pattern.as_str(), Map::new()),
            Value::Array(parts) if parts.len() == 2 => {
                let own = parts[1].as_object().cloned().ok_or_else(|| anyhow!("expected a map of variables"))?;
                (text(&parts[0])?, own)
            }
            _ => bail!("expected a string"),
        };
        let mut out = String::with_capacity(pattern.len());
        let mut rest = pattern;
        while let Some(start) = rest.find("${") {
            out.push_str(&rest[..start]);
            let end = rest[start..].find('}').ok_or_else(|| anyhow!("unclosed `${{` in `{pattern}`"))? + start;
            let name = rest[start + 2..end].trim();
            if let Some(literal) = name.strip_prefix('!') {
                out.push_str(&format!("${{{literal}}}"));
            } else if let Some(value) = own.get(name) {
                out.push_str(&self.string(value)?);
            } else if let Some((id, attribute)) = name.split_once('.') {
                out.push_str(&self.attribute(id, attribute)?);
            } else {
                out.push_str(&scalar(&self.reference(name)?)?);
            }
            rest = &rest[end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }

    fn arguments<const N: usize>(&self, argument: &Value) -> Result<[Value; N]> {
        let items = argument.as_array().ok_or_else(|| anyhow!("expected a list of {N} arguments"))?;
        <[Value; N]>::try_from(items.clone()).map_err(|given| anyhow!("expected {N} arguments, found {}", given.len()))
    }

    fn list(&self, value: &Value) -> Result<Vec<Value>> {
        match self.evaluate(value)? {
            Some(Value::Array(items)) => Ok(items),
            Some(Value::String(s)) if s.is_empty() => Ok(Vec::new()),
            Some(Value::String(s)) => Ok(s.split(',').map(|part| part.trim().into()).collect()),
            other => bail!("expected a list, found {other:?}"),
        }
    }

    fn string(&self, value: &Value) -> Result<String> {
        match self.evaluate(value)? {
            Some(value) => scalar(&value),
            None => bail!("expected a value, found AWS::NoValue"),
        }
    }
}

/// Converts a scalar to text, as CloudFormation converts a number or boolean to a string.
pub(super) fn scalar(value: &Value) -> Result<String> {
    Ok(match value {
        Value::String(s) => s.clone(),
        Value::Number(n) => n.to_string(),
        Value::Bool(b) => b.to_string(),
        Value::Array(items) => items.iter().map(scalar).collect::<Result<Vec<_>>>()?.join(","),
        other => bail!("expected a scalar, found {other}"),
    })
}

/// Whether a value is `true`, as a boolean or as a string.
pub(super) fn is_true(value: Option<&Value>) -> bool {
    value.is_some_and(|value| scalar(value).is_ok_and(|text| text == "true"))
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().ok_or_else(|| anyhow!("expected a string, found {value}"))
}

fn single(map: &Map<String, Value>) -> Option<(&str, &Value)> {
    let mut entries = map.iter();
    let (name, argument) = entries.next()?;
    entries.next().is_none().then_some((name.as_str(), argument))
}
