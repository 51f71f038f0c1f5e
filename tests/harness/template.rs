//! The template in the form that tests use: as JSON, and the permissions of each function's role.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::text_of;

/// Permissions of a role: actions and their resources, as the template names them (`PostsTable`,
/// `PostsTable/index/by-time`, `FanOutQueue`).
pub type Permissions = BTreeSet<(String, String)>;

/// Actions that Lambda itself performs with a function's role.
pub const BY_LAMBDA: [&str; 6] = [
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "dynamodb:DescribeStream",
    "dynamodb:GetRecords",
    "dynamodb:GetShardIterator",
    "dynamodb:ListStreams",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    pub sid: String,
    /// `service:Operation`.
    pub actions: BTreeSet<String>,
    /// As in [`Permissions`].
    pub resources: BTreeSet<String>,
}

/// The template as JSON, unresolved.
pub fn template_document() -> Value {
    tidemark_local::template::document(&text_of("template.yaml")).expect("template.yaml is YAML")
}

/// The resources of one type, by logical id.
pub fn resources(template: &Value, kind: &str) -> BTreeMap<String, Value> {
    let all = template["Resources"].as_object().expect("the template has resources");
    all.iter().filter(|(_, body)| body["Type"] == kind).map(|(id, body)| (id.clone(), body.clone())).collect()
}

/// The statements of every function's own role, by binary name.
pub fn statements(template: &Value) -> BTreeMap<String, Vec<Statement>> {
    let of = |(id, function): (String, Value)| {
        let role = function["Properties"]["Role"]["Fn::GetAtt"].as_str().unwrap_or_else(|| panic!("{id} has no role of its own"));
        let role = &template["Resources"][role.strip_suffix(".Arn").expect("a role's ARN")]["Properties"];
        let binary = function["Metadata"]["BuildProperties"]["Binary"].as_str().expect("a binary").to_owned();
        let policies = role["Policies"].as_array().expect("a role has policies").iter();
        let statements = policies.flat_map(|policy| policy["PolicyDocument"]["Statement"].as_array().expect("statements"));
        (binary, statements.map(statement).collect())
    };
    resources(template, "AWS::Serverless::Function").into_iter().map(of).collect()
}

/// Parses one `Allow` statement, also one that a role has under a condition.
pub fn statement(statement: &Value) -> Statement {
    let statement = statement["Fn::If"].get(1).unwrap_or(statement);
    assert_eq!(statement["Effect"], "Allow", "{statement}");
    Statement {
        sid: statement["Sid"].as_str().unwrap_or_default().to_owned(),
        actions: list(&statement["Action"]).iter().map(|action| action.as_str().expect("an action").to_owned()).collect(),
        resources: list(&statement["Resource"]).iter().map(resource_name).collect(),
    }
}

/// The union of these statements.
pub fn permissions<'a>(statements: impl IntoIterator<Item = &'a Statement>) -> Permissions {
    let pairs = |statement: &Statement| -> Vec<(String, String)> {
        let resources = |action: &String| statement.resources.iter().map(|resource| (action.clone(), resource.clone())).collect();
        statement.actions.iter().flat_map::<Vec<_>, _>(resources).collect()
    };
    statements.into_iter().flat_map(pairs).collect()
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_else(|| vec![value.clone()])
}

/// Resolves `!GetAtt Table.Arn` and `!Sub "${Table.Arn}/index/name"`. Returns other values unchanged.
fn resource_name(value: &Value) -> String {
    let arn = value["Fn::GetAtt"].as_str().map(str::to_owned);
    let sub = value["Fn::Sub"].as_str().map(|text| text.replace("${", "").replace('}', ""));
    match arn.or(sub) {
        Some(name) => name.replacen(".Arn", "", 1).replacen(".StreamArn", "/stream", 1),
        None => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
    }
}

/// The names between backticks in a Markdown text.
pub fn quoted_names(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            names.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    names
}

/// The rows of the Markdown tables under a heading as cells, without header rows.
pub fn table_under(text: &str, heading: &str) -> Vec<Vec<String>> {
    let rest = text.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no heading {heading}")).1;
    let section = rest.split("\n#").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|'));
    let cells = |line: &str| -> Vec<String> { line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect() };
    let mut rows: Vec<Vec<String>> = rows.map(cells).collect();
    assert!(rows.len() > 2, "no table under {heading}");
    rows.drain(..2);
    rows
}

/// The entries of an object. Empty for any other value.
pub fn entries(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}
