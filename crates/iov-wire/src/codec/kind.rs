//! The kinds of values, as types that `message!` names; see the table in [`crate::codec`].

use iov_types::{Metadata, Name, Result, Uuid, Value};

use super::{Reader, Wire, WireType, begin, end, put_key, put_varint};

/// How a value of type `T` is written under a key.
pub trait Scalar<T> {
    /// Its layout.
    const WIRE: WireType;
    /// Appends the value, behind its key.
    fn put(value: &T, out: &mut Vec<u8>);
    /// Takes the value, behind its key.
    fn get(input: &mut Reader<'_>) -> Result<T>;
    /// Whether a field with a default need not be written.
    fn is_default(value: &T) -> bool;
}

/// An enum that is a number on the wire; [`numbers!`](crate::numbers) implements it.
pub trait Number: Copy {
    /// The name in errors.
    const NAME: &'static str;
    /// The number; never reused for anything else.
    fn number(self) -> u32;
    /// What the number means.
    fn from_number(number: u32) -> Option<Self>;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        $($(#[$doc])* #[allow(non_camel_case_types)] #[derive(Debug)] pub enum $name {})*
    };
}

kinds! {
    /// Unsigned integers.
    uint,
    /// Signed integers.
    sint,
    /// True or false.
    boolean,
    /// Floating point numbers.
    double,
    /// Text.
    string,
    /// Any bytes.
    bytes,
    /// UUIDs.
    uuid,
    /// Names.
    name,
    /// Enums without data.
    number,
    /// Everything that is [`Wire`].
    message,
    /// What is [`Wire`], or the error of kind `Version` if only a newer release can read it.
    tolerant,
    /// Keys with typed values.
    pairs,
}

macro_rules! unsigned {
    ($($type:ty),*) => {
        $(impl Scalar<$type> for uint {
            const WIRE: WireType = WireType::Varint;

            #[inline]
            fn put(value: &$type, out: &mut Vec<u8>) {
                put_varint(*value as u64, out);
            }

            #[inline]
            fn get(input: &mut Reader<'_>) -> Result<$type> {
                let value = input.varint()?;
                value.try_into().map_err(|_| input.corrupt(format_args!("{value} is too large for its field")))
            }

            #[inline]
            fn is_default(value: &$type) -> bool {
                *value == 0
            }
        })*
    };
}

unsigned!(u8, u16, u32, u64, usize);

macro_rules! scalar {
    ($kind:ident: $type:ty, $wire:ident,
     put($value:ident, $out:ident) $put:expr, get($input:ident) $get:expr, default $default:expr $(,)?) => {
        impl Scalar<$type> for $kind {
            const WIRE: WireType = WireType::$wire;

            #[inline]
            fn put($value: &$type, $out: &mut Vec<u8>) {
                $put
            }

            #[inline]
            fn get($input: &mut Reader<'_>) -> Result<$type> {
                $get
            }

            #[inline]
            fn is_default($value: &$type) -> bool {
                $default
            }
        }
    };
}

scalar!(sint: i64, Varint,
    put(value, out) put_varint(((*value << 1) ^ (*value >> 63)) as u64, out),
    get(input) input.varint().map(|z| (z >> 1) as i64 ^ -((z & 1) as i64)),
    default *value == 0,
);
scalar!(boolean: bool, Varint,
    put(value, out) out.push(u8::from(*value)),
    get(input) input.varint().map(|n| n != 0),
    default !*value,
);
scalar!(double: f64, Fixed64,
    put(value, out) out.extend_from_slice(&value.to_bits().to_le_bytes()),
    get(input) input.fixed64().map(f64::from_bits),
    default value.to_bits() == 0,
);
scalar!(string: String, Len,
    put(value, out) put_bytes(value.as_bytes(), out),
    get(input) match std::str::from_utf8(input.bytes()?) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(input.corrupt("text is not UTF-8")),
    },
    default value.is_empty(),
);
scalar!(bytes: Vec<u8>, Len,
    put(value, out) put_bytes(value, out),
    get(input) input.bytes().map(<[u8]>::to_vec),
    default value.is_empty(),
);
scalar!(uuid: Uuid, Len,
    put(value, out) put_bytes(&value.0, out),
    get(input) {
        let bytes = input.bytes()?;
        let sixteen = bytes.try_into().map_err(|_| input.corrupt(format_args!("a UUID has {} bytes", bytes.len())))?;
        Ok(Uuid(sixteen))
    },
    default value.is_nil(),
);
scalar!(name: Name, Len,
    put(value, out) put_bytes(value.as_bytes(), out),
    get(input) {
        let bytes = input.bytes()?;
        Name::new(bytes).map_err(|e| input.corrupt(e.detail()))
    },
    default { let _ = value; false },
);

impl<T: Number> Scalar<T> for number {
    const WIRE: WireType = WireType::Varint;

