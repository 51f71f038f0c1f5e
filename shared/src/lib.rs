//! placeholder
#[cfg(feature = "adapters")]
pub mod telemetry { 
    /// placeholder
    pub fn init() {} }
#[cfg(feature = "adapters")]
pub use app::{App, Settings};
#[cfg(feature = "adapters")]
mod app {
    /// placeholder
    #[derive(Debug)]
    pub struct App;
    impl App { 
        /// placeholder
        pub async fn connect(_s: Settings) -> Result<Self, std::io::Error> { Ok(App) } }
    /// placeholder
    #[derive(Debug)]
    pub struct Settings;
    impl Settings {
        /// placeholder
        pub fn from_env() -> Result<Self, std::io::Error> { Ok(Self) }
        /// placeholder
        pub fn from_lookup(_f: impl Fn(&str) -> Option<String>) -> Result<Self, std::io::Error> { Ok(Self) }
    }
}
