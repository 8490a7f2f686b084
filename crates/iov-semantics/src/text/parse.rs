//! Reading controls from text.

use iov_types::{
    Atomicity, Concurrency, Consistency, Controls, Limits, Mutability, OnError, Persistence, Point, Result, Spatiality,
    Temporality,
};

use super::lex::Word;
use crate::{
    Control, control, profile,
    quantity::{parse_size, parse_time},
};

const KEYS: &[&str] = &[
    "profile",
    "consistency",
    "eventual",
    "concurrency",
    "mutability",
    "atomicity",
    "unit",
    "persistence",
    "point",
    "temporality",
    "drain",
    "spatiality",
    "stride",
    "block",
    "request_size",
    "collection_size",
    "error",
];

const RANGES: &str = "47008, 4KiB..1MiB, ..1GiB or 4KiB..";

/// Sets what the text names over what was set: a control that it names is replaced with its parameters.
///
/// Only the text is judged here; whether the controls can be had together is for [`crate::resolve`] to say. An error is
/// [`iov_types::Kind::Invalid`], names the byte offset, and leaves `controls` as they were.
pub fn parse(controls: &mut Controls, text: &str) -> Result<()> {
    let all = Word::new(text);
    if all.text.is_empty() {
        return Ok(());
    }
    let mut draft = Draft::default();
    for item in all.items() {
        draft.item(item)?;
    }
    if let Some(name) = draft.profile {
        control::fill(&mut draft.controls, &profile::get(name)?);
    }
    for control in Control::ALL.iter().filter(|c| c.is_set(&draft.controls)) {
        set(*control, &draft.controls, controls);
    }
    Ok(())
}

/// A value replaces value and parameters; a parameter alone leaves the value that was set.
fn set(control: Control, from: &Controls, to: &mut Controls) {
    let mut from = from.clone();
    let old = to.clone();
    match control {
        Control::Consistency if from.consistency.is_none() => from.consistency = old.consistency,
        Control::Atomicity if from.atomicity.is_none() => from.atomicity = old.atomicity,
        Control::Temporality if from.temporality.is_none() => from.temporality = old.temporality,
        Control::Spatiality if from.spatiality.is_none() => {
            from.spatiality = old.spatiality;
            from.stride = if from.stride == 0 { old.stride } else { from.stride };
            from.block = if from.block == 0 { old.block } else { from.block };
        }
        _ => {}
    }
    control.copy(&from, to);
}

/// What one text names.
#[derive(Default)]
struct Draft<'a> {
    controls: Controls,
    profile: Option<&'a str>,
    /// Keys that were set, and where.
    given: Vec<(&'static str, usize)>,
}

impl<'a> Draft<'a> {
    fn item(&mut self, item: Word<'a>) -> Result<()> {
        if item.text.is_empty() {
            return Err(item.wrong("stands between two commas, or at an end: write key=value there, or drop the comma"));
        }
        let (key, value) =
            item.split_once("=").ok_or_else(|| item.wrong("has no '=': write key=value, as in consistency=session"))?;
        let word = if key.text == "on_error" { "error" } else { key.text };
        let unknown = || key.unknown("control", KEYS, &KEYS.join(", "));
        let name = *KEYS.iter().find(|k| **k == word).ok_or_else(unknown)?;
        // The parts of a value claim their own keys, so that `durable@close` and `point=batch` meet.
        self.claim(name, key)?;
        let c = &mut self.controls;
        match name {
            "profile" => match profile::NAMES.iter().find(|n| **n == value.text) {
                Some(name) => self.profile = Some(name),
                None => return Err(value.unknown("profile", profile::NAMES, &profile::NAMES.join(", "))),
            },
            "consistency" => {
                let forms = "sequential, commit, session, eventual, eventual(TIME)";
                let (word, argument) = single(value, "eventual", "a time, as in eventual(5s)")?;
                c.consistency =
                    Some(one_of(word, "consistency", Consistency::from_text, names(Consistency::ALL), forms)?);
                self.argument("eventual", argument, time, |c| &mut c.eventual_ns)?;
            }
            "eventual" => c.eventual_ns = time(value)?,
            "concurrency" => {
                c.concurrency = Some(plain(value, "concurrency", Concurrency::from_text, names(Concurrency::ALL))?)
            }
            "mutability" => {
                c.mutability = Some(plain(value, "mutability", Mutability::from_text, names(Mutability::ALL))?)
            }
            "atomicity" => {
                let (word, argument) = single(value, "unit", "a size, as in unit(4096)")?;
                let forms = "none, unit, unit(SIZE), publication";
                c.atomicity = Some(one_of(word, "atomicity", Atomicity::from_text, names(Atomicity::ALL), forms)?);
                self.argument("unit", argument, size, |c| &mut c.atomic_unit)?;
            }
            "unit" => c.atomic_unit = size(value)?,
            "persistence" => self.persistence(value)?,
            "point" => c.point = Some(plain(value, "point", Point::from_text, names(Point::ALL))?),
            "temporality" => {
                let (word, argument) = single(value, "bursty", "a time, as in bursty(30s)")?;
                let forms = "multiple, once, bursty, bursty(TIME)";
                c.temporality =
                    Some(one_of(word, "temporality", Temporality::from_text, names(Temporality::ALL), forms)?);
                self.argument("drain", argument, time, |c| &mut c.drain_ns)?;
            }
            "drain" => c.drain_ns = time(value)?,
            "spatiality" => self.spatiality(value)?,
            "stride" => c.stride = size(value)?,
            "block" => c.block = size(value)?,
            "request_size" => c.request_size = limits(value)?,
            "collection_size" => c.collection_size = limits(value)?,
            "error" => c.on_error = Some(plain(value, "error policy", OnError::from_text, names(OnError::ALL))?),
            _ => return Err(unknown()),
        }
        Ok(())
    }

