//! The macros that give types their encoding. [`crate::codec`] shows them at work.

/// Implements [`Wire`](crate::Wire) for a struct with named fields: `message! { Type { TAG => field: KIND, … } }`.
///
/// Every field of the struct must be listed. `strict` before the type makes an unknown field an error.
#[macro_export]
macro_rules! message {
    (strict $type:ident { $($fields:tt)* }) => { $crate::message!(@impl newer_field $type { $($fields)* }); };
    ($type:ident { $($fields:tt)* }) => { $crate::message!(@impl skip $type { $($fields)* }); };
    (@impl $unknown:ident $type:ident { $($tag:literal => $field:ident : $($kind:ident)+),* $(,)? }) => {
        impl $crate::Wire for $type {
            const NAME: &'static str = stringify!($type);

            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                let $type { $($field),* } = self;
                $(<$crate::message!(@field $($kind)+) as $crate::codec::Field<_>>::put($field, $tag, out);)*
                let _ = out;
            }

            #[inline]
            fn read(input: &mut $crate::codec::Reader<'_>) -> $crate::Result<Self> {
                $crate::message!(@read input, $unknown, [$type], $($tag => $field : [$($kind)+]),*)
            }
        }
    };
    // Fields up to the end of what `input` has entered, then the value made of them.
    (@read $input:ident, $unknown:ident, [$($path:tt)+], $($tag:literal => $field:ident : [$($kind:ident)+]),*) => {{
        $(let mut $field = None;)*
        while let Some((tag, wire)) = $input.key()? {
            match tag {
                $($tag => <$crate::message!(@field $($kind)+) as $crate::codec::Field<_>>::take(&mut $field, wire, $input)?,)*
                _ => $crate::message!(@$unknown $input, tag, wire),
            }
        }
        Ok($($path)+ {
            $($field: <$crate::message!(@field $($kind)+) as $crate::codec::Field<_>>::finish(
                $field, stringify!($field), $input)?),*
        })
    }};
    (@skip $input:ident, $tag:ident, $wire:ident) => { $input.skip($wire)? };
    (@newer_field $input:ident, $tag:ident, $wire:ident) => {{
        let _ = $wire;
        return Err($input.newer(format_args!("the field {}", $tag)));
    }};
    (@field required $kind:ident) => { $crate::codec::Required<$crate::codec::kind::$kind> };
    (@field optional $kind:ident) => { $crate::codec::Optional<$crate::codec::kind::$kind> };
    (@field repeated $kind:ident) => { $crate::codec::Repeated<$crate::codec::kind::$kind> };
    (@field $kind:ident) => { $crate::codec::Implicit<$crate::codec::kind::$kind> };
}

/// Implements [`Wire`](crate::Wire) for an enum whose variants carry data, as a message with exactly one field:
/// `choice! { Type { TAG => Unit, TAG => Tuple(KIND), TAG => Struct { TAG => field: KIND, … } } }`.
///
/// Every variant must be listed. A variant that is not is an error of kind `Version` when read. `strict` before the
/// type makes an unknown field in a variant an error too.
#[macro_export]
macro_rules! choice {
    (strict $type:ident { $($variants:tt)* }) => { $crate::choice!(@impl newer_field $type { $($variants)* }); };
    ($type:ident { $($variants:tt)* }) => { $crate::choice!(@impl skip $type { $($variants)* }); };
    (@impl $unknown:ident $type:ident { $(
        $tag:literal => $variant:ident $(($tuple:ident))? $({ $($ftag:literal => $field:ident : $($kind:ident)+),* $(,)? })?
    ),* $(,)? }) => {
        impl $crate::Wire for $type {
            const NAME: &'static str = stringify!($type);

            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $($type::$variant { $(0: $tuple)? $($($field),*)? } => $crate::choice!(
                        @put $tag, out, $(($tuple))? $({ $($ftag => $field : [$($kind)+]),* })?
                    ),)*
                }
            }

            #[inline]
            fn read(input: &mut $crate::codec::Reader<'_>) -> $crate::Result<Self> {
                let Some((tag, wire)) = input.key()? else { return Err(input.corrupt("it holds no variant")) };
                let value = match tag {
                    $($tag => $crate::choice!(
                        @take $unknown, input, wire, [$type::$variant],
                        $(($tuple))? $({ $($ftag => $field : [$($kind)+]),* })?
                    ),)*
                    _ => return Err(input.newer(format_args!("the variant {tag}"))),
                };
                match input.key()? {
                    None => Ok(value),
                    Some(_) => Err(input.corrupt("it holds more than one variant")),
                }
            }
        }
    };
    (@put $tag:literal, $out:ident, ) => {{
        $crate::codec::put_key($tag, $crate::codec::WireType::Len, $out);
        $out.push(0);
    }};
    (@put $tag:literal, $out:ident, ($tuple:ident)) => {
        <$crate::codec::Required<$crate::codec::kind::$tuple> as $crate::codec::Field<_>>::put($tuple, $tag, $out)
    };
    (@put $tag:literal, $out:ident, { $($ftag:literal => $field:ident : [$($kind:ident)+]),* }) => {{
        $crate::codec::put_key($tag, $crate::codec::WireType::Len, $out);
        let begun = $crate::codec::begin($out);
        $(<$crate::message!(@field $($kind)+) as $crate::codec::Field<_>>::put($field, $ftag, $out);)*
        $crate::codec::end(begun, $out);
    }};
    (@take $unknown:ident, $input:ident, $wire:ident, [$($path:tt)+], ) => {
        $crate::choice!(@take $unknown, $input, $wire, [$($path)+], {})
    };
    (@take $unknown:ident, $input:ident, $wire:ident, [$($path:tt)+], ($tuple:ident)) => {{
        let mut slot = None;
        <$crate::codec::Required<$crate::codec::kind::$tuple> as $crate::codec::Field<_>>::take(&mut slot, $wire, $input)?;
        $($path)+(<$crate::codec::Required<$crate::codec::kind::$tuple> as $crate::codec::Field<_>>::finish(
            slot, stringify!($tuple), $input)?)
    }};
    (@take $unknown:ident, $input:ident, $wire:ident, [$($path:tt)+],
     { $($ftag:literal => $field:ident : [$($kind:ident)+]),* }) => {{
        $input.expect($wire, $crate::codec::WireType::Len)?;
        let outer = $input.enter(stringify!($($path)+))?;
        let value: $crate::Result<Self> =
            $crate::message!(@read $input, $unknown, [$($path)+], $($ftag => $field : [$($kind)+]),*);
        let value = value?;
        $input.leave(outer)?;
        value
    }};
}

/// Implements [`Number`](crate::codec::Number) for an enum without data: `numbers! { Type { Variant = 1, … } }`.
///
/// Every variant must be listed. A number that is not is an error of kind `Version` when read.
#[macro_export]
macro_rules! numbers {
    ($type:ident { $($variant:ident = $number:literal),* $(,)? }) => {
        impl $crate::codec::Number for $type {
            const NAME: &'static str = stringify!($type);

            #[inline]
            fn number(self) -> u32 {
                match self { $($type::$variant => $number),* }
            }

            #[inline]
            fn from_number(number: u32) -> Option<Self> {
                match number { $($number => Some($type::$variant),)* _ => None }
            }
        }
    };
}
