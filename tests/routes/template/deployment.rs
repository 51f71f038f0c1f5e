//! What a deployment needs: values of parameters that AWS accepts, settings of the account, and alarms that are right
//! on the first day.

use std::{cell::RefCell, collections::BTreeSet};

use serde_json::{Value, json};
use tidemark::AuthorizerSettings;
use tidemark_local::{Options, template::HttpRoute};
use tidemark_tests::{
    has,
    template::{entries, resources, template_document},
    text_of,
};

use super::{load, resolved, routes, with};

#[test]
fn a_first_deployment_needs_no_setting_of_the_account_and_its_rollback_can_delete_the_tables() {
    let document = template_document();
    let default = |name: &str| document["Parameters"][name]["Default"].as_str().unwrap_or_default().to_owned();
    assert_eq!((default("ApiLogsRole"), default("DeletionProtection")), ("create".to_owned(), "false".to_owned()));
    let samconfig = text_of("samconfig.toml");
    let given: Vec<&str> = samconfig.lines().filter(|line| line.starts_with("parameter_overrides")).collect();
    assert!(given.iter().all(|line| !line.contains("DeletionProtection=true") && !line.contains("ApiLogsRole=")), "{given:?}");
    // Other APIs of the account may use both.
    let kept = json!({ "Condition": "CreateApiLogsRole", "DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain" });
    let [role, setting] = ["ApiLogsRoleOfAccount", "ApiSettingsOfAccount"].map(|id| document["Resources"][id].clone());
    assert!(has(&role, &kept) && has(&setting, &kept), "{role} {setting}");
    assert_eq!(setting["Properties"]["CloudWatchRoleArn"]["Fn::GetAtt"], "ApiLogsRoleOfAccount.Arn");
    for (id, stage) in resources(&document, "AWS::ApiGatewayV2::Stage") {
        let logs = !stage["Properties"]["AccessLogSettings"].is_null();
        let waits = stage["Properties"]["Description"].to_string().contains("${ApiSettingsOfAccount}");
        assert_eq!(waits, logs, "{id} may be made before the account has a role");
    }
}

/// CloudFormation evaluates the rules. The local stack does not, so the examples are its defaults.
#[test]
fn examples_of_an_issuer_and_an_address_deploy_nowhere_and_an_unreadable_issuer_fails_the_api() {
    let document = template_document();
    let samconfig = text_of("samconfig.toml");
    let mut examples = vec![("JwtIssuer", document["Parameters"]["JwtIssuer"]["Default"].as_str().unwrap())];
    for line in samconfig.lines().filter_map(|line| line.strip_prefix("parameter_overrides = ")) {
        examples.extend(line.trim_matches('"').split(' ').filter_map(|pair| pair.split_once('=')));
    }
    examples.retain(|(_, value)| value.contains("example.com"));
    assert_eq!(examples.iter().filter(|(name, _)| *name == "JwtIssuer").count(), 4, "{examples:?}");
    for (name, value) in examples {
        let refuses = |rule: &Value| {
            let [values, given] = [0, 1].map(|at| &rule["Assertions"][0]["Assert"]["Fn::Not"][0]["Fn::Contains"][at]);
            let listed = values.as_array().is_some_and(|values| values.iter().any(|one| one == value));
            rule["RuleCondition"].is_null() && given["Ref"] == name && listed
        };
        assert!(entries(&document["Rules"]).values().any(refuses), "no rule refuses {name}={value}");
    }
    for (id, api) in resources(&document, "AWS::Serverless::HttpApi") {
        assert_eq!(api["Properties"]["FailOnWarnings"], true, "{id} deploys without its routes");
    }
}

/// A metric of a new stack has no data for minutes.
#[test]
fn no_alarm_goes_off_because_a_new_stack_has_no_data() {
    for (id, alarm) in resources(&template_document(), "AWS::CloudWatch::Alarm") {
        let properties = &alarm["Properties"];
        let tells_silence = properties["InsufficientDataActions"] == properties["AlarmActions"];
        match properties["TreatMissingData"].as_str() {
            Some("missing") => assert!(tells_silence, "{id} says nothing when its data ends"),
            other => assert_eq!(other, Some("notBreaching"), "{id}"),
        }
    }
}

