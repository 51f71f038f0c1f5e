//! [`Connections`] of the WebSocket API.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use tokio::sync::mpsc::UnboundedSender;

use crate::lock::lock;

/// An order to the task that holds a connection.
#[derive(Debug)]
pub(crate) enum Order {
    Send(String),
    Close,
    /// Without a close frame and without an event for the function.
    Drop,
}

#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) orders: UnboundedSender<Order>,
    pub(crate) connected_at: u64,
    pub(crate) active_at: u64,
    pub(crate) user_agent: String,
}

/// The open connections, by id.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<HashMap<String, Open>>);

impl Connections {
    pub(crate) fn open(&self) -> MutexGuard<'_, HashMap<String, Open>> {
        lock(&self.0)
    }

    /// Drops all connections without an event. Returns their number.
    pub(crate) fn drop_all(&self) -> usize {
        let open: Vec<Open> = self.open().drain().map(|(_, open)| open).collect();
        open.iter().for_each(|open| drop(open.orders.send(Order::Drop)));
        open.len()
    }

    pub(crate) fn order(&self, id: &str, order: Order) -> bool {
        self.open().get(id).is_some_and(|open| open.orders.send(order).is_ok())
    }
}
