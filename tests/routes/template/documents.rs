//! Compares parameters, alarms and permissions with the documents and the code.

use std::collections::{BTreeMap, BTreeSet};

use regex_lite::Regex;
use serde_json::{Value, json};
use tidemark::metrics::Metric;
use tidemark_tests::{
    files, repository,
    template::{
        BY_LAMBDA, Permissions, Statement, entries, permissions, quoted_names, resources, statement, statements, table_under,
        template_document,
    },
    text_of,
};

/// The first name between backticks. Empty if there is none.
fn name_in(cell: &str) -> String {
    quoted_names(cell).into_iter().next().unwrap_or_default()
}

#[test]
fn parameters_are_described_grouped_used_and_documented_and_no_other_is() {
    let template = template_document();
    let groups = template["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"].as_array().unwrap();
    let grouped = groups.iter().flat_map(|group| group["Parameters"].as_array().unwrap());
    let mut grouped: Vec<&str> = grouped.map(|name| name.as_str().unwrap()).collect();
    let rows = table_under(&text_of("docs/deployment.md"), "## Parameters");
    let mut listed: Vec<(String, String)> = rows.iter().map(|row| (name_in(&row[0]), name_in(&row[1]))).collect();
    // A name in a comment does not count as used.
    let text = text_of("template.yaml");
    let text = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n");
    let mut expected = Vec::new();
    for (name, body) in entries(&template["Parameters"]) {
        assert!(body["Description"].as_str().is_some_and(|words| words.len() > 20), "{name}");
        assert!(text.contains(&format!("!Ref {name}")) || text.contains(&format!("${{{name}}}")), "{name} is not used");
        let default = body["Default"].as_str().map_or_else(|| body["Default"].to_string(), str::to_owned);
        expected.push((name, default));
    }
    expected.sort();
    grouped.sort_unstable();
    assert!(grouped.iter().eq(expected.iter().map(|(name, _)| name)), "each once: {grouped:?}");
    listed.sort();
    assert_eq!(listed, expected, "each once, with its default");
}

#[test]
fn every_kind_of_problem_has_a_section_with_its_status_and_title() {
    let text = text_of("docs/problems.md");
    let sections = text.split("\n## ").skip(1).map(|section| section.split("\n\n").take(2).collect::<Vec<_>>());
    let told: Vec<(String, String)> = sections.map(|parts| (parts[0].to_owned(), parts[1].to_owned())).collect();
    let kinds = tidemark::http::Kind::ALL.iter();
    let wanted = kinds.map(|kind| (kind.slug().to_owned(), format!("Status {}: {}.", kind.status(), kind.title())));
    assert_eq!(told, wanted.collect::<Vec<_>>());
}

#[test]
fn alarms_and_runbook_sections_match_and_every_alarm_has_a_topic() {
    let template = template_document();
    let alarms = resources(&template, "AWS::CloudWatch::Alarm");
    let names: BTreeSet<String> = alarms.keys().cloned().collect();
    let runbook = text_of("docs/operations.md");
    let headings = runbook.lines().filter_map(|line| line.strip_prefix("### ")).filter(|heading| heading.ends_with("Alarm"));
    assert_eq!(headings.map(str::to_owned).collect::<BTreeSet<_>>(), names);
    for document in ["deployment", "operations", "troubleshooting", "iam", "fan-out", "logging"] {
        let named = quoted_names(&text_of(&format!("docs/{document}.md")));
        let unknown: Vec<&String> = named.iter().filter(|name| name.ends_with("Alarm") && !names.contains(*name)).collect();
        assert!(unknown.is_empty(), "{document} names alarms that do not exist: {unknown:?}");
    }
    let listed: BTreeSet<String> = table_under(&runbook, "## Alarms").iter().map(|row| name_in(&row[0])).collect();
    assert_eq!(listed, names);
    let dashboard = resources(&template, "AWS::CloudWatch::Dashboard")["Dashboard"].to_string();
    for (name, alarm) in alarms {
        let properties = &alarm["Properties"];
        assert_eq!(properties["AlarmActions"], json!([{ "Ref": "AlarmTopic" }]), "{name}");
        assert!(properties["AlarmDescription"].as_str().is_some_and(|words| words.len() > 20), "{name}");
        let metrics = properties["Metrics"].as_array().map_or(0, Vec::len);
        assert!(metrics <= 11, "{name}: at most ten metrics and a result");
        assert!(dashboard.contains(&format!("${{{name}.Arn}}")), "{name} is not on the dashboard");
    }
}

