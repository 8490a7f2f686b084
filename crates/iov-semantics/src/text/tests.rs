use iov_types::{
    Atomicity, Consistency, Controls, Error, Kind, Limits, OnError, Persistence, Point, Spatiality, Temporality,
};
use proptest::prelude::*;

use super::{format, parse};
use crate::generate;

fn read(text: &str) -> Controls {
    let mut c = Controls::default();
    parse(&mut c, text).unwrap_or_else(|e| panic!("{text}: {e}"));
    c
}

fn error(text: &str) -> Error {
    let before = Controls { point: Some(Point::Batch), ..Controls::default() };
    let mut c = before.clone();
    let error = parse(&mut c, text).expect_err(text);
    assert_eq!((c, error.kind()), (before, Kind::Invalid), "{text}");
    error
}

#[test]
fn the_example_of_the_header() {
    let c = read("profile=checkpoint,consistency=session,persistence=durable@close,request_size=47008");
    assert_eq!(c.consistency, Some(Consistency::Session));
    assert_eq!((c.persistence, c.point), (Some(Persistence::Durable), Some(Point::Close)));
    assert_eq!(c.request_size.single(), Some(47008));
    assert_eq!(
        format(&c),
        "consistency=session,concurrency=shared,mutability=overwrite,atomicity=none,persistence=durable@close,\
         temporality=once,spatiality=contiguous,request_size=47008"
    );
}

#[test]
fn every_form_of_every_value() {
    for (text, want) in [
        ("", Controls::default()),
        ("  ", Controls::default()),
        (
            " consistency = eventual( 5 s ) ",
            Controls { consistency: Some(Consistency::Eventual), eventual_ns: 5_000_000_000, ..Controls::default() },
        ),
        (
            "atomicity=unit(4096)",
            Controls { atomicity: Some(Atomicity::Unit), atomic_unit: 4096, ..Controls::default() },
        ),
        ("unit=4KiB", Controls { atomic_unit: 4096, ..Controls::default() }),
        ("persistence=durable", Controls { persistence: Some(Persistence::Durable), ..Controls::default() }),
        ("persistence=@batch", Controls { point: Some(Point::Batch), ..Controls::default() }),
        ("point=batch", Controls { point: Some(Point::Batch), ..Controls::default() }),
        (
            "temporality=bursty(30s)",
            Controls { temporality: Some(Temporality::Bursty), drain_ns: 30_000_000_000, ..Controls::default() },
        ),
        (
            "spatiality=strided(1MiB, 4KiB),error=stop",
            Controls {
                spatiality: Some(Spatiality::Strided),
                stride: 1 << 20,
                block: 4096,
                on_error: Some(OnError::Stop),
                ..Controls::default()
            },
        ),
        (
            "request_size=4096..1MiB",
            Controls { request_size: Limits { min: 4096, max: 1 << 20 }, ..Controls::default() },
        ),
        (
            "collection_size=..1GiB",
            Controls { collection_size: Limits { min: 0, max: 1 << 30 }, ..Controls::default() },
        ),
        ("collection_size=4KiB..", Controls { collection_size: Limits { min: 4096, max: 0 }, ..Controls::default() }),
        ("on_error=rollback", Controls { on_error: Some(OnError::Rollback), ..Controls::default() }),
    ] {
        assert_eq!(read(text), want, "{text}");
    }
}

