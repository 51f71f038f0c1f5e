//! Tests of the queue endpoint through the AWS SDK.

use std::time::Duration;

use aws_sdk_sqs::{
    Client, Config,
    config::{BehaviorVersion, Credentials, Region},
    error::ProvideErrorMetadata as _,
    types::{
        ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, MessageAttributeValue,
        MessageSystemAttributeName, QueueAttributeName, SendMessageBatchRequestEntry,
    },
};
use rustack_sqs_model::input::SendMessageInput;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;
use crate::{
    store::Store,
    template::{Bindings, Template},
    weather::Weather,
};

const TEMPLATE: &str = "
Resources:
  Jobs:
    Type: AWS::SQS::Queue
    Properties:
      VisibilityTimeout: 30
      MaximumMessageSize: 1024
      RedrivePolicy: {deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: '2'}
  Dead: {Type: AWS::SQS::Queue}
";

struct Endpoint {
    client: Client,
    jobs: String,
    dead: String,
    queues: Arc<Queues>,
    store: Arc<Store>,
    surroundings: Surroundings,
    stop: CancellationToken,
    server: JoinHandle<()>,
    folder: TempDir,
}

impl Endpoint {
    async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap()).await
    }

    async fn start_in(folder: TempDir) -> Self {
        let (listener, endpoint) = bind().await.unwrap();
        let template = Template::parse(TEMPLATE, &Bindings { sqs_endpoint: endpoint.clone(), ..Bindings::default() }).unwrap();
        let (store, messages) = Store::open(&folder.path().join("local.sqlite"), journal::load).unwrap();
        let store = Arc::new(store);
        let surroundings = Surroundings::default();
        let declared = template.queues.values().cloned();
        let queues = Arc::new(Queues::new(declared, Arc::clone(&store), messages, Arc::clone(&surroundings.conditions)));
        let stop = CancellationToken::new();
        let server = serve(listener, Arc::clone(&queues), surroundings.clone(), stop.clone());
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .endpoint_url(&endpoint)
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("local", "local", None, None, "test"));
        let client = Client::from_conf(config.build());
        let [jobs, dead] = ["Jobs", "Dead"].map(|id| template.queues[id].url.clone());
        Self { client, jobs, dead, queues, store, surroundings, stop, server, folder }
    }

    async fn send(&self, body: &str) -> String {
        self.client.send_message().queue_url(&self.jobs).message_body(body).send().await.unwrap().message_id.unwrap()
    }

    async fn receive(&self, queue: &str, visibility: i32) -> Vec<aws_sdk_sqs::types::Message> {
        let request = self.client.receive_message().queue_url(queue).max_number_of_messages(10).visibility_timeout(visibility);
        let request = request.message_system_attribute_names(MessageSystemAttributeName::All).message_attribute_names("All");
        request.send().await.unwrap().messages.unwrap_or_default()
    }

    async fn stop(self) -> TempDir {
        self.stop.cancel();
        drop(self.client);
        let _ = self.server.await;
        self.store.close();
        self.folder
    }
}

fn bodies(messages: &[aws_sdk_sqs::types::Message]) -> Vec<&str> {
    messages.iter().filter_map(|message| message.body()).collect()
}

fn receives(message: &aws_sdk_sqs::types::Message) -> &str {
    &message.attributes().unwrap()[&MessageSystemAttributeName::ApproximateReceiveCount]
}

#[tokio::test]
async fn a_message_group_without_a_name_is_refused() {
    let endpoint = Endpoint::start().await;
    let send = async |group: &str| {
        let send = endpoint.client.send_message().queue_url(&endpoint.jobs).message_body("one");
        send.message_group_id(group).send().await.is_ok()
    };
    assert_eq!([send("").await, send("a").await, send(&"a".repeat(129)).await], [false, true, false]);
}

#[tokio::test]
async fn a_message_is_sent_received_and_deleted() {
    let endpoint = Endpoint::start().await;
    let attribute = MessageAttributeValue::builder().data_type("String").string_value("v").build().unwrap();
    let send = endpoint.client.send_message().queue_url(&endpoint.jobs).message_body("one").message_attributes("k", attribute);
    let sent = send.message_group_id("author-7").send().await.unwrap();
    let received = endpoint.receive(&endpoint.jobs, 30).await;
    assert_eq!(bodies(&received), ["one"]);
    assert_eq!(received[0].message_id(), sent.message_id());
    assert_eq!(received[0].md5_of_message_attributes(), sent.md5_of_message_attributes());
    assert_eq!(received[0].message_attributes().unwrap()["k"].string_value(), Some("v"));
    assert_eq!(received[0].attributes().unwrap()[&MessageSystemAttributeName::MessageGroupId], "author-7");
    assert!(endpoint.receive(&endpoint.jobs, 30).await.is_empty(), "the message is in flight");

    let request = endpoint.client.get_queue_attributes().queue_url(&endpoint.jobs).attribute_names(QueueAttributeName::All);
    let attributes = request.send().await.unwrap().attributes.unwrap();
    assert_eq!(attributes[&QueueAttributeName::ApproximateNumberOfMessagesNotVisible], "1");
    assert!(attributes[&QueueAttributeName::RedrivePolicy].contains("\"maxReceiveCount\":2"));

    let handle = received[0].receipt_handle().unwrap();
    endpoint.client.delete_message().queue_url(&endpoint.jobs).receipt_handle(handle).send().await.unwrap();
    assert!(endpoint.queues.counts("Jobs").is_empty());
}

