//! A simulation of the bundle under a stated load. docs/scale.md describes the model.
//!
//! Rates, units and dollars follow from formulas (`demand`, `prices`, `limits`). Times of fan-outs are simulated
//! message by message (`sim`). Costs of Redis are those that `make bench` measured (`measured`).

pub mod check;
pub mod demand;
pub mod followers;
pub mod inputs;
pub mod limits;
pub mod measured;
pub mod prices;
pub mod redis;
pub mod report;
pub mod sim;
