//! Errors, and results that hold one.

use iov_types::{Clause, Error, Kind, Outcome, Result};

use crate::codec::{Field, Reader, Required, kind};
use crate::{Wire, message, numbers};

numbers! { Outcome { Pending = 0, Applied = 1, NotApplied = 2, Unknown = 3 } }

struct Parts {
    code: u32,
    outcome: u32,
    clause: Option<String>,
    detail: String,
}

message! { Parts { 1 => code: uint, 2 => outcome: uint, 3 => clause: optional string, 4 => detail: string } }

impl Wire for Error {
    const NAME: &'static str = "Error";

    fn encode(&self, out: &mut Vec<u8>) {
        let parts = Parts {
            code: self.kind().code().unsigned_abs(),
            outcome: self.outcome() as u32,
            clause: self.clause().map(|c| c.id().to_owned()),
            detail: self.detail().to_owned(),
        };
        parts.encode(out);
    }

    /// A newer peer's error must stay an error with its sentence, whatever of it is unknown here.
    fn read(input: &mut Reader<'_>) -> Result<Self> {
        let Parts { code, outcome, clause, mut detail } = Parts::read(input)?;
        let kind = i32::try_from(code).ok().and_then(Kind::from_code).unwrap_or_else(|| {
            detail = format!("{detail} (error {code} of a newer release)");
            Kind::Internal
        });
        let outcome = <Outcome as crate::codec::Number>::from_number(outcome).unwrap_or(Outcome::Unknown);
        let error = Error::new(kind, detail).with_outcome(outcome);
        Ok(match clause.as_deref().map(|id| (id, Clause::from_id(id))) {
            None => error,
            Some((_, Some(clause))) => error.with_clause(clause),
            Some((id, None)) => {
                let detail = format!("{} (clause {id} of a newer release)", error.detail());
                Error::new(error.kind(), detail).with_outcome(outcome)
            }
        })
    }
}

/// `message { T ok = 1; Error err = 2; }`. What succeeded and cannot be read here has succeeded all the same: that is an
/// error with outcome `Applied`.
impl<T: Wire> Wire for Result<T> {
    const NAME: &'static str = T::NAME;

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Ok(value) => Required::<kind::message>::put(value, 1, out),
            Err(error) => Required::<kind::message>::put(error, 2, out),
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self> {
        let mut result = None;
        while let Some((tag, wire)) = input.key()? {
            match tag {
                1 => {
                    input.expect(wire, crate::codec::WireType::Len)?;
                    result = Some(input.tolerant::<T>()?.map_err(|e| e.with_outcome(Outcome::Applied)));
                }
                2 => {
                    let mut error = None;
                    Required::<kind::message>::take(&mut error, wire, input)?;
                    result = error.map(Err);
                }
                _ => input.skip(wire)?,
            }
        }
        result.ok_or_else(|| input.corrupt("a result is neither a value nor an error"))
    }
}