#[tokio::test]
async fn entries_of_a_batch_fail_independently() {
    let endpoint = Endpoint::start().await;
    let entry = |id: &str, body: &str| SendMessageBatchRequestEntry::builder().id(id).message_body(body).build().unwrap();
    let send = || endpoint.client.send_message_batch().queue_url(&endpoint.jobs);
    let batch = send().entries(entry("a", "fine")).entries(entry("b", &"x".repeat(1_025)));
    let sent = batch.send().await.unwrap();
    assert_eq!((sent.successful()[0].id(), sent.failed()[0].id()), ("a", "b"));
    assert!(sent.failed()[0].sender_fault());

    let received = endpoint.receive(&endpoint.jobs, 30).await;
    let good = received[0].receipt_handle().unwrap();
    let delete =
        |id: &str, handle: &str| DeleteMessageBatchRequestEntry::builder().id(id).receipt_handle(handle).build().unwrap();
    let batch = endpoint.client.delete_message_batch().queue_url(&endpoint.jobs);
    let deleted = batch.entries(delete("x", good)).entries(delete("y", "nonsense")).send().await.unwrap();
    assert_eq!((deleted.successful()[0].id(), deleted.failed()[0].id()), ("x", "y"));
    assert_eq!(deleted.failed()[0].code(), "ReceiptHandleIsInvalid");

    let change =
        ChangeMessageVisibilityBatchRequestEntry::builder().id("z").receipt_handle(good).visibility_timeout(1).build().unwrap();
    let batch = endpoint.client.change_message_visibility_batch().queue_url(&endpoint.jobs);
    let changed = batch.entries(change).send().await.unwrap();
    assert_eq!(changed.failed()[0].code(), "MessageNotInflight");

    let same = send().entries(entry("a", "1")).entries(entry("a", "2"));
    let error = same.send().await.unwrap_err().into_service_error();
    assert_eq!(error.code(), Some("AWS.SimpleQueueService.BatchEntryIdsNotDistinct"));
    let nowhere = endpoint.client.send_message().queue_url("http://x/1/Nowhere").message_body("x");
    let error = nowhere.send().await.unwrap_err().into_service_error();
    assert!(error.is_queue_does_not_exist(), "{error:?}");
}

#[tokio::test]
async fn a_message_received_too_often_becomes_a_dead_letter() {
    let endpoint = Endpoint::start().await;
    let id = endpoint.send("poison").await;
    for attempt in ["1", "2"] {
        let received = endpoint.receive(&endpoint.jobs, 0).await;
        assert_eq!(receives(&received[0]), attempt);
    }
    assert!(endpoint.receive(&endpoint.jobs, 0).await.is_empty());
    let dead = endpoint.receive(&endpoint.dead, 30).await;
    assert_eq!(dead[0].message_id(), Some(id.as_str()));
    assert!(endpoint.queues.counts("Jobs").is_empty());

    let arn = |name: &str| endpoint.queues.definition(name).unwrap().arn.clone();
    endpoint.client.start_message_move_task().source_arn(arn("Dead")).send().await.unwrap();
    assert_eq!(bodies(&endpoint.receive(&endpoint.jobs, 0).await), ["poison"]);
}

#[tokio::test]
async fn a_waiting_receive_wakes_for_arrivals_delays_and_visibility() {
    let endpoint = Endpoint::start().await;
    let wait = || endpoint.client.receive_message().queue_url(&endpoint.jobs).wait_time_seconds(20).visibility_timeout(1).send();
    let (received, _) = tokio::join!(wait(), endpoint.send("now"));
    assert_eq!(bodies(&received.unwrap().messages.unwrap()), ["now"]);
    let again = wait().await.unwrap().messages.unwrap();
    assert_eq!(bodies(&again), ["now"], "its visibility timeout has ended");
    let handle = again[0].receipt_handle().unwrap();
    endpoint.client.delete_message().queue_url(&endpoint.jobs).receipt_handle(handle).send().await.unwrap();

    let delayed = async {
        endpoint.client.send_message().queue_url(&endpoint.jobs).message_body("later").delay_seconds(1).send().await.unwrap()
    };
    let (received, _) = tokio::join!(wait(), delayed);
    assert_eq!(bodies(&received.unwrap().messages.unwrap()), ["later"]);
}

