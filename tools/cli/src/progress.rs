//! Progress bars: on a terminal, for what takes longer than half a second.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ioverbs::seam;

use crate::quantity;

/// How long nothing is shown: what is over sooner needs no bar.
const PATIENCE_NS: i64 = 500_000_000;

/// How far a transfer is.
pub(crate) struct Progress {
    what: String,
    total: Option<u64>,
    started_ns: i64,
    seen: bool,
    moved: u64,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A transfer of `total` bytes, if that is known, which begins now. `seen`: somebody looks.
    pub(crate) fn new(seen: bool, what: &str, total: Option<u64>) -> Progress {
        Progress { what: what.into(), total, started_ns: seam::monotonic_ns(), seen, moved: 0, bar: None }
    }

    /// So many bytes have moved since the start.
    pub(crate) fn at(&mut self, moved: u64) {
        self.moved = moved;
        if !self.seen {
            return;
        }
        if self.bar.is_none() && seam::monotonic_ns() - self.started_ns > PATIENCE_NS {
            self.bar = Some(bar(&self.what, self.total));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(moved);
        }
    }

    /// Bytes that have moved so far.
    pub(crate) fn moved(&self) -> u64 {
        self.moved
    }

    /// So many bytes more are to be moved than was known.
    pub(crate) fn more(&mut self, bytes: u64) {
        let total = self.total.unwrap_or(self.moved) + bytes;
        self.total = Some(total);
        if let Some(bar) = &self.bar {
            bar.set_length(total);
        }
    }

    /// Takes the bar away and says how it went, as `10 MiB in 0.2 s (50 MiB/s)`.
    pub(crate) fn end(&mut self) -> String {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        let ns = (seam::monotonic_ns() - self.started_ns).max(1) as u64;
        let rate = self.moved as f64 / (ns as f64 / 1e9);
        format!("{} in {} ({}/s)", quantity::human(self.moved), quantity::span(ns), quantity::human(rate as u64))
    }
}

fn bar(what: &str, total: Option<u64>) -> ProgressBar {
    let known = "{msg} [{bar:28}] {percent:>3}% {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";
    let unknown = "{msg} {spinner} {bytes}, {binary_bytes_per_sec}";
    let bar = match total {
        Some(total) => ProgressBar::new(total),
        None => ProgressBar::new_spinner(),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    if let Ok(style) = ProgressStyle::with_template(if total.is_some() { known } else { unknown }) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(crate::output::printable(what.as_bytes()));
    bar
}
