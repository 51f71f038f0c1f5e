//! The read units that one request takes.

use std::{cell::Cell, future::Future};

tokio::task_local! {
    static UNITS: Cell<f64>;
}

/// Returns the result of a request, and the read units that [`add`] has noted in its task.
pub async fn counted<T>(request: impl Future<Output = T>) -> (T, f64) {
    let counting = async {
        let result = request.await;
        (result, UNITS.with(Cell::get))
    };
    UNITS.scope(Cell::new(0.0), counting).await
}

/// Notes read units of the request that runs. Outside a request they count for nobody.
pub fn add(units: f64) {
    let _ = UNITS.try_with(|sum| sum.set(sum.get() + units));
}