#[tokio::test]
async fn messages_that_were_not_deleted_survive_a_restart() {
    let endpoint = Endpoint::start().await;
    let (gone, flying, waiting) = (endpoint.send("gone").await, endpoint.send("flying").await, endpoint.send("waiting").await);
    let received = endpoint.queues.receive_now("Jobs", 2, None).unwrap();
    assert_eq!([&received[0].id, &received[1].id], [&gone, &flying]);
    endpoint.queues.delete("Jobs", &[received[0].handle.clone()]).await.unwrap();

    let endpoint = Endpoint::start_in(endpoint.stop().await).await;
    let received = endpoint.receive(&endpoint.jobs, 0).await;
    assert_eq!(bodies(&received), ["flying", "waiting"]);
    assert_eq!([receives(&received[0]), receives(&received[1])], ["2", "1"]);
    assert_eq!(received[1].message_id(), Some(waiting.as_str()));
    // This receive moves the first message to the dead-letter queue.
    endpoint.receive(&endpoint.jobs, 0).await;

    let endpoint = Endpoint::start_in(endpoint.stop().await).await;
    assert_eq!(bodies(&endpoint.receive(&endpoint.dead, 0).await), ["flying"]);
    assert_eq!(endpoint.queues.counts("Jobs").visible, 1);
}

#[tokio::test]
async fn a_burst_of_one_group_does_not_delay_the_others() {
    let endpoint = Endpoint::start().await;
    let input = |(body, group): (&str, &str)| SendMessageInput {
        message_body: body.to_owned(),
        message_group_id: Some(group.to_owned()),
        ..SendMessageInput::default()
    };
    let burst = [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")].map(input).into();
    endpoint.queues.send("Jobs", burst).await.unwrap();
    let received = endpoint.queues.receive("Jobs", 10, None, Duration::ZERO).await.unwrap();
    let order: Vec<&str> = received.iter().map(|message| message.body.as_str()).collect();
    assert_eq!(order, ["a1", "b1", "a2", "a3"]);
}

#[tokio::test]
async fn a_failed_message_returns_at_the_time_that_its_queue_or_receiver_set() {
    let endpoint = Endpoint::start().await;
    let soon = Duration::from_millis(1);
    for body in ["hidden", "asked", "soon"] {
        endpoint.send(body).await;
    }
    let received = endpoint.queues.receive_now("Jobs", 10, None).unwrap();
    let [hidden, asked, early] = &received[..] else { panic!("{received:?}") };
    endpoint.queues.set_visibility("Jobs", &asked.handle, Duration::from_secs(20)).unwrap();
    endpoint.queues.failed("Jobs", &hidden.handle, None);
    endpoint.queues.failed("Jobs", &asked.handle, Some(soon));
    endpoint.queues.failed("Jobs", &early.handle, Some(soon));
    let again = endpoint.queues.receive("Jobs", 10, None, Duration::from_secs(5)).await.unwrap();
    assert_eq!(again.iter().map(|message| message.body.as_str()).collect::<Vec<_>>(), ["soon"]);
    endpoint.queues.hasten(soon);
    let again = endpoint.queues.receive("Jobs", 10, None, Duration::from_secs(5)).await.unwrap();
    assert_eq!(again.iter().map(|message| message.body.as_str()).collect::<Vec<_>>(), ["hidden"], "its receiver has failed");
    assert_eq!(endpoint.queues.counts("Jobs").in_flight, 3);
}

#[tokio::test]
async fn a_storm_duplicates_delays_and_reorders_messages_and_loses_none() {
    let endpoint = Endpoint::start().await;
    endpoint.surroundings.conditions.set(Weather::Storm, 3);
    let sent: Vec<String> = (0..200).map(|number| format!("{number:03}")).collect();
    let input = |body: &String| SendMessageInput { message_body: body.clone(), ..SendMessageInput::default() };
    endpoint.queues.send("Jobs", sent.iter().map(input).collect()).await.unwrap();
    let counts = endpoint.queues.counts("Jobs");
    assert!(counts.delayed > 0 && !counts.is_empty(), "a delayed message counts as present: {counts:?}");
    let mut order = Vec::new();
    while !endpoint.queues.counts("Jobs").is_empty() {
        let received = endpoint.queues.receive("Jobs", 10, None, Duration::from_secs(5)).await.unwrap();
        let handles: Vec<String> = received.iter().map(|message| message.handle.clone()).collect();
        endpoint.queues.delete("Jobs", &handles).await.unwrap();
        order.extend(received.into_iter().map(|message| message.body));
    }
    assert!(order.len() > sent.len(), "some messages were delivered twice");
    assert!(!order.is_sorted());
    order.sort_unstable();
    order.dedup();
    assert_eq!(order, sent);
}
