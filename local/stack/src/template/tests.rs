use super::*;

fn real() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../template.yaml")).unwrap()
}

#[test]
fn the_template_of_this_project_resolves() {
    let template = Template::parse(&real(), &Bindings::default()).unwrap();
    let publish = template.function("publish").unwrap();
    assert_eq!(publish.logical_id, "PublishFunction");
    assert_eq!(publish.environment["POSTS_TABLE"], "PostsTable");
    assert_eq!(publish.environment["FAN_OUT_QUEUE_URL"], "http://127.0.0.1:9324/000000000000/FanOutQueue");
    assert!(publish.events.iter().any(|event| matches!(&event.source, EventSource::Http(route) if route.method == "POST" && route.path == "/v1/posts" && route.authorized)));

    let queue = &template.queues["FanOutQueue"];
    assert_eq!(queue.redrive.as_ref().unwrap().target, "FanOutDeadLetters");
    let posts = &template.tables["PostsTable"];
    assert!(posts.global_indexes.iter().any(|index| index.name == "by-time"));
    assert_eq!(template.tables["FollowingTable"].stream_view.as_deref(), Some("NEW_AND_OLD_IMAGES"));
    assert_eq!(template.tables["IdempotencyTable"].ttl_attribute.as_deref(), Some("expires_at"));
}

#[test]
fn every_kind_of_event_source_is_read_with_its_settings() {
    let template = Template::parse(&real(), &Bindings::default()).unwrap();
    let sources = |binary: &str| template.function(binary).unwrap().events.iter().map(|e| e.source.clone()).collect::<Vec<_>>();
    let health_is_open =
        sources("read-feed").iter().any(|s| matches!(s, EventSource::Http(r) if r.path == "/v1/health" && !r.authorized));
    assert!(health_is_open);
    let Some(EventSource::Sqs(sqs)) = sources("fan-out").into_iter().next() else { panic!("fan-out has a queue") };
    assert_eq!((sqs.queue.as_str(), sqs.batch_size, sqs.report_failures), ("FanOutQueue", 3, true));
    let streams = sources("projector").into_iter().find(|source| matches!(source, EventSource::Stream(_)));
    let Some(EventSource::Stream(stream)) = streams else { panic!("the projector has a stream") };
    assert_eq!(stream.table, "FollowingTable");
    assert_eq!(stream.on_failure.as_deref(), Some("ProjectorFailuresQueue"));
    assert!(stream.bisect && stream.report_failures && stream.from_oldest);
    assert!(sources("reconcile").iter().any(|s| matches!(s, EventSource::Schedule(s) if s.input.is_object())));
}

