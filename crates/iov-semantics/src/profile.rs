//! Named profiles: common sets of controls under one word.

use iov_types::{
    Atomicity, Concurrency, Consistency, Controls, Error, Mutability, Persistence, Point, Result, Spatiality,
    Temporality,
};

use crate::{control::fill, suggest};

/// The names of all profiles.
pub const NAMES: &[&str] = &["posix", "checkpoint", "dataset", "log", "scratch", "exchange"];

/// What a profile sets.
pub fn get(name: &str) -> Result<Controls> {
    let plain = Controls { atomicity: Some(Atomicity::None), ..Controls::default() };
    Ok(match name {
        // What a program expects that was written for a local file system.
        "posix" => Controls {
            consistency: Some(Consistency::Sequential),
            concurrency: Some(Concurrency::Shared),
            mutability: Some(Mutability::Overwrite),
            point: Some(Point::Close),
            temporality: Some(Temporality::Multiple),
            spatiality: Some(Spatiality::Any),
            ..plain
        },
        // Many ranks write disjoint parts, nobody reads before the close, and a crash of the node must not cost it.
        "checkpoint" => Controls {
            consistency: Some(Consistency::Session),
            concurrency: Some(Concurrency::Shared),
            mutability: Some(Mutability::Overwrite),
            persistence: Some(Persistence::Durable),
            point: Some(Point::Close),
            temporality: Some(Temporality::Once),
            spatiality: Some(Spatiality::Contiguous),
            ..plain
        },
        // Written once, read for years.
        "dataset" => Controls {
            consistency: Some(Consistency::Session),
            concurrency: Some(Concurrency::Shared),
            mutability: Some(Mutability::Immutable),
            point: Some(Point::Close),
            temporality: Some(Temporality::Multiple),
            ..plain
        },
        // Many writers, each record once.
        "log" => Controls {
            consistency: Some(Consistency::Commit),
            concurrency: Some(Concurrency::Shared),
            mutability: Some(Mutability::Append),
            point: Some(Point::Request),
            ..plain
        },
        // One program's own, worthless after it.
        "scratch" => Controls {
            consistency: Some(Consistency::Session),
            concurrency: Some(Concurrency::Exclusive),
            mutability: Some(Mutability::Overwrite),
            persistence: Some(Persistence::Volatile),
            point: Some(Point::Explicit),
            temporality: Some(Temporality::Multiple),
            ..plain
        },
        // Coupled programs hand each other whole states.
        "exchange" => Controls {
            consistency: Some(Consistency::Commit),
            concurrency: Some(Concurrency::Shared),
            mutability: Some(Mutability::Overwrite),
            atomicity: Some(Atomicity::Publication),
            persistence: Some(Persistence::Volatile),
            point: Some(Point::Explicit),
            ..plain
        },
        unknown => {
            let hint = suggest::nearest(unknown, NAMES).map_or(String::new(), |n| format!(", did you mean {n:?}?"));
            let shown: String = unknown.chars().take(64).collect();
            return Err(Error::not_found(format!("no profile {shown:?}{hint}; there are {}", NAMES.join(", "))));
        }
    })
}

/// Sets what is unset from a profile; an unknown name is [`iov_types::Kind::NotFound`].
pub fn set_unset(controls: &mut Controls, name: &str) -> Result<()> {
    fill(controls, &get(name)?);
    Ok(())
}

#[cfg(test)]
mod tests;
