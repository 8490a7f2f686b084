use super::{passport::Passport, *};

fn sample() -> Passport {
    Passport {
        kind: kind::COLLECTION,
        process: 42,
        expires_ns: -5,
        workspace: Uuid([1; 16]),
        object: Uuid([2; 16]),
        url: "mem:x".into(),
        token: vec![9, 8, 7],
    }
}

#[test]
fn a_passport_survives_the_journey() {
    let bytes = sample().to_bytes();
    assert_eq!(Passport::from_bytes(&bytes).unwrap(), sample());
    let empty = Passport { url: String::new(), token: Vec::new(), ..sample() };
    assert_eq!(Passport::from_bytes(&empty.to_bytes()).unwrap(), empty);
}

#[test]
fn damage_is_found() {
    let bytes = sample().to_bytes();
    for i in 0..bytes.len() {
        for bit in 0..8 {
            let mut wrong = bytes.clone();
            wrong[i] ^= 1 << bit;
            assert_eq!(Passport::from_bytes(&wrong).unwrap_err().kind(), Kind::Invalid);
        }
        assert!(Passport::from_bytes(&bytes[..i]).is_err());
    }
    let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
    assert!(Passport::from_bytes(&longer).is_err());
    assert!(Passport::from_bytes(&vec![0; 100_000]).is_err());
    let nothing = Passport { kind: 9, ..sample() };
    assert!(Passport::from_bytes(&nothing.to_bytes()).is_err());
}

#[test]
fn bytes_of_ended_leases_and_other_processes_are_refused() {
    let session = crate::object::register(SessionObject {
        cx: std::sync::Arc::new(Context {
            session: ioverbs::open(Some("mem:x"), Default::default()).unwrap(),
            buffers: Default::default(),
        }),
    })
    .unwrap();
    let pinned = session.get().unwrap();
    let kind_of = |p: Passport| import(session, &pinned, &p).unwrap_err().kind();
    assert_eq!(kind_of(sample()), Kind::Unsupported);
    let ours = Passport { process: std::process::id(), ..sample() };
    assert_eq!(kind_of(ours.clone()), Kind::Stale);
    let valid = Passport { expires_ns: i64::MAX, ..ours };
    assert_eq!(kind_of(valid.clone()), Kind::Stale, "there is no such workspace any more");
    assert_eq!(kind_of(Passport { url: "mem:y".into(), ..valid }), Kind::Invalid);
}
