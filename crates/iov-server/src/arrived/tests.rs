use iov_types::{
    Uuid,
    catalog::{CatalogReply, Staged},
};

use super::*;

fn batch(staged: Vec<Staged>) -> Submission {
    Submission::All { batch: Uuid::NIL, remember: false, staged }
}

#[test]
fn what_took_something_with_it_is_not_repeated() {
    let staged = Staged { workspace: Uuid::NIL, collection: Uuid::NIL, epoch: 0, place: Default::default() };
    assert!(!may_be_repeated(&batch(vec![staged]), 1), "its refusal has dropped what was staged");
    assert!(may_be_repeated(&batch(Vec::new()), 3));
    assert!(may_be_repeated(&Submission::DryRun, 3));
    for how in [Submission::Each, Submission::UntilFailure] {
        assert!(may_be_repeated(&how, 1));
        assert!(!may_be_repeated(&how, 2), "the other one was done");
    }
}

#[test]
fn only_who_was_refused_for_others_sake_was_kept_out() {
    let busy = || Error::busy("it is open").with_outcome(Outcome::NotApplied);
    assert!(was_kept_out(&Err(busy())));
    assert!(was_kept_out(&Ok(vec![Ok(CatalogReply::Done), Err(busy())])));
    assert!(!was_kept_out(&Err(busy().with_outcome(Outcome::Applied))), "it is done");
    assert!(!was_kept_out(&Err(busy().with_outcome(Outcome::Unknown))));
    assert!(!was_kept_out(&Err(Error::not_found("it has gone"))));
    assert!(!was_kept_out(&Ok(vec![Err(busy()), Ok(CatalogReply::Done)])));
    assert!(!was_kept_out(&Ok(Vec::new())));
}
