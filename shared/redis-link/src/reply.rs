//! [`Reply`], and how its values are decoded.

use redis::{FromRedisValue, Value, from_redis_value};

use crate::{Result, epoch::Epoch, error::link_error};

/// The response to a [`Bundle`](crate::Bundle), or to all of a trip.
#[derive(Debug)]
pub struct Reply {
    /// One value for each command. Only a value of a trip may be an error.
    pub values: Vec<Value>,
    /// The epoch of the server that returned the values.
    pub epoch: Epoch,
}

impl Reply {
    /// The last value, and the epoch.
    pub fn last(mut self) -> (Value, Epoch) {
        (self.values.pop().unwrap_or(Value::Nil), self.epoch)
    }
}

/// Decodes a value of a [`Reply`].
pub fn read<T: FromRedisValue>(operation: &'static str, response: Value) -> Result<T> {
    from_redis_value(response).map_err(|error| link_error(operation, error.into()))
}
