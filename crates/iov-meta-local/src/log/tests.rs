use super::{
    frame::{HEAD, Head, Kind, MAGIC, MARK, mark, writes},
    *,
};

fn frame(txns: &[&[(&str, Option<&str>)]]) -> (Vec<u8>, Vec<Write>) {
    let mut frame = Frame::with_capacity(0, 0);
    for txn in txns {
        let list: Vec<_> = txn.iter().map(|(k, v)| (k.as_bytes().to_vec(), v.map(|v| v.to_owned().into()))).collect();
        assert_eq!(
            Frame::txn_bytes(&list),
            4 + txn.iter().map(|(k, v)| 6 + k.len() + v.unwrap_or("").len()).sum::<usize>()
        );
        frame.push(&list);
    }
    frame.finish(7, 100, 5, 42)
}

#[test]
fn a_frame_reads_as_it_was_written() {
    let (bytes, made) = frame(&[&[("Rk", Some("value")), ("Nk", None)], &[], &[("", Some(""))]]);
    let head = Head::decode(&bytes, 42).expect("a head");
    assert_eq!((head.kind, head.sequence, head.revision, head.synced, head.txns), (Kind::Commit, 7, 100, 5, 3));
    assert_eq!(head.last_revision(), 102);
    assert!(head.fits(&bytes[HEAD..]));
    let read = writes(&bytes, &head).expect("writes");
    assert_eq!(read, made);
    let pairs: Vec<_> =
        read.iter().map(|w| (w.txn, key_of(&bytes, w.at, w.key_len), value_of(&bytes, w.at, w.key_len))).collect();
    let none: Option<&[u8]> = None;
    assert_eq!(pairs, [(0, &b"Rk"[..], Some(&b"value"[..])), (0, b"Nk", none), (2, b"", Some(b""))]);
    let mark = mark([9; 16], 3, 50, 2, 42);
    let head = Head::decode(&mark, 42).expect("a head");
    assert_eq!((head.kind, head.last_revision(), mark.len()), (Kind::Mark, 50, MARK));
}

#[test]
fn a_frame_of_another_segment_is_none() {
    let (bytes, _) = frame(&[&[("R", Some("v"))]]);
    assert!(Head::decode(&bytes, 42).is_some());
    assert!(Head::decode(&bytes, 43).is_none());
    assert!(Head::decode(&bytes[..HEAD - 1], 42).is_none());
    for at in 0..HEAD {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        assert!(Head::decode(&bytes, 42).is_none(), "byte {at}");
    }
}

/// A frame with a good sum around any body.
fn around(body: &[u8], txns: u32) -> (Vec<u8>, Head) {
    let mut frame = Frame::with_capacity(0, 0);
    frame.push(&[]);
    let (bytes, _) = frame.finish(1, 1, 0, 0);
    let mut head = Head::decode(&bytes, 0).expect("a head");
    head.txns = txns;
    head.body_len = body.len() as u32;
    ([&bytes[..HEAD], body].concat(), head)
}

#[test]
fn lengths_that_do_not_add_up_are_noticed() {
    let cases: [&[u8]; 6] = [
        &[],
        &[1, 0, 0],
        &[1, 0, 0, 0],
        &[1, 0, 0, 0, 5, 0, 0, 0, 0, 0, b'k'],
        &[1, 0, 0, 0, 1, 0, 9, 0, 0, 0, b'k', b'v'],
        &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0],
    ];
    for body in cases {
        let (bytes, head) = around(body, 1);
        assert!(writes(&bytes, &head).is_err(), "{body:?}");
    }
    let (bytes, head) = around(&[0, 0, 0, 0, 7], 1);
    assert!(writes(&bytes, &head).is_err(), "something is left over");
    let mut seed = 1u64;
    for _ in 0..20_000 {
        let body: Vec<u8> = (0..40)
            .map(|_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                [(seed >> 60) as u8 & 3, (seed >> 33) as u8][(seed >> 40) as usize & 1]
            })
            .collect();
        let (bytes, head) = around(&body, 1 + (seed as u32 & 3));
        if let Ok(found) = writes(&bytes, &head) {
            for write in found {
                let (key, value) = (key_of(&bytes, write.at, write.key_len), value_of(&bytes, write.at, write.key_len));
                assert!(key.len() + value.map_or(0, <[u8]>::len) <= body.len());
            }
        }
    }
}

#[test]
fn a_frame_inside_a_value_is_not_taken_for_one() {
    use crate::{
        Options,
        tests::kit::{Place, apply, open},
    };
    use iov_store::MetadataStore;
    let place = Place::new("frame-in-value");
    let store = open(place.path(), &Options::default());
    let put = |key: &str, value: Vec<u8>| {
        apply(&store, vec![(key.into(), Some(value.into()))]);
    };
    put("R1", vec![1; 100]);
    let log = place.path().join(name(1));
    // Somebody stores the log itself, then the machine dies within the frame behind that.
    let all = std::fs::read(&log).expect("the log");
    assert!(all.windows(4).filter(|w| *w == MAGIC).count() >= 3);
    put("R2", all);
    put("R3", std::fs::read(&log).expect("the log"));
    store.engine().hooks.fail(crate::hooks::Point::Sync, 5);
    drop(store);
    let file = std::fs::File::options().write(true).open(&log).expect("the log");
    file.set_len(std::fs::metadata(&log).expect("the log").len() - 10).expect("cut");
    // The torn frame is cut off.
    let store = open(place.path(), &Options::default());
    assert_eq!(
        store.get(&[b"R1", b"R2", b"R3"]).expect("a get").iter().map(Option::is_some).collect::<Vec<_>>(),
        [true, true, false]
    );
}

#[test]
fn the_bytes_of_the_log_are_for_ever() {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let (commit, _) = frame(&[&[("Rk", Some("v")), ("N", None)]]);
    assert_eq!(
        hex(&segment::encode_head(3, 42)),
        "494f564d4c4f4731010000000000000003000000000000002a00000000000000aa8337e52f5596a3"
    );
    assert_eq!(
        hex(&commit),
        "494f5646010000001400000001000000070000000000000064000000000000000500000000000000b67915db3f3c49f4ca3add99b9e5f12a02000000020001000000526b760100ffffffff4e"
    );
    assert_eq!(
        hex(&mark([9; 16], 3, 50, 2, 42)),
        "494f5646020000001000000000000000030000000000000032000000000000000200000000000000edf730426760d543c5c1ba8cb4f0c15c09090909090909090909090909090909"
    );
}
