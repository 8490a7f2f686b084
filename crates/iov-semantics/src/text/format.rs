//! Writing controls as text.

use iov_types::{Atomicity, Consistency, Controls, Limits, Spatiality, Temporality};

use crate::quantity::{format_size, format_time};

/// Writes what is set, in the order of the fields; nothing set is the empty text. [`super::parse`] reads it back.
pub fn format(c: &Controls) -> String {
    let mut out = Out(Vec::new());
    out.value(Consistency::CONTROL, c.consistency.map(Consistency::text), {
        let of_value = c.consistency == Some(Consistency::Eventual);
        Parameter { key: "eventual", text: format_time(c.eventual_ns), set: c.eventual_ns != 0, of_value }
    });
    out.plain("concurrency", c.concurrency.map(|v| v.text().into()));
    out.plain("mutability", c.mutability.map(|v| v.text().into()));
    out.value(Atomicity::CONTROL, c.atomicity.map(Atomicity::text), {
        let of_value = c.atomicity == Some(Atomicity::Unit);
        Parameter { key: "unit", text: format_size(c.atomic_unit), set: c.atomic_unit != 0, of_value }
    });
    match (c.persistence, c.point) {
        (Some(level), Some(point)) => {
            out.plain("persistence", Some(format!("{}@{}", level.text(), point.text())));
        }
        (level, point) => {
            out.plain("persistence", level.map(|v| v.text().into()));
            out.plain("point", point.map(|v| v.text().into()));
        }
    }
    out.value(Temporality::CONTROL, c.temporality.map(Temporality::text), {
        let of_value = c.temporality == Some(Temporality::Bursty);
        Parameter { key: "drain", text: format_time(c.drain_ns), set: c.drain_ns != 0, of_value }
    });
    if c.spatiality == Some(Spatiality::Strided) && c.stride != 0 && c.block != 0 {
        out.plain("spatiality", Some(format!("strided({},{})", format_size(c.stride), format_size(c.block))));
    } else {
        out.plain("spatiality", c.spatiality.map(|v| v.text().into()));
        out.plain("stride", (c.stride != 0).then(|| format_size(c.stride)));
        out.plain("block", (c.block != 0).then(|| format_size(c.block)));
    }
    out.plain("request_size", limits(c.request_size));
    out.plain("collection_size", limits(c.collection_size));
    out.plain("error", c.on_error.map(|v| v.text().into()));
    out.0.join(",")
}

struct Out(Vec<String>);

/// A parameter of a value: `5s` of `eventual(5s)`.
struct Parameter {
    /// Its own key, for where it stands without that value.
    key: &'static str,
    text: String,
    set: bool,
    /// Whether the value it belongs to is the one that is set.
    of_value: bool,
}

impl Out {
    fn plain(&mut self, key: &str, value: Option<String>) {
        self.0.extend(value.map(|v| format!("{key}={v}")));
    }

    fn value(&mut self, key: &str, value: Option<&str>, parameter: Parameter) {
        let Parameter { key: own_key, text, set, of_value } = parameter;
        match value {
            Some(value) if of_value && set => self.plain(key, Some(format!("{value}({text})"))),
            value => {
                self.plain(key, value.map(str::to_owned));
                self.plain(own_key, set.then_some(text));
            }
        }
    }
}

fn limits(l: Limits) -> Option<String> {
    match (l.min, l.max) {
        (0, 0) => None,
        (min, max) if min == max => Some(format_size(min)),
        (min, 0) => Some(format!("{}..", format_size(min))),
        (0, max) => Some(format!("..{}", format_size(max))),
        (min, max) => Some(format!("{}..{}", format_size(min), format_size(max))),
    }
}