#[test]
fn alarms_on_redis_can_go_off_on_a_burstable_node_and_users_have_another_one() {
    let document = template_document();
    let burstable = document["Conditions"]["BurstableNode"].to_string() + &document["Conditions"]["SmallestNode"].to_string();
    let alarms = resources(&document, "AWS::CloudWatch::Alarm");
    let earned = json!({ "Fn::If": ["SmallestNode", 15, { "Fn::If": ["BurstableNode", 30, 80] }] });
    assert_eq!(alarms["RedisCpuAlarm"]["Properties"]["Threshold"], earned, "a node earns 20 % or 40 % of a core");
    assert_eq!(alarms["RedisCreditsAlarm"]["Condition"], "HasCreditsAlarm");
    let samconfig = text_of("samconfig.toml");
    let given = |environment: &str| {
        let table = samconfig.split(&format!("[{environment}.deploy.parameters]")).nth(1).unwrap();
        let after = table.split("RedisNodeType=").nth(1).unwrap();
        after.split([' ', '"']).next().unwrap().to_owned()
    };
    assert!(burstable.contains(&format!("\"{}\"", given("dev"))), "{burstable}");
    assert!(!given("prod").starts_with("cache.t"), "{}", given("prod"));
    let refused = load(&[("RedisNodeType", "cache.t2.small")]).err().unwrap();
    assert!(refused.contains("parameter `RedisNodeType`"), "{refused}");
    for node in ["cache.t4g.medium", "cache.m7g.large", "cache.r6gd.xlarge", "cache.c7gn.16xlarge"] {
        with(&[("RedisNodeType", node)]);
    }
}

/// Subjects of Cognito, Auth0 and Okta are no numbers. `Bearer 7` of the local stack is.
#[test]
fn any_subject_is_a_user_of_a_deployment_and_numbers_are_users_of_the_local_stack() {
    assert!(resolved().functions.values().all(|function| function.environment["USER_IDS"] == "mapped"));
    let local = Options::new("").parameters;
    assert_eq!(local["UserIds"], "numeric");
    let local: Vec<(&str, &str)> = local.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert!(with(&local).functions.values().all(|function| function.environment["USER_IDS"] == "numeric"));
}

#[test]
fn a_client_without_a_token_cannot_use_up_the_rate_of_the_api() {
    let document = template_document();
    let api = &document["Resources"]["Api"]["Properties"];
    let own = json!({ "ThrottlingRateLimit": { "Ref": "OpenRate" }, "ThrottlingBurstLimit": { "Ref": "OpenRate" } });
    let open = routes(&resolved()).into_iter().filter(|route| !route.authorized);
    let key = |route: HttpRoute| if route.path == "$default" { route.path } else { format!("{} {}", route.method, route.path) };
    let open: BTreeSet<String> = open.map(key).collect();
    let settings: BTreeSet<String> = entries(&api["RouteSettings"]).into_iter().map(|(key, _)| key).collect();
    assert_eq!(settings, open);
    assert!(entries(&api["RouteSettings"]).values().all(|settings| *settings == own), "{}", api["RouteSettings"]);
    let default = |name: &str| document["Parameters"][name]["Default"].as_u64().unwrap();
    assert!(10 * default("OpenRate") <= default("RequestRate"));
}

/// SAM publishes a version when the template or the code changes. It does not compare the values of parameters.
#[test]
fn a_changed_parameter_publishes_new_versions() {
    // Secrets and long lists cannot be in a description.
    const BY_RELEASE: [&str; 6] = ["RedisUrl", "SubnetIds", "EventBus", "RolloutUsers", "LegacyRedisUrl", "MigrationSources"];
    let document = template_document();
    let told = document["Parameters"]["Release"]["Description"].as_str().unwrap();
    assert!(BY_RELEASE.iter().all(|name| told.contains(name)), "{told}");
    let shared = entries(&document["Globals"]["Function"]["Environment"]["Variables"]);
    for (id, function) in resources(&document, "AWS::Serverless::Function") {
        let mut variables = shared.clone();
        variables.extend(entries(&function["Properties"]["Environment"]["Variables"]));
        if id == "LiveAuthorizerFunction" {
            let read = authorizer_variables();
            variables.retain(|name, _| read.contains(name));
        }
        let configured: String = variables.values().map(Value::to_string).collect();
        let mut wanted: Vec<String> = entries(&document["Parameters"]).into_iter().map(|(name, _)| name).collect();
        wanted.retain(|name| configured.contains(&format!("{{\"Ref\":\"{name}\"}}")) && !BY_RELEASE.contains(&name.as_str()));
        assert!(wanted.len() >= 6, "{id}: {wanted:?}");
        let described = described(&function);
        for name in &wanted {
            assert!(described.contains(name), "{id} keeps its version when {name} changes");
        }
    }
}

