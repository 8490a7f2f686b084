use iov_types::{Controls, Kind};
use proptest::{prelude::*, sample::select};

use super::*;
use std::slice::from_ref as one;

use crate::{admit, generate, resolve, text};

fn contract(persistence: &str) -> Contract {
    let mut c = Controls::default();
    text::parse(&mut c, &format!("persistence={persistence}")).unwrap();
    let able = generate::able();
    admit(&resolve::create(&Controls::default(), &c, &able).unwrap(), None, &able).unwrap()
}

fn reached(durability: Option<Persistence>) -> Evidence {
    Evidence { durability, ..Evidence::default() }
}

#[test]
fn p5_a_change_below_its_level_at_its_point_is_found() {
    let (process, durable) = (reached(Some(Persistence::Process)), reached(Some(Persistence::Durable)));
    let c = contract("durable@request");
    assert!(verify(&c, &[durable.clone(), durable.clone()]).is_ok());
    for bad in [process.clone(), reached(None)] {
        let error = verify(&c, &[durable.clone(), bad]).unwrap_err();
        assert_eq!(
            (error.kind(), error.clause(), error.outcome()),
            (Kind::Internal, Some(Clause::P5), Outcome::Applied)
        );
        assert!(error.detail().starts_with("evidence 1"), "{error}");
    }
    // Before its point nothing is owed.
    let c = contract("durable@close");
    assert!(verify(&c, one(&process)).is_ok());
    assert!(verify_at(&c, SyncPoint::Batch, one(&process)).is_ok());
    assert!(verify_at(&c, SyncPoint::Close, one(&process)).is_err());
    assert!(verify_at(&c, SyncPoint::Explicit, one(&process)).is_err());
    assert!(verify_at(&c, SyncPoint::Close, &[durable]).is_ok());
    // A level that needs no sync is owed at once, wherever the point is.
    assert!(verify(&contract("process@explicit"), &[reached(Some(Persistence::Volatile))]).is_err());
    assert!(verify(&contract("process@close"), &[process]).is_ok());
    assert!(verify(&contract("volatile@request"), &[reached(None)]).is_ok());
}

proptest! {
    #[test]
    fn p5_a_later_point_never_owes_less(
        level in select(Persistence::ALL), point in select(iov_types::Point::ALL), reached_level in select(Persistence::ALL),
    ) {
        let c = contract(&format!("{}@{}", level.text(), point.text()));
        let points = [SyncPoint::Request, SyncPoint::Batch, SyncPoint::Close, SyncPoint::Explicit];
        let ok = points.map(|p| verify_at(&c, p, &[reached(Some(reached_level))]).is_ok());
        prop_assert!(ok.windows(2).all(|w| w[0] || !w[1]), "{:?}", ok);
        prop_assert_eq!(ok[3], reached_level >= level);
    }
}
