use iov_store::Memory;
use iov_types::{Demand, ObjectId, ObjectOp};

use super::*;

/// What the catalog looks at while it changes something holds up all others, also where it is done for who has time.
#[test]
fn what_the_catalog_asks_for_a_session_in_the_background_gives_way_to_nobody() {
    let priority = |verbs: &[ObjectVerb]| {
        let object = ObjectId { collection: Uuid([1; 16]), slot: 0 };
        let op =
            |verb: &ObjectVerb| (ObjectOp { object, verb: verb.clone(), demand: Demand::default() }, Memory::default());
        priority_of(&verbs.iter().map(op).collect::<Vec<_>>(), Priority::Background)
    };
    let list = ObjectVerb::List { after: None, max: 9 };
    assert_eq!(priority(&[ObjectVerb::Stat]), Priority::Foreground);
    assert_eq!(priority(&[ObjectVerb::Fence { epoch: 2 }]), Priority::Foreground);
    assert_eq!(priority(&[list.clone(), ObjectVerb::Stat]), Priority::Foreground);
    assert_eq!(priority(&[list.clone(), list]), Priority::Background);
}
