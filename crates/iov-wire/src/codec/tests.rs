use iov_types::{Error, Kind, Metadata, Name, Result, Uuid, Value};

use super::*;
use crate::{choice, message, numbers};

#[derive(Debug, Default, PartialEq)]
struct Sample {
    count: u32,
    delta: i64,
    flag: bool,
    ratio: f64,
    text: String,
    raw: Vec<u8>,
    id: Uuid,
    label: Option<Name>,
    colour: Option<Colour>,
    list: Vec<u64>,
    inner: Inner,
    pairs: Metadata,
}

#[derive(Debug, Default, PartialEq)]
struct Inner {
    value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Colour {
    Red,
    Blue,
}

message! {
    Sample {
        1 => count: uint,
        2 => delta: sint,
        3 => flag: boolean,
        4 => ratio: double,
        5 => text: string,
        6 => raw: bytes,
        7 => id: uuid,
        8 => label: optional name,
        9 => colour: optional number,
        10 => list: repeated uint,
        11 => inner: message,
        12 => pairs: pairs,
    }
}
message! { Inner { 1 => value: uint } }
numbers! { Colour { Red = 1, Blue = 7 } }

#[derive(Debug, PartialEq)]
struct Picky {
    colour: Colour,
    names: Vec<Name>,
}

message! { strict Picky { 1 => colour: required number, 2 => names: repeated name } }

#[derive(Debug, PartialEq)]
enum Shape {
    Point,
    Circle(u64),
    Text { at: u64, text: String },
}

choice! { Shape { 1 => Point, 2 => Circle(uint), 3 => Text { 1 => at: uint, 2 => text: string } } }

#[derive(Debug, PartialEq)]
struct Drawing {
    shapes: Vec<Result<Shape>>,
    title: String,
}

message! { Drawing { 1 => shapes: repeated tolerant, 2 => title: string } }

#[derive(Debug, Default, PartialEq)]
struct Doll {
    inside: Option<Box<Doll>>,
}

message! { Doll { 1 => inside: optional message } }

fn corrupt<T: Wire + std::fmt::Debug>(bytes: &[u8]) -> String {
    let error = T::decode(bytes).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    error.detail().to_owned()
}

fn newer<T: Wire + std::fmt::Debug>(bytes: &[u8]) -> String {
    let error = T::decode(bytes).unwrap_err();
    assert_eq!(error.kind(), Kind::Version, "{error}");
    error.detail().to_owned()
}

#[test]
fn the_examples_of_protocol_buffers() {
    // From its description of the encoding: 150 as field 1, "testing" as field 2, an embedded 150 as field 3.
    assert_eq!(Sample { count: 150, ..Sample::default() }.to_bytes(), [0x08, 0x96, 0x01]);
    assert_eq!(Sample { text: "testing".into(), ..Sample::default() }.to_bytes(), b"\x2a\x07testing");
    let inner = Sample { inner: Inner { value: 150 }, ..Sample::default() };
    assert_eq!(inner.to_bytes(), [0x5a, 0x03, 0x08, 0x96, 0x01]);
    for (value, zigzag) in [(-1i64, 1u8), (1, 2), (-2, 3)] {
        assert_eq!(Sample { delta: value, ..Sample::default() }.to_bytes(), [0x10, zigzag]);
    }
}

#[test]
fn defaults_take_no_bytes_and_everything_reads_back() {
    assert!(Sample::default().to_bytes().is_empty());
    assert_eq!(Sample::decode(&[]).unwrap(), Sample::default());
    let mut pairs = Metadata::new();
    pairs.set("nothing", Value::Str(String::new())).unwrap();
    pairs.set("minus zero", Value::F64(-0.0)).unwrap();
    let full = Sample {
        count: u32::MAX,
        delta: i64::MIN,
        flag: true,
        ratio: -0.0,
        text: "ü".into(),
        raw: vec![0, 255],
        id: Uuid([9; 16]),
        label: Some(Name::new([0xff]).unwrap()),
        colour: Some(Colour::Blue),
        list: vec![0, u64::MAX],
        inner: Inner { value: 1 },
        pairs,
    };
    let bytes = full.to_bytes();
    let again = Sample::decode(&bytes).unwrap();
    assert_eq!(again, full);
    assert!(again.ratio.is_sign_negative(), "every bit of a float is kept");
    assert_eq!(again.to_bytes(), bytes);
}

#[test]
fn lengths_of_every_width_fit() {
    for len in [0, 1, 127, 128, 129, 16_383, 16_384, 2_097_151, 2_097_152] {
        let doll = Shape::Text { at: 1, text: "x".repeat(len) };
        assert_eq!(Shape::decode(&doll.to_bytes()).unwrap(), doll, "{len}");
    }
}

#[test]
fn every_cut_is_noticed_or_leaves_a_shorter_message() {
    let shape = Shape::Text { at: 300, text: "a text".into() };
    let bytes = shape.to_bytes();
    for cut in 0..bytes.len() {
        assert!(corrupt::<Shape>(&bytes[..cut]).contains("Shape"), "{cut}");
    }
}

#[test]
fn errors_name_message_field_and_place() {
    assert_eq!(
        corrupt::<Picky>(&[]),
        "the encoding of Picky is wrong at byte 0: the required field `colour` is missing"
    );
    assert!(
        corrupt::<Sample>(&[0x08, 0x01, 0x2a, 0x05, b'x']).ends_with("at byte 4: 5 bytes are announced, 1 are left")
    );
    assert!(corrupt::<Sample>(&[0x5a, 0x02, 0x08, 0x80]).starts_with("the encoding of Inner is wrong at byte 3"));
    assert!(corrupt::<Sample>(&[0x2a, 0x01, 0xff]).contains("not UTF-8"));
    assert!(corrupt::<Sample>(&[0x3a, 0x01, 0xff]).contains("a UUID has 1 bytes"));
    assert!(corrupt::<Sample>(&[0x42, 0x03, b'a', b'/', b'b']).contains("'/'"));
    assert!(corrupt::<Sample>(&[0x09]).contains("laid out as Fixed64 where Varint belongs"));
    assert!(corrupt::<Shape>(&[]).contains("no variant"));
    assert!(corrupt::<Shape>(&[0x10, 1, 0x10, 2]).contains("more than one variant"));
}

#[test]
fn numbers_out_of_range_are_corrupt() {
    assert!(corrupt::<Sample>(&[0x08, 0xff, 0xff, 0xff, 0xff, 0x1f]).contains("too large for its field"));
    assert!(corrupt::<Sample>(&[[0x10].as_slice(), &[0xff; 9], &[0x02]].concat()).contains("does not end"));
    assert!(corrupt::<Sample>(&[[0x10].as_slice(), &[0x80; 11]].concat()).contains("does not end"));
    assert!(corrupt::<Sample>(&[0x00, 0x00]).contains("field number 0"));
    for group in [0x0b, 0x0c, 0x0e, 0x0f] {
        assert!(corrupt::<Sample>(&[group]).contains("not in use"));
    }
}

#[test]
fn unknown_fields_are_skipped_whatever_their_layout() {
    let unknown = [
        &[0xf8, 0x01, 0x96, 0x01][..],         // field 31, varint
        &[0xf9, 0x01, 1, 2, 3, 4, 5, 6, 7, 8], // 64 bits
        &[0xfa, 0x01, 3, 1, 2, 3],             // a length
        &[0xfd, 0x01, 1, 2, 3, 4],             // 32 bits
        &[0x08, 42],                           // and count
    ]
    .concat();
    assert_eq!(Sample::decode(&unknown).unwrap(), Sample { count: 42, ..Sample::default() });
    for cut in [3, 8, 17, 23] {
        corrupt::<Sample>(&unknown[..cut]);
    }
}

#[test]
fn what_a_newer_release_wrote_is_a_version_error() {
    assert!(newer::<Picky>(&[0x08, 1, 0x18, 5]).starts_with("Picky has the field 3"));
    assert!(newer::<Picky>(&[0x08, 9]).starts_with("Picky has the number 9 for Colour"));
    assert!(newer::<Shape>(&[0x22, 0]).starts_with("Shape has the variant 4"));
}

#[test]
fn one_element_of_a_newer_release_does_not_hide_the_others() {
    let good = Shape::Circle(3).to_bytes();
    let list = [&[0x0a, good.len() as u8][..], &good, &[0x0a, 4, 0x22, 2, 0x0a, 0], &[0x0a, 2, 0x10, 4], b"\x12\x01t"];
    let drawing = Drawing::decode(&list.concat()).unwrap();
    assert_eq!(drawing.title, "t");
    let kinds: Vec<_> = drawing.shapes.iter().map(|s| s.as_ref().map_err(Error::kind)).collect();
    assert_eq!(kinds, [Ok(&Shape::Circle(3)), Err(Kind::Version), Ok(&Shape::Circle(4))]);
    assert!(corrupt::<Drawing>(&[0x0a, 1, 0x10]).contains("Shape"), "damage is not forgiven");
}

#[test]
fn of_several_occurrences_the_last_holds() {
    assert_eq!(Sample::decode(&[0x08, 1, 0x08, 2]).unwrap().count, 2);
}

#[test]
fn nesting_has_an_end() {
    let dolls = |n: u32| (0..n).fold(Doll::default(), |inside, _| Doll { inside: Some(Box::new(inside)) });
    assert!(Doll::decode(&dolls(MAX_DEPTH).to_bytes()).is_ok());
    assert!(corrupt::<Doll>(&dolls(MAX_DEPTH + 1).to_bytes()).contains("nested deeper"));
}

#[test]
fn lists_take_no_more_memory_than_their_length_allows() {
    #[derive(Debug)]
    struct Wide([u64; 64]);
    #[derive(Debug)]
    struct Fat {
        list: Vec<Wide>,
    }
    impl Wire for Wide {
        const NAME: &'static str = "Wide";
        fn encode(&self, out: &mut Vec<u8>) {
            debug_assert!(self.0 == [0; 64] && !out.is_empty());
        }
        fn read(_: &mut Reader<'_>) -> Result<Self> {
            Ok(Wide([0; 64]))
        }
    }
    message! { Fat { 1 => list: repeated message } }
    let fat = |n: usize| Fat { list: (0..n).map(|_| Wide([0; 64])).collect() }.to_bytes();
    assert_eq!(Fat::decode(&fat(1000)).unwrap().list.len(), 1000, "short lists of large elements are fine");
    assert!(corrupt::<Fat>(&fat(10_000)).contains("more list elements"));
}

#[test]
fn a_pair_keeps_the_rules_for_keys() {
    let pair = |key: &str| {
        let mut list: Vec<u8> = Vec::new();
        <kind::pairs as Scalar<Vec<(String, Value)>>>::put(&vec![(key.to_owned(), Value::I64(1))], &mut list);
        [&[0x62], &list[..]].concat()
    };
    assert_eq!(Sample::decode(&pair("key")).unwrap().pairs.len(), 1);
    for bad in ["", "iov.size", "a\0", &"k".repeat(256)] {
        assert!(corrupt::<Sample>(&pair(bad)).contains("the metadata key"), "{bad}");
    }
    assert!(corrupt::<Sample>(&[0x62, 0x05, 0x0a, 0x03, 0x0a, 0x01, b'k']).contains("lacks its key or value"));
}
