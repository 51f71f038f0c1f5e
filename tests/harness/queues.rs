//! Messages in queues, by the logical id of the queue.

use crate::World;

impl World {
    fn queue_url(&self, queue: &str) -> &str {
        &self.stack.queue(queue).expect("the template has the queue").url
    }

    pub async fn sqs(&self) -> aws_sdk_sqs::Client {
        aws_sdk_sqs::Client::new(&crate::aws_config(self.stack.sqs_endpoint()).await)
    }

    /// The number of messages that no function is working on.
    pub async fn waiting(&self, queue: &str) -> usize {
        self.stack.status().await.expect("a status").queues[queue].visible
    }

    /// Returns the bodies of up to ten messages. They stay in the queue.
    pub async fn messages(&self, queue: &str) -> Vec<String> {
        let receive = self.sqs().await.receive_message().queue_url(self.queue_url(queue));
        let received = receive.max_number_of_messages(10).visibility_timeout(0).send().await.expect("SQS responds");
        received.messages().iter().map(|message| message.body().expect("a body").to_owned()).collect()
    }

    pub async fn send_message(&self, queue: &str, body: &str) {
        let send = self.sqs().await.send_message().queue_url(self.queue_url(queue)).message_body(body);
        send.send().await.expect("the message is sent");
    }

    /// Deletes all messages of a queue.
    pub async fn empty_queue(&self, queue: &str) {
        let purge = self.sqs().await.purge_queue().queue_url(self.queue_url(queue));
        purge.send().await.expect("the queue is emptied");
    }
}
