//! What the figures were measured on.

use serde_json::{Value, json};

fn first_after(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find(|l| l.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Processor, memory, kernel, library: nothing that names the machine.
pub(crate) fn describe() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, |n| n.get());
    let memory = first_after(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
    json!({
        "cpu": first_after(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
        "cores": cores,
        "memory": memory,
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "load_1min": read("/proc/loadavg").split(' ').next().and_then(|l| l.parse::<f64>().ok()),
        "ioverbs": env!("CARGO_PKG_VERSION"),
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
    })
}
