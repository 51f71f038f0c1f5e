//! The queues as pollers see them: the stack's own, or those elsewhere.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use rustack_sqs_model::input::SendMessageInput;

use super::{Counts, Message, Queues};
use crate::{elsewhere::Elsewhere, template::Queue};

pub(crate) struct Source {
    /// Elsewhere they are empty, and only their definitions are used.
    pub(crate) own: Arc<Queues>,
    pub(crate) elsewhere: Option<Elsewhere>,
}

impl Source {
    fn elsewhere(&self, name: &str) -> Option<(&Elsewhere, &Queue)> {
        self.elsewhere.as_ref().zip(self.own.definition(name).ok())
    }

    pub(crate) async fn arrival(&self, name: &str) {
        match self.elsewhere(name) {
            Some((elsewhere, queue)) => elsewhere.arrival(queue).await,
            None => self.own.arrival(name).await,
        }
    }

    /// Receives up to `most` messages without waiting.
    pub(crate) async fn receive(&self, name: &str, most: usize) -> Result<Vec<Message>> {
        match self.elsewhere(name) {
            Some((elsewhere, queue)) => elsewhere.receive(queue, most).await,
            None => Ok(self.own.receive_now(name, most, None)?),
        }
    }

    /// Lets a message return after its receiver failed: after `delay`, or without one when its visibility timeout ends.
    pub(crate) async fn failed(&self, name: &str, handle: &str, delay: Option<Duration>) -> Result<()> {
        match (self.elsewhere(name), delay) {
            (Some((elsewhere, queue)), Some(delay)) => {
                // A visibility timeout is a number of whole seconds.
                tokio::time::sleep(delay).await;
                return elsewhere.failed(queue, handle).await;
            }
            (Some(_), None) => {}
            (None, _) => self.own.failed(name, handle, delay),
        }
        Ok(())
    }

    pub(crate) async fn delete(&self, name: &str, handles: &[String]) -> Result<()> {
        match self.elsewhere(name) {
            Some((elsewhere, queue)) => elsewhere.delete(queue, handles).await,
            None => Ok(self.own.delete(name, handles).await.map(drop)?),
        }
    }

    pub(crate) async fn send(&self, name: &str, body: String) -> Result<()> {
        match self.elsewhere(name) {
            Some((elsewhere, queue)) => elsewhere.send(queue, &body).await,
            None => {
                let input = SendMessageInput { message_body: body, ..SendMessageInput::default() };
                Ok(self.own.send(name, vec![input]).await.map(drop)?)
            }
        }
    }

    pub(crate) async fn counts(&self, name: &str) -> Result<Counts> {
        match self.elsewhere(name) {
            Some((elsewhere, queue)) => elsewhere.counts(queue).await,
            None => Ok(self.own.counts(name)),
        }
    }
}
