//! Figures: several runs, median, ceiling of the same run, ratio; as JSON (API §5) and as lines for people.

use serde_json::{Map, Value, json};

/// The ways that bytes can go, as the counters `bytes_…` call them.
pub(crate) const TRANSPORTS: [&str; 4] = ["direct", "unix", "tcp", "fabric"];

/// A ceiling, measured in the same run.
#[derive(Clone, Debug)]
pub(crate) struct Ceiling {
    pub(crate) name: String,
    pub(crate) values: Vec<f64>,
}

/// A measured case.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) higher_is_better: bool,
    pub(crate) values: Vec<f64>,
    pub(crate) ceiling: Option<Ceiling>,
    pub(crate) counters: Vec<(String, u64)>,
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The lowest and the highest.
fn span(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(*v), b.max(*v)))
}

impl Case {
    /// Ratios of pairs measured one after the other or in turns, one a run: the value by the ceiling, whichever is better.
    /// So 1 is the ceiling itself in every case; of a rate it is the most there can be, of a time the least.
    fn ratios(&self) -> Vec<f64> {
        let ceiling = self.ceiling.iter().flat_map(|c| &c.values);
        self.values.iter().zip(ceiling).map(|(v, c)| v / c).collect()
    }

    /// The median of the ratios of the pairs, so that drift of the machine falls out.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let ratios = self.ratios();
        (!ratios.is_empty()).then(|| median(&ratios))
    }

    /// The object of API §5, and the value of each run of both sides.
    pub(crate) fn json(&self) -> Value {
        let (min, max) = span(&self.values);
        let counters: Map<String, Value> = self.counters.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
        let mut out = json!({
            "name": self.name, "value": median(&self.values), "unit": self.unit,
            "higher_is_better": self.higher_is_better, "runs": self.values.len(),
            "min": min, "median": median(&self.values), "max": max,
            "ceiling": Value::Null, "ratio": Value::Null, "counters": counters, "values": self.values,
        });
        if let Some(ceiling) = &self.ceiling {
            out["ceiling"] = json!({"name": ceiling.name, "value": median(&ceiling.values), "values": ceiling.values});
            out["ratio"] = json!(self.ratio());
        }
        out
    }

    /// How the bytes of the last run went, for those cases that say so.
    fn transports(&self) -> String {
        let bytes = self.counters.iter().filter_map(|(name, bytes)| {
            let way = name.strip_prefix("bytes_").filter(|way| TRANSPORTS.contains(way) && *bytes > 0)?;
            Some(format!("; {way} {bytes} bytes"))
        });
        bytes.collect()
    }

    /// One line for people.
    pub(crate) fn line(&self) -> String {
        let (min, max) = span(&self.values);
        let figure = |v: f64| if v >= 1000.0 { format!("{v:.0}") } else { format!("{v:.2}") };
        let mut line = format!(
            "{:28} {:>12} {:14} [{} .. {}]",
            self.name,
            figure(median(&self.values)),
            self.unit,
            figure(min),
            figure(max)
        );
        if let Some(ceiling) = &self.ceiling {
            let (ratio, (min, max)) = (self.ratio().unwrap_or(f64::NAN), span(&self.ratios()));
            let of = figure(median(&ceiling.values));
            line += &format!("  {ratio:.2} [{min:.2} .. {max:.2}] of {of} ({})", ceiling.name);
        }
        line + &self.transports()
    }
}

#[cfg(test)]
mod tests;