    #[inline]
    fn put(value: &T, out: &mut Vec<u8>) {
        put_varint(u64::from(value.number()), out);
    }

    #[inline]
    fn get(input: &mut Reader<'_>) -> Result<T> {
        let n = input.varint()?;
        u32::try_from(n)
            .ok()
            .and_then(T::from_number)
            .ok_or_else(|| input.newer(format_args!("the number {n} for {}", T::NAME)))
    }

    #[inline]
    fn is_default(_: &T) -> bool {
        false
    }
}

impl<T: Wire> Scalar<T> for message {
    const WIRE: WireType = WireType::Len;

    #[inline]
    fn put(value: &T, out: &mut Vec<u8>) {
        let at = begin(out);
        value.encode(out);
        end(at, out);
    }

    #[inline]
    fn get(input: &mut Reader<'_>) -> Result<T> {
        let outer = input.enter(T::NAME)?;
        let value = T::read(input)?;
        input.leave(outer)?;
        Ok(value)
    }

    #[inline]
    fn is_default(_: &T) -> bool {
        false // an empty encoding is taken back by the field
    }
}

impl<T: Wire> Scalar<Result<T>> for tolerant {
    const WIRE: WireType = WireType::Len;

    /// An `Err` stands for bytes that were received and not understood, so nobody has it to send; it is written as an
    /// empty message, which no choice can be read from.
    #[inline]
    fn put(value: &Result<T>, out: &mut Vec<u8>) {
        match value {
            Ok(value) => message::put(value, out),
            Err(_) => out.push(0),
        }
    }

    #[inline]
    fn get(input: &mut Reader<'_>) -> Result<Result<T>> {
        input.tolerant()
    }

    #[inline]
    fn is_default(_: &Result<T>) -> bool {
        false
    }
}

scalar!(pairs: Metadata, Len,
    put(value, out) put_pairs(value.iter(), out),
    get(input) {
        let mut metadata = Metadata::new();
        get_pairs(input, |input, key, value| metadata.set(key, value).map_err(|e| input.corrupt(e.detail())))?;
        Ok(metadata)
    },
    default value.is_empty(),
);
scalar!(pairs: Vec<(String, Value)>, Len,
    put(value, out) put_pairs(value.iter().map(|(k, v)| (k.as_str(), v)), out),
    get(input) {
        let mut list = Vec::new();
        get_pairs(input, |_, key, value| { list.push((key, value)); Ok(()) })?;
        Ok(list)
    },
    default value.is_empty(),
);

fn put_bytes(value: &[u8], out: &mut Vec<u8>) {
    put_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// `message Pairs { repeated Pair pair = 1; }`, `message Pair { string key = 1; Value value = 2; }`
fn put_pairs<'a>(pairs: impl Iterator<Item = (&'a str, &'a Value)>, out: &mut Vec<u8>) {
    let list = begin(out);
    for (key, value) in pairs {
        put_key(1, WireType::Len, out);
        let pair = begin(out);
        put_key(1, WireType::Len, out);
        put_bytes(key.as_bytes(), out);
        put_key(2, WireType::Len, out);
        message::put(value, out);
        end(pair, out);
    }
    end(list, out);
}

fn get_pairs(input: &mut Reader<'_>, mut keep: impl FnMut(&Reader<'_>, String, Value) -> Result<()>) -> Result<()> {
    let list = input.enter("Pairs")?;
    while let Some((tag, wire)) = input.key()? {
        if tag != 1 {
            input.skip(wire)?;
            continue;
        }
        input.expect(wire, WireType::Len)?;
        let pair = input.enter("Pair")?;
        let (mut key, mut value) = (None, None);
        while let Some((tag, wire)) = input.key()? {
            match tag {
                1 => key = Some(string::get_checked(wire, input)?),
                2 => value = Some(message::get_checked(wire, input)?),
                _ => input.skip(wire)?,
            }
        }
        input.leave(pair)?;
        let (Some(key), Some(value)) = (key, value) else {
            return Err(input.corrupt("a pair lacks its key or value"));
        };
        input.charge(size_of::<(String, Value)>())?;
        keep(input, key, value)?;
    }
    input.leave(list)
}

/// Reading with the layout checked; for code that is not a field of a message.
pub(crate) trait Checked<T>: Scalar<T> {
    fn get_checked(wire: WireType, input: &mut Reader<'_>) -> Result<T> {
        input.expect(wire, Self::WIRE)?;
        Self::get(input)
    }
}

impl<T, K: Scalar<T>> Checked<T> for K {}

crate::choice! {
    Value {
        1 => Str(string),
        2 => I64(sint),
        3 => F64(double),
        4 => Bool(boolean),
        5 => Bytes(bytes),
        6 => Time(sint),
    }
}
