use std::{collections::BTreeMap, ops::Bound};

use super::{page::Found, *};
use crate::log::Frame;

/// Adds one transaction.
fn add(buffer: &Buffer, revision: u64, list: &[(&[u8], Option<&[u8]>)]) {
    let mut frame = Frame::with_capacity(0, 0);
    frame.push(&list.iter().map(|(k, v)| (k.to_vec(), v.map(Bytes::copy_from_slice))).collect::<Vec<_>>());
    let (bytes, writes) = frame.finish(1, revision, 0, 0);
    buffer.add(bytes.into(), &writes, revision, revision);
}

fn empty() -> Buffer {
    Buffer::new(1, Seed::random(), 0)
}

fn find(buffer: &Buffer, key: &[u8], revision: u64) -> Option<Option<Vec<u8>>> {
    let hash = buffer.seed.hash(key);
    buffer.read().find(key, hash, revision).map(|hit| hit.value.map(<[u8]>::to_vec))
}

#[test]
fn each_view_finds_the_newest_write_up_to_its_revision() {
    let buffer = empty();
    add(&buffer, 5, &[(b"R", Some(b"a")), (b"R", Some(b"b"))]);
    add(&buffer, 7, &[(b"R", None), (b"N", Some(b""))]);
    add(&buffer, 9, &[(b"R", Some(b"c"))]);
    let at = |revision| find(&buffer, b"R", revision);
    assert_eq!(at(4), None, "not there yet: older buffers are asked");
    assert_eq!(at(5), Some(Some(b"b".to_vec())), "of one transaction the later wins");
    assert_eq!(at(6), Some(Some(b"b".to_vec())));
    assert_eq!(at(8), Some(None), "deleted: nobody else is asked");
    assert_eq!(at(99), Some(Some(b"c".to_vec())));
    assert_eq!(find(&buffer, b"N", 7), Some(Some(vec![])));
    assert_eq!(find(&buffer, b"x", 99), None);
    assert_eq!(buffer.last(), 9);
}

type Model = BTreeMap<Vec<u8>, (Option<Vec<u8>>, u64)>;

/// What the pages of a range give.
fn pages(buffer: &Buffer, family: Family, revision: u64, from: Bound<Vec<u8>>, to: Option<&[u8]>) -> Vec<Found> {
    let mut page = Page::new(buffer, family, revision, from, to);
    std::iter::from_fn(|| {
        page.peek()?;
        page.take()
    })
    .collect()
}

#[test]
fn pages_have_every_key_once_in_order_as_the_view_sees_it() {
    let (buffer, mut seed) = (empty(), 3u64);
    let mut next = move |n: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % n
    };
    let mut models = vec![Model::new()];
    for revision in 1..=400 {
        let mut model = models[models.len() - 1].clone();
        let mut list = Vec::new();
        for _ in 0..next(12) {
            // Equal in their first bytes and with zeros at their end, which the order must tell apart.
            let mut key = b"Rcommon".to_vec();
            key.extend((0..next(22)).map(|_| next(2) as u8));
            let value = (next(4) != 0).then(|| vec![revision as u8; 3]);
            model.insert(key.clone(), (value.clone(), revision));
            list.push((key, value));
        }
        add(&buffer, revision, &list.iter().map(|(k, v)| (&k[..], v.as_deref())).collect::<Vec<_>>());
        models.push(model);
        if next(10) == 0 {
            // Reading sorts what is there so far; more comes later.
            let at = next(revision + 1);
            let from = models[at as usize].keys().nth(next(20) as usize).cloned().unwrap_or_default();
            let (from, to) = match next(2) {
                0 => (Bound::Included(from), None),
                _ => (Bound::Excluded(from), Some(&b"Rcommon\x01\x01"[..])),
            };
            let found = pages(&buffer, Family::Records, at, from.clone(), to);
            let range = models[at as usize].range((from, Bound::Unbounded));
            let expected: Vec<Found> = range
                .filter(|(k, _)| to.is_none_or(|to| &k[..] < to))
                .map(|(k, (v, r))| (Bytes::from(k.clone()), v.clone().map(Bytes::from), *r))
                .collect();
            assert!(found == expected, "a view of {at} at {revision}: {} of {}", found.len(), expected.len());
        }
    }
    assert!(pages(&buffer, Family::Names, 400, Bound::Unbounded, None).is_empty());
    buffer.seal(Family::Records);
    let entries = buffer.read();
    let newest: Vec<_> = entries
        .newest(Family::Records)
        .map(|(k, hit, _)| (k.to_vec(), (hit.value.map(<[u8]>::to_vec), hit.revision)))
        .collect();
    assert!(newest.into_iter().eq(models[400].clone()), "for tables: each key once, its newest write, ascending");
}

#[test]
fn large_values_share_the_memory_of_their_frame_and_small_ones_do_not() {
    let buffer = empty();
    let (small, large) = (vec![1; COPY_BYTES], vec![2; COPY_BYTES + 1]);
    add(&buffer, 1, &[(b"R1", Some(&small)), (b"R2", Some(&large))]);
    let entries = buffer.read();
    let frame = entries.frames[0].as_ptr_range();
    let inside = |key: &[u8]| {
        let bytes = entries.find(key, buffer.seed.hash(key), 1).and_then(|hit| hit.to_bytes()).expect("a value");
        frame.contains(&bytes.as_ptr())
    };
    assert_eq!((inside(b"R1"), inside(b"R2")), (false, true));
}