#[test]
fn parameters_are_overridden_and_a_value_that_cloudformation_refuses_is_refused_with_its_rule() {
    let parsed = |name: &str, value: &str| {
        let parameters = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        Template::parse(&real(), &Bindings { parameters, ..Bindings::default() })
    };
    for (name, value, message) in [
        ("FollowingLimit", "501", "parameter `FollowingLimit`: `501` is more than 500 (MaxValue)"),
        ("FollowingLimit", "0", "parameter `FollowingLimit`: `0` is less than 1 (MinValue)"),
        ("RankHalfLife", "12h", "parameter `RankHalfLife`: `12h` is not a number (Type)"),
        ("LogLevel", "loud", "parameter `LogLevel`: `loud` is not one of WARN, INFO, DEBUG, TRACE (AllowedValues)"),
        ("LogRetentionDays", "2", "`2` is not one of 1, 3, 5, 7, 14, 30, 60, 90, 180, 365 (AllowedValues)"),
        ("JwtIssuer", "http://x", "`http://x` does not match https://.+ (AllowedPattern): must be an https address"),
        ("NetworkPrefix", "10.42.0", "`10.42.0` does not match \\d+\\.\\d+ (AllowedPattern)"),
        ("CorsOrigins", "https://a.example/", "parameter `CorsOrigins`: `https://a.example/` does not match"),
        ("CorsOrigins", "https://a.example, https://b.example", "without spaces"),
        ("RedisUrl", "secret:6379", "parameter `RedisUrl`: the value "),
        ("FolowingLimit", "3", "the template has no parameter `FolowingLimit`; its parameters are "),
    ] {
        let error = format!("{:#}", parsed(name, value).unwrap_err());
        assert!(error.contains(message), "{name}={value}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
    for value in ["*", "https://a.example,http://localhost:5173"] {
        assert!(parsed("CorsOrigins", value).is_ok(), "{value}");
    }
    for value in ["3", "500"] {
        let template = parsed("FollowingLimit", value).unwrap();
        assert_eq!(template.function("follow").unwrap().environment["FOLLOWING_LIMIT"], value);
    }
}

#[test]
fn an_error_in_the_template_names_its_resource() {
    let queue = "Queue: !GetAtt FanOutQueue.Arn";
    for (from, to, named) in [
        (queue, "Queue: !GetAtt FanOutQueu.Arn", ["FanOutFunction", "FanOutQueu"]),
        ("POSTS_TABLE: !Ref PostsTable", "POSTS_TABLE: !Ref PostTable", ["Globals", "PostTable"]),
        (queue, "Queue: arn:aws:sqs:us-east-1:000000000000:Elsewhere", ["FanOutFunction", "Elsewhere"]),
        (
            "Stream: !GetAtt FollowingTable.StreamArn",
            "Stream: !GetAtt CountersTable.StreamArn",
            ["MigrateFunction", "CountersTable"],
        ),
        ("Stream: !GetAtt FollowingTable.StreamArn", "FilterCriteria: {Filters: []}", ["ProjectorFunction", "FilterCriteria"]),
        ("FAN_OUT_QUEUE_URL: !Ref FanOutQueue", "FAN_OUT_QUEUE_URL: !Ref FanOutQueue.Arn", ["Globals", "FanOutQueue.Arn"]),
        ("Type: ScheduleV2", "Type: Schedule", ["MigrateFunction", "does not support `Schedule`"]),
        ("rate(1 minute)", "rate(1 fortnight)", ["ReconcileFunction", "fortnight"]),
    ] {
        let text = real();
        assert!(text.contains(from), "the template no longer says {from}");
        let error = format!("{:#}", Template::parse(&text.replace(from, to), &Bindings::default()).unwrap_err());
        assert!(named.iter().all(|name| error.contains(name)), "{error}");
    }
}

#[test]
fn intrinsic_functions_evaluate_in_both_spellings() {
    let text = r#"
Parameters:
  Stage: {Type: String, Default: dev}
  Ids: {Type: CommaDelimitedList, Default: "a, b"}
Conditions:
  IsProd: !Equals [!Ref Stage, prod]
  NotProd: !Not [!Condition IsProd]
Globals: {Function: {Timeout: 5, Environment: {Variables: {A: global, B: global}}}}
Resources:
  Jobs: {Type: AWS::SQS::Queue, Properties: {QueueName: !Sub "jobs-${Stage}", RedrivePolicy: {deadLetterTargetArn: {"Fn::GetAtt": [Dead, Arn]}, maxReceiveCount: "3"}}}
  Dead: {Type: AWS::SQS::Queue}
  Gone: {Type: AWS::SQS::Queue, Condition: IsProd}
  Watch: {Type: AWS::CloudWatch::Alarm, Properties: {Name: !GetAtt Jobs.QueueName, Alias: !Ref WorkerAliasLive}}
  Worker:
    Type: AWS::Serverless::Function
    Metadata: {BuildProperties: {Binary: worker}}
    Properties:
      Environment:
        Variables:
          B: !If [IsProd, big, small]
          C: !Join ["-", [!Ref Stage, !Select [1, !Ref Ids]]]
          D: !If [NotProd, !Ref AWS::NoValue, x]
          F: {"Fn::Sub": ["${!keep}/${X}/${Jobs.Arn}", {X: {Ref: Stage}}]}
          G: !Ref Jobs
"#;
    let template = Template::parse(text, &Bindings::default()).unwrap();
    let worker = &template.functions["Worker"];
    assert_eq!(worker.timeout_seconds, 5);
    let expected = [
        ("A", "global"),
        ("B", "small"),
        ("C", "dev-b"),
        ("F", "${keep}/dev/arn:aws:sqs:us-east-1:000000000000:jobs-dev"),
        ("G", "http://127.0.0.1:9324/000000000000/jobs-dev"),
    ];
    let expected: BTreeMap<String, String> = expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    assert_eq!(worker.environment, expected);
    assert_eq!(template.queues["Jobs"].redrive.as_ref().unwrap().max_receives, 3);
    assert!(!template.queues.contains_key("Gone"));
}
