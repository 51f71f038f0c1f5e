//! IAM: statements against docs/iam.md and the calls in the code, wildcards against their reasons.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tidemark_tests::{
    files, repository,
    template::{
        BY_LAMBDA, Permissions, Statement, permissions, quoted_names, resources, statement, statements, table_under,
        template_document,
    },
    text_of,
};

#[test]
fn statements_of_the_template_and_of_iam_md_match() {
    let mut listed: BTreeMap<String, Vec<Statement>> = BTreeMap::new();
    for row in table_under(&text_of("docs/iam.md"), "## Statements") {
        let [function, sid, actions, resources, calls] = &row[..] else { panic!("a row of five cells: {row:?}") };
        assert!(!quoted_names(calls).is_empty() || calls.starts_with("Lambda"), "{function} {sid} has no call that needs it");
        let (files, operations): (Vec<String>, Vec<String>) =
            quoted_names(calls).into_iter().partition(|name| name.ends_with(".rs"));
        let code: String = files.iter().map(|file| text_of(file)).collect();
        for operation in operations.iter().filter(|name| name.starts_with(|first: char| first.is_ascii_lowercase())) {
            assert!(code.contains(&format!("fn {operation}(")), "{function} {sid}: no {operation} in {files:?}");
        }
        let only = |cell: &String| quoted_names(cell).into_iter().next().unwrap();
        let statement = Statement { sid: only(sid), actions: quoted_names(actions), resources: quoted_names(resources) };
        listed.entry(only(function)).or_default().push(statement);
    }
    // A function that calls nothing has no statement.
    let given: BTreeMap<_, _> = statements(&template_document()).into_iter().filter(|(_, given)| !given.is_empty()).collect();
    assert_eq!(listed, given);
}

#[test]
fn sdk_calls_of_the_code_and_of_iam_md_match() {
    // The patterns that a call of the SDK begins with.
    let operations = "batch_get_item batch_write_item delete_item get_item get_queue_attributes post_to_connection put_item query
        scan send_message send_message_batch transact_get_items transact_write_items update_item";
    let root = repository();
    let mut made = BTreeSet::new();
    for path in ["shared", "functions"].iter().flat_map(|folder| files(&root.join(folder), "rs")) {
        let text: String = std::fs::read_to_string(&path).unwrap().split_whitespace().collect();
        for operation in operations.split_whitespace().filter(|operation| text.contains(&format!("client.{operation}()"))) {
            made.insert((path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned(), operation.to_owned()));
        }
    }
    let mut listed = BTreeSet::new();
    let mut actions = BTreeSet::new();
    for row in table_under(&text_of("docs/iam.md"), "## Calls") {
        let [call, files, needed] = &row[..] else { panic!("a row of three cells: {row:?}") };
        let call = quoted_names(call).into_iter().next().unwrap();
        listed.extend(quoted_names(files).into_iter().map(|file| (file, call.clone())));
        actions.extend(quoted_names(needed));
    }
    assert_eq!(listed, made);
    let allowed = statements(&template_document()).into_values().flatten().flat_map(|statement| statement.actions);
    let by_code: BTreeSet<String> = allowed.filter(|action| !BY_LAMBDA.contains(&action.as_str())).collect();
    assert_eq!(actions, by_code, "the roles allow exactly the actions of the calls");
}

#[test]
fn every_function_has_its_own_role_and_only_the_shared_basics() {
    let template = template_document();
    let mut roles = BTreeSet::new();
    for (id, function) in resources(&template, "AWS::Serverless::Function") {
        let role = function["Properties"]["Role"]["Fn::GetAtt"].as_str().unwrap().strip_suffix(".Arn").unwrap().to_owned();
        assert!(function["Properties"]["Policies"].is_null(), "{id} has policies outside of its role");
        let body = &template["Resources"][&role]["Properties"];
        assert_eq!(body["ManagedPolicyArns"], serde_json::json!([{ "Ref": "FunctionBasics" }]), "{role}");
        assert_eq!(role.strip_suffix("Role"), id.strip_suffix("Function"));
        assert!(roles.insert(role), "{id} shares its role");
    }
    assert_eq!(roles, resources(&template, "AWS::IAM::Role").into_keys().collect());
}

#[test]
fn every_wildcard_has_a_reason() {
    let template = template_document();
    for (function, statements) in statements(&template) {
        for statement in statements {
            // The ids of connections are not known in advance.
            let of_connections = |part: &&String| part.ends_with(":LiveApi/live/POST/@connections/*");
            let mut parts = statement.actions.iter().chain(&statement.resources).filter(|part| !of_connections(part));
            assert!(parts.all(|part| !part.contains('*')), "{function} {statement:?}");
        }
    }
    let text = text_of("template.yaml");
    let granted = |line: &&str| ["Resource", "Principal"].iter().any(|name| line.trim_start().starts_with(name));
    let wildcards: Vec<&str> = text.lines().filter(granted).filter(|line| line.contains("\"*\"")).collect();
    for line in &wildcards {
        assert!(line.split_once(" # ").is_some_and(|(_, reason)| reason.len() > 5), "without a reason: {line}");
    }
    // Counts wildcards in any notation, so that the lines above have found all of them.
    assert_eq!(wildcards.len(), count_wildcards(&template["Resources"]));
}

/// Resources and principals that are `*`.
fn count_wildcards(value: &Value) -> usize {
    match value {
        Value::Object(fields) => {
            let own = ["Resource", "Principal"].iter().filter_map(|name| fields.get(*name));
            let own = own.filter(|field| **field == "*" || **field == serde_json::json!(["*"])).count();
            own + fields.values().map(count_wildcards).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(count_wildcards).sum(),
        _ => 0,
    }
}

#[test]
fn the_vpc_endpoints_allow_what_the_roles_allow() {
    let template = template_document();
    let mut through = Permissions::new();
    for endpoint in resources(&template, "AWS::EC2::VPCEndpoint").into_values() {
        let policy = endpoint["Properties"]["PolicyDocument"]["Statement"].as_array().unwrap().clone();
        through.extend(permissions(&policy.iter().map(statement).collect::<Vec<_>>()));
    }
    let in_vpc = |binary: &str| {
        let mut functions = resources(&template, "AWS::Serverless::Function").into_values();
        let own = functions.find(|function| function["Metadata"]["BuildProperties"]["Binary"] == binary).unwrap();
        own["Properties"]["VpcConfig"].is_null()
    };
    let roles: Vec<Statement> =
        statements(&template).into_iter().filter(|(binary, _)| in_vpc(binary)).flat_map(|(_, statements)| statements).collect();
    let of_code = permissions(&roles).into_iter().filter(|(action, _)| !BY_LAMBDA.contains(&action.as_str()));
    let refused: Vec<_> = of_code.filter(|permission| !through.contains(permission)).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let used: BTreeSet<String> = permissions(&roles).into_iter().map(|(_, resource)| resource).collect();
    let idle: BTreeSet<String> = through.into_iter().map(|(_, resource)| resource).filter(|name| !used.contains(name)).collect();
    assert!(idle.is_empty(), "{idle:?}");
}