/// The parameters in the description of a function's versions.
fn described(function: &Value) -> Vec<String> {
    let description = function["Properties"]["VersionDescription"]["Fn::Sub"].as_str().unwrap();
    let name = |word: &str| word.strip_prefix("${").and_then(|word| word.strip_suffix('}')).map(str::to_owned);
    description.split(' ').map(|word| name(word).unwrap_or_else(|| panic!("{word} is no parameter"))).collect()
}

/// The variables that `live-authorizer` reads, and those of the log level and of `Release`.
fn authorizer_variables() -> BTreeSet<String> {
    let read = RefCell::new(BTreeSet::from(["RUST_LOG", "RELEASE"].map(str::to_owned)));
    let lookup = |name: &str| {
        read.borrow_mut().insert(name.to_owned());
        Some("given".to_owned())
    };
    AuthorizerSettings::from_lookup(lookup).unwrap();
    read.into_inner()
}

#[test]
fn no_value_of_a_parameter_makes_the_description_of_a_version_longer_than_aws_accepts() {
    const MOST: usize = 256;
    let document = template_document();
    let longest = |name: &str| -> usize {
        let parameter = &document["Parameters"][name];
        let allowed = parameter["AllowedValues"].as_array().into_iter().flatten();
        let allowed = allowed.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned).len()).max();
        let number = parameter["MaxValue"].as_u64().map(|most| most.to_string().len());
        let text = parameter["MaxLength"].as_u64().map(|most| usize::try_from(most).unwrap());
        allowed.or(number).or(text).unwrap_or_else(|| panic!("{name} has no bound"))
    };
    for (id, function) in resources(&document, "AWS::Serverless::Function") {
        let described = described(&function);
        let length = described.iter().map(|name| longest(name)).sum::<usize>() + described.len() - 1;
        assert!(length <= MOST, "{id}: {length} characters");
    }
}