#[test]
fn errors_say_where_what_and_what_else() {
    for (text, says) in [
        ("consistency=sesion", &["byte 12", "\"sesion\"", "did you mean \"session\"", "sequential, commit"][..]),
        ("concurrency=shared, consistancy=commit", &["byte 20", "did you mean \"consistency\"", "allowed: profile"]),
        ("persistence=durable@colse", &["byte 20", "did you mean \"close\"", "explicit"]),
        ("persistence=", &["byte 12", "allowed: volatile"]),
        ("persistence=durable@", &["byte 20", "allowed: close"]),
        ("profile=chekpoint", &["byte 8", "did you mean \"checkpoint\"", "exchange"]),
        ("consistency", &["byte 0", "has no '='"]),
        ("consistency=commit,", &["byte 19", "drop the comma"]),
        ("error=stop,,point=close", &["byte 11", "drop the comma"]),
        ("consistency=eventual(5)", &["byte 21", "\"5\" has no unit", "ns, us, ms"]),
        ("consistency=eventual(0s)", &["byte 21", "is zero"]),
        ("consistency=eventual(5s", &["byte 12", "closing parenthesis"]),
        ("consistency=commit(5s)", &["byte 12", "only eventual takes"]),
        ("atomicity=unit(4,5)", &["byte 10", "one argument"]),
        ("spatiality=strided(1MiB)", &["byte 11", "two sizes"]),
        ("spatiality=random(1,2)", &["byte 11", "only strided takes"]),
        ("request_size=4KB..5kb", &["byte 18", "did you mean KB"]),
        ("request_size=..", &["byte 13", "has no size"]),
        ("request_size=big", &["byte 13", "is not a number", "4KiB..1MiB"]),
        ("point=close,persistence=durable@batch", &["byte 32", "point a second time, after byte 0"]),
        ("error=stop,on_error=continue", &["byte 11", "error a second time"]),
        ("eventual=3s,consistency=eventual(5s)", &["byte 33", "eventual a second time"]),
        ("größe=1", &["byte 0", "\"größe\""]),
    ] {
        let error = error(text);
        for part in says {
            assert!(error.detail().contains(part), "{text}: {:?} lacks {part:?}", error.detail());
        }
    }
    assert!(!error("consistency=banana").detail().contains("did you mean"));
    assert!(!error("q=1").detail().contains("did you mean"));
    assert!(error("consistency=COMMIT").detail().contains("did you mean \"commit\""));
    assert!(error("consistency=seq").detail().contains("did you mean \"sequential\""));
    assert!(error(&"x".repeat(100_000)).detail().len() < 300, "a long word is not repeated in full");
}

#[test]
fn a_profile_sets_what_the_rest_of_its_text_leaves_unset() {
    let c = read("profile=posix,consistency=commit,point=request");
    assert_eq!(c, read("point=request,consistency=commit,profile=posix"));
    assert_eq!((c.consistency, c.point), (Some(Consistency::Commit), Some(Point::Request)));
    assert_eq!(c.spatiality, Some(Spatiality::Any));
}

#[test]
fn a_text_goes_over_what_was_set() {
    let mut c = read("consistency=eventual(9s),persistence=durable@batch,request_size=4096");
    parse(&mut c, "consistency=commit,persistence=process,request_size=..1MiB").unwrap();
    assert_eq!(format(&c), "consistency=commit,persistence=process@batch,request_size=..1MiB");
    let mut c = read("consistency=eventual(9s),spatiality=strided(8,4)");
    parse(&mut c, "eventual=1s,block=2").unwrap();
    assert_eq!(format(&c), "consistency=eventual(1s),spatiality=strided(8,2)");
    parse(&mut c, "stride=16").unwrap();
    assert_eq!((c.stride, c.block), (16, 2), "each parameter stands for itself");
    parse(&mut c, "consistency=eventual").unwrap();
    assert_eq!(c.eventual_ns, 0, "a value brings its parameters, also the default ones");
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(c in generate::controls()) {
        let text = format(&c);
        let mut back = Controls::default();
        prop_assert!(parse(&mut back, &text).is_ok(), "{}", text);
        prop_assert_eq!(back, c);
    }

    #[test]
    fn a_full_text_wins_over_anything(before in generate::controls(), e in generate::effective()) {
        let full = Controls::from(&crate::resolve::create(&Controls::from(&e), &Controls::default(), &generate::able())
            .unwrap_or_else(|refusal| refusal.offer));
        let mut c = before.clone();
        parse(&mut c, &format(&full)).unwrap();
        for (new, limits, old) in [
            (c.request_size, full.request_size, before.request_size),
            (c.collection_size, full.collection_size, before.collection_size),
        ] {
            prop_assert_eq!(new, if limits.is_unset() { old } else { limits });
        }
        c.request_size = full.request_size;
        c.collection_size = full.collection_size;
        prop_assert_eq!(c, full);
    }

    #[test]
    fn order_does_not_matter(c in generate::controls(), seed in any::<u64>()) {
        // strided(1,2) holds a comma: the parameters stand alone here.
        let text = format(&Controls { spatiality: None, ..c.clone() });
        let mut items: Vec<&str> = text.split(',').collect();
        let turn = seed as usize % items.len();
        items.rotate_left(turn);
        prop_assert_eq!(read(&items.join(" , ")), Controls { spatiality: None, ..c });
    }

    #[test]
    fn no_text_panics(text in ".{0,60}", key in "(consistency|spatiality|request_size|persistence)=", tail in "[a-z0-9(),.@= K]{0,30}") {
        for text in [text, key + &tail] {
            let mut c = Controls::default();
            if let Err(e) = parse(&mut c, &text) {
                prop_assert_eq!(e.kind(), Kind::Invalid);
                prop_assert_eq!(c, Controls::default());
            }
        }
    }
}