/// The dashboard of a stack with its own Redis, or without one.
fn dashboard(template: &Value, with_redis: bool) -> Value {
    let body = &template["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"];
    let text = entries(&body[1]).into_iter().fold(body[0].as_str().unwrap().to_owned(), |text, (name, part)| {
        let part = part["Fn::If"][1]["Fn::Sub"].as_str().unwrap();
        text.replace(&format!("${{{name}}}"), if with_redis { part } else { "" })
    });
    serde_json::from_str(&text).unwrap()
}

#[test]
fn the_dashboard_is_json_with_and_without_redis() {
    let [without_redis, with_redis] = [false, true].map(|with_redis| {
        let dashboard = dashboard(&template_document(), with_redis);
        let widgets = dashboard["widgets"].as_array().unwrap();
        for widget in widgets {
            let [x, y, width, height] = ["x", "y", "width", "height"].map(|name| widget[name].as_u64().unwrap());
            assert!(x + width <= 24 && height > 0, "{widget}");
            let others = widgets.iter().filter(|other| other["x"] == x && other["y"] == y);
            assert_eq!(others.count(), 1, "two widgets at one position: {widget}");
        }
        widgets.len()
    });
    assert_eq!(without_redis + 3, with_redis);
}

#[test]
fn alarms_on_functions_cover_all_functions() {
    let template = template_document();
    let functions = resources(&template, "AWS::Serverless::Function");
    let has_routes =
        |function: &Value| entries(&function["Properties"]["Events"]).values().any(|event| event["Type"] == "HttpApi");
    // The caller of a function that is invoked by hand sees its error.
    let by_itself = |function: &Value| !entries(&function["Properties"]["Events"]).is_empty();
    let watched = |alarm: &str| -> BTreeSet<String> {
        let metrics = template["Resources"][alarm]["Properties"]["Metrics"].as_array().unwrap();
        let named = metrics.iter().filter_map(|metric| metric["MetricStat"]["Metric"]["Dimensions"][0]["Value"]["Ref"].as_str());
        named.map(str::to_owned).collect()
    };
    let those = |wanted: &dyn Fn(&Value) -> bool| -> BTreeSet<String> {
        functions.iter().filter(|(_, function)| wanted(function)).map(|(id, _)| id.clone()).collect()
    };
    // An alarm has at most ten metrics, so the functions of live updates have one of their own.
    let live = watched("LiveFailuresAlarm");
    assert!(live.contains("LiveAuthorizerFunction"), "API Gateway invokes it, without an event of its own");
    let (mut of_live, others): (BTreeSet<_>, BTreeSet<_>) = those(&by_itself).into_iter().partition(|id| id.starts_with("Live"));
    assert_eq!(watched("FunctionErrorsAlarm"), others);
    assert_eq!(watched("FunctionThrottlesAlarm"), others);
    of_live.insert("LiveAuthorizerFunction".to_owned());
    assert_eq!(live, of_live);
    assert_eq!(watched("FunctionLatencyAlarm"), those(&has_routes));
}