    fn claim(&mut self, key: &'static str, word: Word<'a>) -> Result<()> {
        if let Some((_, at)) = self.given.iter().find(|(k, _)| *k == key) {
            return Err(word.wrong(format!("gives {key} a second time, after byte {at}: keep one of the two")));
        }
        self.given.push((key, word.at));
        Ok(())
    }

    /// Sets a parameter that stands in parentheses.
    fn argument(
        &mut self,
        key: &'static str,
        argument: Option<Word<'a>>,
        read: fn(Word<'_>) -> Result<u64>,
        field: fn(&mut Controls) -> &mut u64,
    ) -> Result<()> {
        if let Some(argument) = argument {
            self.claim(key, argument)?;
            *field(&mut self.controls) = read(argument)?;
        }
        Ok(())
    }

    fn persistence(&mut self, value: Word<'a>) -> Result<()> {
        let (level, point) = match value.split_once("@") {
            Some((level, point)) => (level, Some(point)),
            None => (value, None),
        };
        if !level.text.is_empty() || point.is_none() {
            let forms = format!("{}, each also as in durable@close", names(Persistence::ALL).join(", "));
            let read = Persistence::from_text;
            self.controls.persistence = Some(one_of(level, "persistence", read, names(Persistence::ALL), &forms)?);
        }
        if let Some(point) = point {
            self.claim("point", point)?;
            self.controls.point = Some(plain(point, "point", Point::from_text, names(Point::ALL))?);
        }
        Ok(())
    }

    fn spatiality(&mut self, value: Word<'a>) -> Result<()> {
        let (word, arguments) = value.call()?;
        let forms = "any, contiguous, strided(STRIDE,BLOCK), random";
        let pattern = one_of(word, "spatiality", Spatiality::from_text, names(Spatiality::ALL), forms)?;
        self.controls.spatiality = Some(pattern);
        match (pattern, arguments.as_slice()) {
            (_, []) => Ok(()),
            (Spatiality::Strided, [stride, block]) => {
                self.argument("stride", Some(*stride), size, |c| &mut c.stride)?;
                self.argument("block", Some(*block), size, |c| &mut c.block)
            }
            (Spatiality::Strided, _) => Err(value.wrong("needs two sizes, as in strided(1MiB,4KiB)")),
            _ => Err(value.wrong("has parentheses, which only strided takes, as in strided(1MiB,4KiB)")),
        }
    }
}

/// `name` or, for the one value that takes it, `name(argument)`.
fn single<'a>(value: Word<'a>, taker: &str, argument: &str) -> Result<(Word<'a>, Option<Word<'a>>)> {
    let (word, arguments) = value.call()?;
    match arguments.as_slice() {
        [] => Ok((word, None)),
        [one] if word.text == taker => Ok((word, Some(*one))),
        _ if word.text == taker => Err(value.wrong(format!("takes one argument, {argument}"))),
        _ => Err(value.wrong(format!("has parentheses, which only {taker} takes: {argument}"))),
    }
}

fn one_of<T>(word: Word<'_>, what: &str, read: fn(&str) -> Option<T>, known: Vec<&str>, forms: &str) -> Result<T> {
    read(word.text).ok_or_else(|| word.unknown(what, &known, forms))
}

fn plain<T>(word: Word<'_>, what: &str, read: fn(&str) -> Option<T>, known: Vec<&str>) -> Result<T> {
    let forms = known.join(", ");
    one_of(word, what, read, known, &forms)
}

/// The texts of all values of a control.
fn names<T: Copy + Text>(all: &[T]) -> Vec<&'static str> {
    all.iter().map(|v| v.name()).collect()
}

trait Text {
    fn name(self) -> &'static str;
}

macro_rules! text {
    ($($control:ident),*) => { $(impl Text for $control { fn name(self) -> &'static str { self.text() } })* };
}

text!(Consistency, Concurrency, Mutability, Atomicity, Persistence, Point, Temporality, Spatiality, OnError);

fn size(word: Word<'_>) -> Result<u64> {
    not_zero(word, parse_size(word.text).map_err(|e| word.wrong(e))?)
}

fn time(word: Word<'_>) -> Result<u64> {
    not_zero(word, parse_time(word.text).map_err(|e| word.wrong(e))?)
}

/// In the struct 0 is "unset": whoever writes it means something else, perhaps something stronger.
fn not_zero(word: Word<'_>, n: u64) -> Result<u64> {
    if n == 0 { Err(word.wrong("is zero: leave it out for the default, or give at least 1")) } else { Ok(n) }
}

fn limits(value: Word<'_>) -> Result<Limits> {
    let Some((min, max)) = value.split_once("..") else {
        let both = parse_size(value.text).map_err(|e| value.wrong(format!("{e}; allowed: {RANGES}")))?;
        let both = not_zero(value, both)?;
        return Ok(Limits { min: both, max: both });
    };
    let end = |word: Word<'_>| if word.text.is_empty() { Ok(0) } else { size(word) };
    let limits = Limits { min: end(min)?, max: end(max)? };
    if limits.is_unset() { Err(value.wrong(format!("has no size; allowed: {RANGES}"))) } else { Ok(limits) }
}
