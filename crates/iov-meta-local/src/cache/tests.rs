use super::*;

fn hash(key: &[u8]) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

fn put(cache: &Cache, key: &[u8], value: &[u8], revision: u64, epoch: u64) {
    cache.put(key, hash(key), value, revision, epoch);
}

fn get(cache: &Cache, key: &[u8], newest: u64) -> Option<(Vec<u8>, u64)> {
    let mut out = None;
    let hit = cache.get(key, hash(key), newest, |value, revision| out = Some((value.to_vec(), revision)));
    assert_eq!(hit, out.is_some());
    out
}

#[test]
fn a_value_comes_back_to_views_that_are_not_older() {
    let cache = Cache::new(1 << 20, 1);
    put(&cache, b"k", b"v", 10, 1);
    assert_eq!(get(&cache, b"k", 10), Some((b"v".to_vec(), 10)));
    assert_eq!(get(&cache, b"k", 9), None, "the view is from before it");
    assert_eq!(get(&cache, b"other", 99), None);
    put(&cache, b"", b"", 1, 1);
    assert_eq!(get(&cache, b"", 1), Some((vec![], 1)));
}

#[test]
fn what_was_read_from_older_tables_is_not_taken() {
    let cache = Cache::new(1 << 20, 1);
    put(&cache, b"a", b"old", 5, 1);
    cache.advance(2);
    cache.change(b"a", hash(b"a"), Some(b"new"), 8);
    cache.change(b"b", hash(b"b"), Some(b"not asked for"), 8);
    put(&cache, b"c", b"read before", 4, 1);
    assert_eq!(get(&cache, b"a", 99), Some((b"new".to_vec(), 8)));
    assert_eq!((get(&cache, b"b", 99), get(&cache, b"c", 99)), (None, None));
    put(&cache, b"a", b"again", 3, 2);
    assert_eq!(get(&cache, b"a", 99), Some((b"new".to_vec(), 8)), "what is there stays");
    cache.change(b"a", hash(b"a"), None, 9);
    assert_eq!(get(&cache, b"a", 99), None, "deleted");
}

#[test]
fn it_keeps_to_its_bytes_and_keeps_what_is_read() {
    let bytes = 4 << 20;
    let cache = Cache::new(bytes, 1);
    let key = |i: u32| [&b"a key of usual length "[..], &i.to_be_bytes()].concat();
    let hot: Vec<u32> = (0..500).collect();
    hot.iter().for_each(|i| put(&cache, &key(*i), &[1; 250], 1, 1));
    for i in 1000..60_000 {
        put(&cache, &key(i), &[i as u8; 250], u64::from(i), 1);
        let again = hot[i as usize % hot.len()];
        get(&cache, &key(again), 1);
        // And a second time, so that some of the passing ones are read too.
        if i % 50 == 0 {
            assert_eq!(get(&cache, &key(i), u64::MAX), Some((vec![i as u8; 250], u64::from(i))));
        }
    }
    assert!(cache.used() <= bytes as u64 && cache.used() > bytes as u64 / 2, "{} bytes", cache.used());
    let kept = hot.iter().filter(|i| get(&cache, &key(**i), 1).is_some()).count();
    assert!(kept > 450, "{kept} of {} that were read all the time are there", hot.len());
    let there = (1000..60_000).filter(|i| get(&cache, &key(*i), u64::MAX).is_some()).count();
    assert!(there * 296 > bytes / 2, "{there} others: the room is used");
}

#[test]
fn every_value_is_the_right_one_through_changes_and_all_sizes() {
    let cache = Cache::new(512 << 10, 0);
    let mut model = std::collections::HashMap::new();
    let (mut seed, mut epoch, mut hits) = (9u64, 0, 0);
    let mut next = move |n: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % n
    };
    for revision in 1..60_000u64 {
        let key = next(2000).to_be_bytes();
        match next(10) {
            0 => {
                epoch += 1;
                cache.advance(epoch);
                let len = [0, 10, 300, 9000, 20_000][next(5) as usize];
                let value = vec![revision as u8; len];
                cache.change(&key, hash(&key), Some(&value), revision);
                model.insert(key, (value, revision));
            }
            1 => {
                cache.change(&key, hash(&key), None, revision);
                model.remove(&key);
            }
            _ => match get(&cache, &key, u64::MAX) {
                Some(found) => {
                    hits += 1;
                    assert_eq!(model.get(&key), Some(&found), "revision {revision}");
                }
                None => {
                    if let Some((value, revision)) = model.get(&key) {
                        put(&cache, &key, value, *revision, epoch);
                    }
                }
            },
        }
    }
    assert!(hits > 1000, "{hits} hits");
}

#[test]
fn without_room_it_stays_empty() {
    for bytes in [0, 1, BLOCK] {
        let cache = Cache::new(bytes, 1);
        (0..100u32).for_each(|i| put(&cache, &i.to_be_bytes(), b"v", 1, 1));
        assert_eq!((cache.used(), get(&cache, &0u32.to_be_bytes(), 1)), (0, None));
    }
    let cache = Cache::new(2 * BLOCK, 1);
    put(&cache, b"large", &vec![1; ENTRY], 1, 1);
    assert_eq!(get(&cache, b"large", 1), None);
    put(&cache, b"inline", &[1; 9000], 1, 1);
    assert!(get(&cache, b"inline", 1).is_some());
}
