//! A client of the WebSocket API.

use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Error, Message},
};

use crate::{PATIENCE, World};

pub struct LiveConnection(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl World {
    /// Opens a live connection with this token. Returns the status of the handshake if it is refused.
    pub async fn try_live(&self, token: Option<&str>) -> Result<LiveConnection, u16> {
        let address = self.stack.base_url().replace("http://", "ws://");
        let encoded = |byte: u8| if byte.is_ascii_alphanumeric() { char::from(byte).into() } else { format!("%{byte:02X}") };
        let query = token.map(|token| format!("?token={}", token.bytes().map(encoded).collect::<String>())).unwrap_or_default();
        match connect_async(format!("{address}/v1/live{query}")).await {
            Ok((socket, _)) => Ok(LiveConnection(socket)),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Opens a live connection of a user.
    pub async fn live(&self, user: u64) -> LiveConnection {
        self.try_live(Some(&user.to_string())).await.expect("the connection is accepted")
    }
}

impl LiveConnection {
    /// Returns the next message, without those of the inbox.
    pub async fn next(&mut self) -> Value {
        loop {
            let message = self.next_of_any().await;
            if message["type"] != "inbox" {
                return message;
            }
        }
    }

    /// Returns the number of unread groups that the next message of the inbox tells.
    pub async fn inbox(&mut self) -> u64 {
        loop {
            let message = self.next_of_any().await;
            if message["type"] == "inbox" {
                assert!(message["at"].is_string(), "{message}");
                return message["unread"].as_u64().expect("a number");
            }
        }
    }

    async fn next_of_any(&mut self) -> Value {
        let next = tokio::time::timeout(PATIENCE, self.0.next()).await.expect("a message in time");
        match next.expect("the connection is open").expect("a message") {
            Message::Text(text) => serde_json::from_str(&text).expect("JSON"),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the next message, which must tell counts, without its time.
    pub async fn unread(&mut self) -> Value {
        let mut message = self.next().await;
        assert_eq!(message["type"], "unread", "{message}");
        assert!(message["at"].is_string());
        message.as_object_mut().expect("an object").remove("at");
        message
    }

    /// Reads messages until one tells this total.
    pub async fn total(&mut self, total: u64) -> Value {
        loop {
            let message = self.next().await;
            if message["type"] == "unread" && message["total"] == total {
                return message;
            }
        }
    }

    pub async fn send(&mut self, text: &str) {
        self.0.send(Message::text(text)).await.expect("sent");
    }

    /// Sends a ping and waits for its pong, which is the next message.
    pub async fn ping(&mut self) {
        self.send(&json!({ "type": "ping" }).to_string()).await;
        assert_eq!(self.next().await, json!({ "type": "pong" }));
    }

    /// Sends a ping that names these platforms. Returns the messages that arrive before its pong.
    pub async fn ping_platforms(&mut self, platforms: &[u16]) -> Vec<Value> {
        self.send(&json!({ "type": "ping", "platforms": platforms }).to_string()).await;
        let mut before = Vec::new();
        loop {
            match self.next().await {
                pong if pong == json!({ "type": "pong" }) => return before,
                other => before.push(other),
            }
        }
    }

    /// Reads messages until one tells unread notices. Returns the platform and their number.
    pub async fn notices(&mut self) -> (u64, u64) {
        loop {
            let message = self.next().await;
            if message["type"] == "notices" {
                assert!(message["at"].is_string(), "{message}");
                return (message["platform"].as_u64().expect("a platform"), message["unread"].as_u64().expect("a number"));
            }
        }
    }

    /// Returns the messages that are here, without those of the inbox. The caller has waited until no work is left.
    pub async fn arrived(&mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        while let Ok(next) = tokio::time::timeout(Duration::from_millis(100), self.0.next()).await {
            let Some(Ok(Message::Text(text))) = next else { panic!("{next:?}") };
            messages.push(serde_json::from_str(&text).expect("JSON"));
        }
        messages.retain(|message: &Value| message["type"] != "inbox");
        messages
    }

    /// Returns true if no message is here but those of the inbox. The caller has waited until no work is left.
    pub async fn is_silent(&mut self) -> bool {
        self.arrived().await.is_empty()
    }

    pub async fn close(mut self) {
        self.0.close(None).await.expect("closed");
    }
}
