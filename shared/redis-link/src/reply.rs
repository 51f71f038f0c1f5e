//! [`Reply`]: the response of a node to one trip.

use redis::{FromRedisValue, Value, from_redis_value};

use crate::{
    epoch::Epoch,
    error::{LinkError, link_error},
};

#[derive(Debug)]
pub(crate) struct Reply {
    /// One value for each command. A value may be an error.
    pub(crate) values: Vec<Value>,
    /// The epoch of the server that returned the values.
    pub(crate) epoch: Epoch,
}

impl Reply {
    /// The last value, and the epoch.
    pub(crate) fn last(mut self) -> (Value, Epoch) {
        (self.values.pop().unwrap_or(Value::Nil), self.epoch)
    }
}

pub(crate) fn read<T: FromRedisValue>(operation: &'static str, response: Value) -> Result<T, LinkError> {
    from_redis_value(response).map_err(|error| link_error(operation, error.into()))
}