/// The stack's own metrics that an alarm or the dashboard names, each with its dimensions and their values.
fn watched_metrics(template: &Value) -> BTreeSet<(String, Vec<(String, String)>)> {
    let mut watched = BTreeSet::new();
    for alarm in resources(template, "AWS::CloudWatch::Alarm").into_values() {
        let properties = &alarm["Properties"];
        let parts = properties["Metrics"].as_array().into_iter().flatten().map(|metric| &metric["MetricStat"]["Metric"]);
        for metric in parts.chain([properties]).filter(|metric| metric["Namespace"]["Fn::Sub"].is_string()) {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let dimensions = metric["Dimensions"].as_array().into_iter().flatten();
            let dimensions = dimensions.map(|dimension| (text(&dimension["Name"]), text(&dimension["Value"])));
            watched.insert((text(&metric["MetricName"]), dimensions.collect()));
        }
    }
    let search = Regex::new(r#"SEARCH\('\{"([^"]+)",([^}]+)\} MetricName="(\w+)""#).unwrap();
    let dashboard = dashboard(template, false);
    let widgets = dashboard["widgets"].as_array().unwrap().iter();
    for row in widgets.flat_map(|widget| widget["properties"]["metrics"].as_array()).flatten() {
        let words: Vec<String> = row.as_array().unwrap().iter().filter_map(|word| Some(word.as_str()?.to_owned())).collect();
        if let [namespace, name, dimensions @ ..] = &words[..] {
            if namespace == "Tidemark/${AWS::StackName}" {
                watched.insert((name.clone(), dimensions.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()));
            }
        } else if let Some(found) = row[0]["expression"].as_str().and_then(|expression| search.captures(expression)) {
            assert_eq!(&found[1], "Tidemark/${AWS::StackName}");
            watched.insert((found[3].to_owned(), found[2].split(',').map(|name| (name.to_owned(), String::new())).collect()));
        }
    }
    watched
}

#[test]
fn alarms_and_dashboard_name_metrics_of_the_code_with_their_dimensions() {
    let template = template_document();
    let jobs = ["walk.rs", "flow.rs"].map(|file| text_of(&format!("shared/reconcile/src/job/{file}"))).concat();
    // settings.rs tests that the code logs the messages.
    let filters = resources(&template, "AWS::Logs::MetricFilter");
    let filtered = filters.values().map(|filter| &filter["Properties"]["MetricTransformations"][0]["MetricName"]);
    let alarms = resources(&template, "AWS::CloudWatch::Alarm");
    for name in filtered.clone() {
        assert!(alarms.values().any(|alarm| alarm["Properties"]["MetricName"] == *name), "{name} has no alarm");
    }
    assert_eq!(filters.len(), 3);
    let mut known = BTreeSet::new();
    for (name, dimensions) in watched_metrics(&template) {
        let names: Vec<&str> = dimensions.iter().map(|(name, _)| name.as_str()).collect();
        match Metric::ALL.iter().find(|metric| metric.name() == name) {
            Some(metric) => {
                assert!(metric.dimension_sets().contains(&&names[..]), "{name} has no dimensions {names:?}");
                known.insert(*metric);
            }
            None => assert!(filtered.clone().any(|own| *own == name) && names.is_empty(), "the code does not write {name}"),
        }
        for (_, job) in dimensions.iter().filter(|(name, _)| name == "Job") {
            assert!(jobs.contains(&format!("\"{job}\"")), "no job {job}");
        }
    }
    let unwatched: Vec<&Metric> = Metric::ALL.iter().filter(|metric| !known.contains(metric)).collect();
    assert_eq!(unwatched, [&Metric::LookedAt]);
    let logging = text_of("docs/logging.md");
    for metric in Metric::ALL {
        assert!(logging.contains(&format!("| `{}` |", metric.name())), "docs/logging.md does not list {}", metric.name());
    }
}

#[test]
fn a_stack_without_alarms_has_neither_alarms_nor_what_belongs_to_them() {
    let template = template_document();
    let conditions = &template["Conditions"];
    assert_eq!(conditions["HasAlarms"]["Fn::Equals"], json!([{ "Ref": "Alarms" }, "true"]));
    let needs_alarms = |condition: &str| {
        let mut parts = conditions[condition]["Fn::And"].as_array().into_iter().flatten();
        condition == "HasAlarms" || parts.any(|part| part["Condition"] == "HasAlarms" || part["Condition"] == "HasRedisAlarms")
    };
    for (id, resource) in template["Resources"].as_object().unwrap() {
        let kind = resource["Type"].as_str().unwrap();
        if ["AWS::CloudWatch::", "AWS::SNS::"].iter().any(|of| kind.starts_with(of)) {
            assert!(resource["Condition"].as_str().is_some_and(needs_alarms), "{id}");
        }
    }
    for output in ["AlarmTopicArn", "DashboardUrl"] {
        assert_eq!(template["Outputs"][output]["Condition"], "HasAlarms");
    }
    let samconfig = text_of("samconfig.toml");
    let (dev, prod) = samconfig.split_once("[prod.").unwrap();
    assert_eq!((dev.matches(" Alarms=false ").count(), prod.matches("Alarms=").count()), (2, 0));
}

#[test]
fn every_guarantee_names_an_existing_test() {
    let mut tests = BTreeSet::new();
    let test = Regex::new(r"#\[(?:tokio::)?test.*\]\n(?:#\[.*\]\n)*(?:async )?fn (\w+)\(").unwrap();
    for path in ["tests", "shared/legacy/tests"].iter().flat_map(|folder| files(&repository().join(folder), "rs")) {
        tests.extend(test.captures_iter(&std::fs::read_to_string(path).unwrap()).map(|found| found[1].to_owned()));
    }
    let rows = table_under(&text_of("docs/guarantees.md"), "## Failures");
    assert!(rows.len() >= 10, "{}", rows.len());
    for row in rows {
        let named = quoted_names(&row[2]);
        assert!(named.len() == 1 && named.is_subset(&tests), "{row:?}");
    }
}

#[test]
fn every_path_that_a_document_names_exists() {
    const FOLDERS: [&str; 6] = ["docs/", "events/", "functions/", "local/", "shared/", "tests/"];
    let root = repository();
    let mut documents = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    documents.extend(["docs", "shared/legacy/docs"].iter().flat_map(|folder| files(&root.join(folder), "md")));
    let mut missing = Vec::new();
    for document in documents {
        for name in quoted_names(&std::fs::read_to_string(&document).unwrap()) {
            let is_path = FOLDERS.iter().any(|folder| name.starts_with(folder)) && !name.contains(['<', '*', ' ']);
            if is_path && !root.join(&name).exists() {
                missing.push((document.clone(), name));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

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
        let statement = Statement { sid: name_in(sid), actions: quoted_names(actions), resources: quoted_names(resources) };
        listed.entry(name_in(function)).or_default().push(statement);
    }
    // A function that calls nothing has no statement.
    let given: BTreeMap<_, _> = statements(&template_document()).into_iter().filter(|(_, given)| !given.is_empty()).collect();
    assert_eq!(listed, given);
}

#[test]
fn sdk_calls_of_the_code_and_of_iam_md_match() {
    // The patterns that a call of the SDK begins with.
    let operations =
        "batch_get_item batch_write_item delete_item get_item get_queue_attributes post_to_connection put_events put_item
        query scan send_message send_message_batch transact_get_items transact_write_items update_item";
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
        let call = name_in(call);
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
        let mut shared = vec![json!({ "Ref": "FunctionBasics" })];
        // Functions with a network of their own do not use Redis.
        if function["Properties"]["VpcConfig"].is_null() {
            shared.push(json!({ "Fn::If": ["LogInWithIam", { "Ref": "RedisLogin" }, { "Ref": "AWS::NoValue" }] }));
        }
        assert_eq!(body["ManagedPolicyArns"], Value::Array(shared), "{role}");
        assert_eq!(role.strip_suffix("Role"), id.strip_suffix("Function"));
        assert!(roles.insert(role), "{id} shares its role");
    }
    // API Gateway uses it, and no function.
    roles.insert("ApiLogsRoleOfAccount".to_owned());
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
            let own = own.filter(|field| **field == "*" || **field == json!(["*"])).count();
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
