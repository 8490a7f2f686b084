//! What is written reads back, and is written the same again.

use iov_types::{Kind, Uuid};
use iov_wire::messages::{Goodbye, Hello, Shutdown, StatusRequest, TargetCapability, Wake};
use iov_wire::{MAX_VERSION, MIN_VERSION, Wire};
use proptest::prelude::*;

use crate::strategies;

macro_rules! round_trips {
    ($($name:ident),* $(,)?) => {
        proptest! {
            $(#[test]
            fn $name(message in strategies::$name()) {
                let bytes = message.to_bytes();
                let read = Wire::decode(&bytes);
                prop_assert_eq!(read.as_ref(), Ok(&message));
                prop_assert_eq!(read.map(|m| m.to_bytes()), Ok(bytes));
            })*
        }
    };
}

round_trips!(
    which,
    value,
    range,
    extent,
    effective,
    controls,
    layout,
    attr,
    workspace_attr,
    stat,
    error,
    submission,
    catalog_op,
    catalog_reply,
    object_id,
    object_op,
    evidence,
    context,
    hello,
    welcome,
    catalog_request,
    catalog_answer,
    object_request,
    object_answer,
    grant_request,
    grant_answer,
    recall,
    give_back,
    renew,
    fault,
    status_answer,
    resume,
    resume_answer,
    sums_request,
    sums_answer,
    take_back,
    take_back_answer,
    challenge,
    proof,
);

#[test]
fn messages_without_fields_take_no_bytes() {
    assert!(Goodbye.to_bytes().is_empty() && StatusRequest.to_bytes().is_empty() && Shutdown.to_bytes().is_empty());
    assert!(Wake.to_bytes().is_empty());
    assert_eq!(Shutdown::decode(&[]), Ok(Shutdown));
}

proptest! {
    #[test]
    fn a_capability_comes_through_its_message(capability in strategies::capability()) {
        prop_assert_eq!(TargetCapability::from(&capability).named(capability.medium), capability);
    }

    #[test]
    fn the_version_chosen_is_one_that_both_speak(hello in strategies::hello()) {
        let both = |v: u16| (MIN_VERSION..=MAX_VERSION).contains(&v) && (hello.min_version..=hello.max_version).contains(&v);
        match hello.choose() {
            Ok(version) => prop_assert!(both(version) && !both(version + 1)),
            Err(error) => {
                prop_assert_eq!(error.kind(), Kind::Version);
                prop_assert!(!(MIN_VERSION..=MAX_VERSION).any(both));
            }
        }
    }
}

#[test]
fn a_library_that_does_not_fit_is_told_which_side_to_update() {
    let hello = |min_version, max_version| Hello {
        min_version,
        max_version,
        library: "9.1".into(),
        session: Uuid::NIL,
        program: "solver".into(),
        pid: 1,
        channel: 0,
        challenge: Vec::new(),
        target: 0,
        of: Uuid::NIL,
        rings: false,
    };
    assert_eq!(hello(MIN_VERSION, MAX_VERSION + 5).choose(), Ok(MAX_VERSION));
    assert!(hello(MAX_VERSION + 1, MAX_VERSION + 5).choose().unwrap_err().detail().ends_with("update the daemon"));
    assert!(hello(0, MIN_VERSION - 1).choose().unwrap_err().detail().ends_with("update the program's library"));
}
