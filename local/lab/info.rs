//! What a Redis server reports about itself.

use std::{collections::HashMap, str::FromStr};

use anyhow::Context;

/// The response of INFO.
#[derive(Debug, Clone, Default)]
pub(crate) struct Info {
    fields: HashMap<String, String>,
}

impl Info {
    pub(crate) fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self { fields: fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect() }
    }

    pub(crate) fn text(&self, name: &str) -> anyhow::Result<&str> {
        self.fields.get(name).map(String::as_str).with_context(|| format!("INFO has no {name}"))
    }

    /// Name and version of the server. Valkey also tells the version of Redis that it is compatible with.
    pub(crate) fn server(&self) -> anyhow::Result<String> {
        match self.text("valkey_version") {
            Ok(version) => Ok(format!("Valkey {version}")),
            Err(_) => Ok(format!("Redis {}", self.text("redis_version")?)),
        }
    }

    pub(crate) fn number<T: FromStr>(&self, name: &str) -> anyhow::Result<T> {
        let text = self.text(name)?;
        text.parse().ok().with_context(|| format!("{name} is {text:?} in INFO"))
    }

    /// CPU time of the thread that runs the commands, in µs. `None` if the server does not report it.
    pub(crate) fn main_thread_us(&self) -> Option<f64> {
        let seconds = |name: &str| self.number::<f64>(name).ok();
        Some((seconds("used_cpu_user_main_thread")? + seconds("used_cpu_sys_main_thread")?) * 1e6)
    }

    /// The commands since the last reset of the statistics, each with its total time in µs.
    pub(crate) fn commands(&self) -> HashMap<&str, u64> {
        let usec = |value: &str| value.split(',').find_map(|part| part.strip_prefix("usec=")?.parse().ok());
        self.fields.iter().filter_map(|(name, value)| Some((name.strip_prefix("cmdstat_")?, usec(value)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_command_times_are_read() {
        let text = "# Server\r\nredis_version:7.0.15\r\nused_cpu_sys_main_thread:0.000500\r\nused_cpu_user_main_thread:1.500000\r\n\
                    cmdstat_hget:calls=2,usec=31,usec_per_call=15.50,rejected_calls=0,failed_calls=0\r\n\
                    cmdstat_config|resetstat:calls=1,usec=9,usec_per_call=9.00,rejected_calls=0,failed_calls=0\r\n";
        let info = Info::parse(text);
        assert_eq!(info.server().unwrap(), "Redis 7.0.15");
        assert_eq!(Info::parse("redis_version:7.2.4\r\nvalkey_version:8.1.1").server().unwrap(), "Valkey 8.1.1");
        assert_eq!(info.commands(), HashMap::from([("hget", 31), ("config|resetstat", 9)]));
        assert_eq!(info.main_thread_us().map(f64::round), Some(1_500_500.0));
        assert!(info.number::<u64>("redis_version").is_err());
        assert!(info.text("connected_clients").is_err());
        assert_eq!(Info::parse("").main_thread_us(), None);
    }
}
