//! The metrics of a stack, and the lines that carry their values.

use std::collections::BTreeMap;

use serde::Serialize;
use tidemark_domain::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Values of one invocation are added up.
    Count,
    /// Values are kept one by one, so that percentiles are exact.
    Milliseconds,
}

/// Values of one metric that a line may have. The embedded metric format allows no more.
pub const MOST_VALUES: usize = 100;

macro_rules! metrics {
    ($($(#[$doc:meta])* $metric:ident: $unit:ident, $dimensions:expr;)*) => {
        /// A metric in the namespace of the stack. Dashboard and alarms of `template.yaml` name these.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Metric {
            $($(#[$doc])* $metric),*
        }

        impl Metric {
            pub const ALL: &[Self] = &[$(Self::$metric),*];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$metric => stringify!($metric)),* }
            }

            pub const fn unit(self) -> Unit {
                match self { $(Self::$metric => Unit::$unit),* }
            }

            /// The sets of dimensions of which a line uses one: the first whose dimensions it has.
            pub const fn dimension_sets(self) -> &'static [&'static [&'static str]] {
                match self { $(Self::$metric => $dimensions),* }
            }
        }
    };
}

metrics! {
    /// The time of a request in its function.
    RequestLatency: Milliseconds, &[&["Route", "StatusClass"]];
    /// Responses with `degraded`: Redis was unavailable, or the outage note stood.
    DegradedResponses: Count, &[&[]];
    ColdStarts: Count, &[&[]];
    /// The time from the publish of a post to the end of its delivery.
    DeliveryLag: Milliseconds, &[&[]];
    /// Followers in the pages that were delivered.
    FollowersDelivered: Count, &[&[]];
    /// The time of the delivery of one page, from its first read to its last write.
    PageDeliveryTime: Milliseconds, &[&[]];
    /// Views of readers that were rebuilt from the facts.
    Rebuilds: Count, &[&[]];
    DifferencesFound: Count, &[&["Job", "Kind"], &["Job"]];
    DifferencesRepaired: Count, &[&["Job", "Kind"], &["Job"]];
    /// The users, posts, records and keys that reconcile looked at.
    LookedAt: Count, &[&["Job"]];
    /// The time from a change of a fact until the event bus has accepted its event.
    EventLag: Milliseconds, &[&[]];
    /// Events that the event bus did not accept. They are sent again, or given up.
    EventsRefused: Count, &[&[]];
    /// Looks and repairs of reconcile that failed.
    Failed: Count, &[&["Job"]];
}

/// The values of metrics. A count has one value.
pub type Values = BTreeMap<Metric, Vec<f64>>;

/// A value of a line that is no metric. Text may be a dimension.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Property {
    Text(String),
    Number(u64),
    Milliseconds(f64),
    Flag(bool),
}

/// A line of the log with values of metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub at: Timestamp,
    pub properties: Vec<(&'static str, Property)>,
    pub values: Values,
}

impl Line {
    /// The dimensions under which this line counts the metric.
    pub fn dimensions_of(&self, metric: Metric) -> &'static [&'static str] {
        let has = |name: &&str| self.properties.iter().any(|(property, _)| property == name);
        metric.dimension_sets().iter().find(|set| set.iter().all(has)).copied().unwrap_or_default()
    }
}

/// Writes lines where the monitoring of the stack reads them. It makes no call over the network.
pub trait Metrics: Send + Sync {
    fn write(&self, line: &Line);
}
