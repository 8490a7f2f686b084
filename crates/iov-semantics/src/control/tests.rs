use proptest::prelude::*;

use super::*;
use crate::generate;

proptest! {
    #[test]
    fn the_controls_together_are_all_of_them(c in generate::controls()) {
        let mut copy = Controls::default();
        for control in Control::ALL {
            control.copy(&c, &mut copy);
            prop_assert_eq!(control.is_set(&c), control.is_set(&copy));
        }
        prop_assert_eq!(copy, c);
    }

    #[test]
    fn what_is_put_is_what_only_shows(from in generate::effective(), to in generate::effective()) {
        let mut all = to.clone();
        for control in Control::ALL {
            let mut one = to.clone();
            control.put(&from, &mut one);
            control.put(&from, &mut all);
            for other in Control::ALL {
                let origin = if other == control { &from } else { &to };
                prop_assert!(other.same(&one, origin));
            }
        }
        prop_assert_eq!(all, from);
    }

    #[test]
    fn filling_changes_nothing_that_is_set(a in generate::controls(), b in generate::controls()) {
        let mut filled = a.clone();
        fill(&mut filled, &b);
        for control in Control::ALL {
            prop_assert_eq!(control.is_set(&filled), control.is_set(&a) || control.is_set(&b));
        }
        let mut again = filled.clone();
        fill(&mut again, &a);
        prop_assert_eq!(&again, &filled);
        prop_assert!(a.consistency.is_none() || filled.consistency == a.consistency);
        prop_assert!(a.request_size.is_unset() || filled.request_size == a.request_size);
    }
}

#[test]
fn values_read_like_text() {
    let mut e = generate::posix();
    e.consistency = iov_types::Consistency::Eventual;
    e.eventual_ns = 5_000_000_000;
    assert_eq!(Control::Consistency.value(&e), "eventual(5s)");
    assert_eq!(Control::RequestSize.value(&e), "unknown");
}
