//! Log lines on stderr; `NACRE_LOG` sets the level (error, warn, info, debug, trace).

use tracing::level_filters::LevelFilter;

/// Starts logging; the first call of a process counts.
pub(crate) fn init(default: LevelFilter) {
    let wanted = std::env::var("NACRE_LOG").ok();
    let level = wanted.as_deref().and_then(|text| text.parse().ok()).unwrap_or(default);
    let subscriber = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    let _ = subscriber.try_init(); // already there: an embedded daemon logs where its host does
    if let (Some(text), true) = (wanted, level == default) {
        if text.parse::<LevelFilter>().is_err() {
            tracing::warn!("NACRE_LOG={text} is no level: error, warn, info, debug or trace");
        }
    }
}
