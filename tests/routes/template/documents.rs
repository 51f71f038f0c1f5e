//! Compares parameters and alarms with docs/deployment.md and docs/operations.md, and log messages with the code.

use std::collections::BTreeSet;

use regex_lite::Regex;
use serde_json::Value;
use tidemark::ports::Metric;
use tidemark_tests::{
    files, repository,
    template::{entries, quoted_names, resources, table_under, template_document},
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
    let rows = rows.iter().map(|row| (name_in(&row[0]), name_in(&row[1])));
    let mut listed: Vec<(String, String)> = rows.collect();
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
fn the_deployment_guide_has_the_right_resource_counts() {
    const COUNTED: [(&str, usize, &str); 4] = [
        ("AWS::DynamoDB::Table", 14, "fourteen tables"),
        ("AWS::SQS::Queue", 7, "seven queues"),
        ("AWS::Serverless::Function", 13, "thirteen functions"),
        ("AWS::CloudWatch::Alarm", 21, "twenty-one alarms"),
    ];
    let (template, deployment) = (template_document(), text_of("docs/deployment.md"));
    for (kind, count, words) in COUNTED {
        assert_eq!(resources(&template, kind).len(), count, "{words}");
        assert!(deployment.contains(words), "docs/deployment.md does not say {words}");
    }
}

#[test]
fn alarms_and_runbook_sections_match_and_every_alarm_has_a_topic() {
    let template = template_document();
    let alarms = resources(&template, "AWS::CloudWatch::Alarm");
    let names: BTreeSet<String> = alarms.keys().cloned().collect();
    let runbook = text_of("docs/operations.md");
    let headings = runbook.lines().filter_map(|line| line.strip_prefix("### ")).filter(|heading| heading.ends_with("Alarm"));
    assert_eq!(headings.map(str::to_owned).collect::<BTreeSet<_>>(), names);
    for document in ["deployment", "operations", "troubleshooting", "iam", "fan-out", "LOGGING"] {
        let named = quoted_names(&text_of(&format!("docs/{document}.md")));
        let unknown: Vec<&String> = named.iter().filter(|name| name.ends_with("Alarm") && !names.contains(*name)).collect();
        assert!(unknown.is_empty(), "{document} names alarms that do not exist: {unknown:?}");
    }
    let listed: BTreeSet<String> = table_under(&runbook, "## Alarms").iter().map(|row| name_in(&row[0])).collect();
    assert_eq!(listed, names);
    let dashboard = resources(&template, "AWS::CloudWatch::Dashboard")["Dashboard"].to_string();
    for (name, alarm) in alarms {
        let properties = &alarm["Properties"];
        assert_eq!(properties["AlarmActions"], serde_json::json!([{ "Ref": "AlarmTopic" }]), "{name}");
        assert!(properties["AlarmDescription"].as_str().is_some_and(|words| words.len() > 20), "{name}");
        let metrics = properties["Metrics"].as_array().map_or(0, Vec::len);
        assert!(metrics <= 11, "{name}: at most ten metrics and a result");
        assert!(dashboard.contains(&format!("${{{name}.Arn}}")), "{name} is not on the dashboard");
    }
}

/// The dashboard of a stack with its own Redis, or without one.
fn dashboard(template: &Value, with_redis: bool) -> Value {
    let body = &template["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"];
    let text = ["RedisAlarms", "RedisWidgets"].iter().fold(body[0].as_str().unwrap().to_owned(), |text, name| {
        let part = body[1][name]["Fn::If"][1]["Fn::Sub"].as_str().unwrap();
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
    let jobs = ["walk.rs", "flow.rs"].map(|file| text_of(&format!("functions/reconcile/src/job/{file}"))).concat();
    // settings.rs tests that the code logs the messages.
    let filters = resources(&template, "AWS::Logs::MetricFilter");
    let filtered = filters.values().map(|filter| &filter["Properties"]["MetricTransformations"][0]["MetricName"]);
    let alarms = resources(&template, "AWS::CloudWatch::Alarm");
    let alarming = filtered.clone().filter(|name| alarms.values().any(|alarm| alarm["Properties"]["MetricName"] == **name));
    assert_eq!((filters.len(), alarming.count()), (3, 3), "every filter has an alarm");
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
    let logging = text_of("docs/LOGGING.md");
    for metric in Metric::ALL {
        assert!(logging.contains(&format!("| `{}` |", metric.name())), "docs/LOGGING.md does not list {}", metric.name());
    }
}

#[test]
fn a_stack_without_alarms_has_neither_alarms_nor_what_belongs_to_them() {
    let template = template_document();
    let conditions = &template["Conditions"];
    assert_eq!(conditions["HasAlarms"]["Fn::Equals"], serde_json::json!([{ "Ref": "Alarms" }, "true"]));
    let needs_alarms = |condition: &str| {
        let mut parts = conditions[condition]["Fn::And"].as_array().into_iter().flatten();
        condition == "HasAlarms" || parts.any(|part| part["Condition"] == "HasAlarms")
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
    for path in files(&repository().join("tests"), "rs") {
        tests.extend(test.captures_iter(&std::fs::read_to_string(path).unwrap()).map(|found| found[1].to_owned()));
    }
    for row in table_under(&text_of("docs/guarantees.md"), "## Failures") {
        let named = quoted_names(&row[2]);
        assert!(named.len() == 1 && named.is_subset(&tests), "{row:?}");
    }
}

#[test]
fn every_path_that_a_document_names_exists() {
    const FOLDERS: [&str; 6] = ["docs/", "events/", "functions/", "local/", "shared/", "tests/"];
    let root = repository();
    let mut documents = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    documents.extend(files(&root.join("docs"), "md"));
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
