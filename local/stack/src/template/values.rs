//! Evaluates CloudFormation's intrinsic functions as a deployment to a fixed region and account does.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value, json};

use super::{ACCOUNT, REGION};

/// Rewrites the YAML short forms (`!Ref`, as JSON `{"!Ref": x}`) to the long ones, so both spellings take one path.
pub(super) fn long_forms(value: Value) -> Value {
    let name = |name: String| match name.strip_prefix('!') {
        Some(tag @ ("Ref" | "Condition")) => tag.to_owned(),
        Some(tag) => format!("Fn::{tag}"),
        None => name,
    };
    match value {
        Value::Object(map) => map.into_iter().map(|(key, value)| (name(key), long_forms(value))).collect(),
        Value::Array(items) => items.into_iter().map(long_forms).collect(),
        other => other,
    }
}

/// The names, addresses and ARNs that references of one deployment resolve to.
pub(super) struct Scope {
    /// Parameters by name. Values are strings or lists of strings.
    pub(super) parameters: BTreeMap<String, Value>,
    /// The template's `Conditions`, unevaluated.
    pub(super) conditions: Value,
    /// Values of `Ref` (by logical id) and `GetAtt` (by `Id.Attribute`) for the resources of this stack.
    pub(super) attributes: BTreeMap<String, String>,
    /// Every logical id, and true if SAM generates further resources from it.
    pub(super) resources: BTreeMap<String, bool>,
}

impl Scope {
    /// Evaluates a resource. Returns `None` if its condition is false.
    pub(super) fn resource(&self, body: &Value) -> Result<Option<Value>> {
        match body["Condition"].as_str() {
            Some(condition) if !self.condition(condition)? => Ok(None),
            _ => self.evaluate(body),
        }
    }

    /// Evaluates a value. `AWS::NoValue` becomes null.
    pub(super) fn value(&self, value: &Value) -> Result<Value> {
        Ok(self.evaluate(value)?.unwrap_or_default())
    }