#[test]
fn queues_and_the_topic_refuse_requests_without_tls() {
    let document = template_document();
    let refused = json!({ "Bool": { "aws:SecureTransport": "false" } });
    for (policy, kind, covered, all) in [
        ("AWS::SQS::QueuePolicy", "AWS::SQS::Queue", "Queues", "sqs:*"),
        ("AWS::SNS::TopicPolicy", "AWS::SNS::Topic", "Topics", "sns:Publish"),
    ] {
        let policies: Vec<Value> = resources(&document, policy).into_values().map(|body| body["Properties"].clone()).collect();
        let statements = policies.iter().flat_map(|policy| policy["PolicyDocument"]["Statement"].as_array().unwrap());
        let denies = json!({ "Effect": "Deny", "Principal": "*", "Action": all, "Condition": refused });
        assert_eq!(statements.filter(|statement| has(statement, &denies)).count(), policies.len(), "{policy}");
        let listed: BTreeSet<String> = policies
            .iter()
            .flat_map(|policy| policy[covered].as_array().unwrap())
            .map(|name| name["Ref"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(listed, resources(&document, kind).into_keys().collect(), "each {kind} has the policy");
    }
}

#[test]
fn a_key_of_the_operator_encrypts_everything_that_is_stored_and_functions_may_use_it() {
    let document = template_document();
    assert_eq!(document["Parameters"]["KmsKeyArn"]["Default"], "", "off by default");
    let given = json!({ "Fn::If": ["OwnKey", { "Ref": "KmsKeyArn" }, { "Ref": "AWS::NoValue" }] });
    let mut stored = 0;
    for (kind, property) in [
        ("AWS::SQS::Queue", "KmsMasterKeyId"),
        ("AWS::SNS::Topic", "KmsMasterKeyId"),
        ("AWS::Logs::LogGroup", "KmsKeyId"),
        ("AWS::ElastiCache::ReplicationGroup", "KmsKeyId"),
        ("AWS::SecretsManager::Secret", "KmsKeyId"),
    ] {
        for (id, resource) in resources(&document, kind) {
            assert_eq!(resource["Properties"][property], given, "{id}");
            stored += 1;
        }
    }
    assert!(stored >= 12, "{stored}");
    for (id, table) in resources(&document, "AWS::DynamoDB::Table") {
        let own = &table["Properties"]["SSESpecification"]["Fn::If"];
        let by_key = json!({ "SSEEnabled": true, "SSEType": "KMS", "KMSMasterKeyId": { "Ref": "KmsKeyArn" } });
        assert_eq!((&own[0], &own[1]), (&json!("OwnKey"), &by_key), "{id}");
    }
    assert_eq!(document["Globals"]["Function"]["KmsKeyArn"], given);
    let basics = &document["Resources"]["FunctionBasics"]["Properties"]["PolicyDocument"]["Statement"];
    let may = basics.as_array().unwrap().iter().find(|statement| statement["Fn::If"][0] == "OwnKey").unwrap();
    let statement = &may["Fn::If"][1];
    let actions = json!(["kms:Decrypt", "kms:GenerateDataKey"]);
    assert_eq!((&statement["Action"], &statement["Resource"]), (&actions, &json!({ "Ref": "KmsKeyArn" })));
    with(&[("KmsKeyArn", "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab")]);
    assert!(load(&[("KmsKeyArn", "alias/own")]).is_err());
}

#[test]
fn spending_can_be_bounded_and_watched_and_is_neither_by_default() {
    let document = template_document();
    for name in ["MostReadUnits", "MostWriteUnits", "MonthlyBudget"] {
        assert_eq!(document["Parameters"][name]["Default"], 0, "{name}");
    }
    let units = json!({ "MaxReadRequestUnits": { "Ref": "MostReadUnits" }, "MaxWriteRequestUnits": { "Ref": "MostWriteUnits" } });
    let capped = json!({ "Fn::If": ["UnitsCapped", units, { "Ref": "AWS::NoValue" }] });
    for (id, table) in resources(&document, "AWS::DynamoDB::Table") {
        assert_eq!(table["Properties"]["OnDemandThroughput"], capped, "{id}");
    }
    let budget = &resources(&document, "AWS::Budgets::Budget")["Budget"];
    assert_eq!(budget["Condition"], "HasBudget");
    let of_stack = &budget["Properties"]["Budget"]["CostFilters"]["TagKeyValue"][0]["Fn::Sub"];
    assert_eq!(of_stack, "aws:cloudformation:stack-name$${AWS::StackName}");
    with(&[("MostReadUnits", "1000"), ("MostWriteUnits", "500"), ("MonthlyBudget", "300"), ("AlarmEmail", "a@b.c")]);
}

#[test]
fn a_domain_of_the_operator_has_no_prefix_and_none_is_the_default() {
    let document = template_document();
    for name in ["DomainName", "LiveDomainName", "CertificateArn"] {
        assert_eq!(document["Parameters"][name]["Default"], "", "{name}");
    }
    let mappings = resources(&document, "AWS::ApiGatewayV2::ApiMapping");
    assert_eq!(mappings.len(), 2);
    for (id, mapping) in mappings {
        assert!(
            mapping["Condition"].is_string() && mapping["Properties"]["ApiMappingKey"].is_null(),
            "{id}: links lack a prefix"
        );
    }
    for domain in resources(&document, "AWS::ApiGatewayV2::DomainName").values() {
        let security = &domain["Properties"]["DomainNameConfigurations"][0]["SecurityPolicy"];
        assert_eq!(security, "TLS_1_2");
    }
    let certificate = ("CertificateArn", "arn:aws:acm:eu-central-1:123456789012:certificate/1");
    with(&[("DomainName", "api.tidemark.test"), ("LiveDomainName", "live.tidemark.test"), certificate]);
    assert!(load(&[("DomainName", "https://api.tidemark.test/v1")]).is_err());
}