    /// Evaluates every intrinsic function in `value`. `None` means `AWS::NoValue`.
    fn evaluate(&self, value: &Value) -> Result<Option<Value>> {
        match value {
            Value::Object(map) => {
                if let [(name, argument)] = map.iter().collect::<Vec<_>>()[..]
                    && (name == "Ref" || name == "Condition" || name.starts_with("Fn::"))
                    && (name != "Condition" || argument.is_string())
                {
                    return self.call(name, argument).with_context(|| format!("in {name}"));
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
                let items = items.iter().filter_map(|item| self.evaluate(item).transpose());
                Ok(Some(Value::Array(items.collect::<Result<_>>()?)))
            }
            other => Ok(Some(other.clone())),
        }
    }

    fn condition(&self, name: &str) -> Result<bool> {
        let body = self.conditions.get(name).with_context(|| format!("the template has no condition `{name}`"))?;
        self.truth(body).with_context(|| format!("condition `{name}`"))
    }

    fn truth(&self, value: &Value) -> Result<bool> {
        let text = self.string(value)?;
        text.parse().with_context(|| format!("expected a condition, found {text}"))
    }

    fn truths(&self, items: &Value) -> Result<Vec<bool>> {
        let items = items.as_array().context("expected a list of conditions")?;
        items.iter().map(|item| self.truth(item)).collect()
    }

    fn call(&self, name: &str, argument: &Value) -> Result<Option<Value>> {
        Ok(Some(match name {
            "Ref" if argument == "AWS::NoValue" => return Ok(None),
            "Ref" => self.reference(text(argument)?)?,
            "Condition" => self.condition(text(argument)?)?.into(),
            "Fn::GetAtt" => match argument {
                Value::String(path) => self.attribute(path)?,
                _ => {
                    let [id, attribute] = arguments(argument)?;
                    self.attribute(&format!("{}.{}", text(id)?, self.string(attribute)?))?
                }
            }
            .into(),
            "Fn::Sub" => self.substitute(argument)?.into(),
            "Fn::Join" => {
                let [delimiter, items] = arguments(argument)?;
                let parts = self.list(items)?.iter().map(scalar).collect::<Result<Vec<_>>>()?;
                parts.join(text(delimiter)?).into()
            }
            "Fn::Split" => {
                let [delimiter, whole] = arguments(argument)?;
                self.string(whole)?.split(text(delimiter)?).collect()
            }
            "Fn::Select" => {
                let [index, items] = arguments(argument)?;
                let index: usize = self.string(index)?.parse().context("the index must be a number")?;
                self.list(items)?.get(index).cloned().with_context(|| format!("the list has no element {index}"))?
            }
            "Fn::If" => {
                let [condition, yes, no] = arguments(argument)?;
                return self.evaluate(if self.condition(text(condition)?)? { yes } else { no });
            }
            "Fn::Equals" => {
                let [a, b] = arguments(argument)?;
                (self.string(a)? == self.string(b)?).into()
            }
            "Fn::Not" => {
                let [a] = arguments(argument)?;
                (!self.truth(a)?).into()
            }
            "Fn::And" => self.truths(argument)?.iter().all(|truth| *truth).into(),
            "Fn::Or" => self.truths(argument)?.contains(&true).into(),
            "Fn::GetAZs" => json!(["a", "b", "c"].map(|zone| format!("{REGION}{zone}"))),
            other => bail!("the local stack cannot evaluate {other}"),
        }))
    }

    fn reference(&self, name: &str) -> Result<Value> {
        if let Some(value) = self.parameters.get(name) {
            return Ok(value.clone());
        }
        let text = match name {
            "AWS::Region" => REGION,
            "AWS::AccountId" => ACCOUNT,
            "AWS::Partition" => "aws",
            "AWS::URLSuffix" => "amazonaws.com",
            "AWS::StackName" => "tidemark-local",
            "AWS::StackId" => {
                "arn:aws:cloudformation:us-east-1:000000000000:stack/tidemark-local/00000000-0000-0000-0000-000000000000"
            }
            _ => match self.attributes.get(name).filter(|_| !name.contains('.')) {
                Some(value) => value,
                None => {
                    self.known(name)?;
                    name
                }
            },
        };
        Ok(text.into())
    }

    /// The value of `Id.Attribute`.
    pub(super) fn attribute(&self, path: &str) -> Result<String> {
        if let Some(value) = self.attributes.get(path) {
            return Ok(value.clone());
        }
        let (id, attribute) = path.split_once('.').with_context(|| format!("`{path}` does not name an attribute"))?;
        self.known(id)?;
        ensure!(!self.attributes.contains_key(id), "`{id}` has no attribute `{attribute}`");
        Ok(path.to_owned())
    }

    /// Accepts a resource of the template, or one that SAM generates: its name begins with its parent's.
    fn known(&self, id: &str) -> Result<()> {
        let generated = || self.resources.iter().any(|(parent, sam)| *sam && id.len() > parent.len() && id.starts_with(parent));
        if self.resources.contains_key(id) || id == "ServerlessHttpApi" || generated() {
            return Ok(());
        }
        bail!("`{id}` is neither a parameter nor a resource of this template{}", self.suggestion(id))
    }

    fn suggestion(&self, id: &str) -> String {
        let mut names = self.parameters.keys().chain(self.resources.keys());
        let near = names.find(|name| name.eq_ignore_ascii_case(id) || name.starts_with(id) || id.starts_with(name.as_str()));
        near.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
    }

    fn substitute(&self, argument: &Value) -> Result<String> {
        let (pattern, own) = match argument {
            Value::String(pattern) => (pattern.as_str(), &Value::Null),
            _ => {
                let [pattern, own] = arguments(argument)?;
                (text(pattern)?, own)
            }
        };
        let mut out = String::with_capacity(pattern.len());
        let mut rest = pattern;
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(before);
            let (name, after) = after.split_once('}').with_context(|| format!("unclosed `${{` in `{pattern}`"))?;
            let name = name.trim();
            if let Some(literal) = name.strip_prefix('!') {
                out.push_str(&format!("${{{literal}}}"));
            } else if let Some(value) = own.get(name) {
                out.push_str(&self.string(value)?);
            } else if name.contains('.') {
                out.push_str(&self.attribute(name)?);
            } else {
                out.push_str(&scalar(&self.reference(name)?)?);
            }
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }

    fn list(&self, value: &Value) -> Result<Vec<Value>> {
        match self.evaluate(value)? {
            Some(Value::Array(items)) => Ok(items),
            Some(Value::String(s)) if s.is_empty() => Ok(Vec::new()),
            Some(Value::String(s)) => Ok(s.split(',').map(|part| part.trim().into()).collect()),
            other => bail!("expected a list, found {other:?}"),
        }
    }

    pub(super) fn string(&self, value: &Value) -> Result<String> {
        scalar(&self.evaluate(value)?.context("expected a value, found AWS::NoValue")?)
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

/// The scalar property `name`, as text.
pub(super) fn optional(properties: &Value, name: &str) -> Result<Option<String>> {
    properties.get(name).map(scalar).transpose()
}

/// Whether the property `name` is `true`, as a boolean or as a string.
pub(super) fn is_true(properties: &Value, name: &str) -> bool {
    properties[name] == true || properties[name] == "true"
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().with_context(|| format!("expected a string, found {value}"))
}

fn arguments<const N: usize>(argument: &Value) -> Result<&[Value; N]> {
    let items = argument.as_array().with_context(|| format!("expected a list of {N} arguments"))?;
    items.as_slice().try_into().with_context(|| format!("expected {N} arguments, found {}", items.len()))
}
