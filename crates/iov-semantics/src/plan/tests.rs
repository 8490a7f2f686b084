use proptest::prelude::*;

use super::*;

fn op(class: Class, uses: &[(u64, bool)]) -> PlanOp {
    PlanOp { class, uses: uses.to_vec(), strict: false }
}

fn waves(plan: &mut Plan, mut ok: impl FnMut(usize) -> bool) -> Vec<Vec<usize>> {
    let mut out = Vec::new();
    while let Some(wave) = plan.next_wave() {
        for &i in &wave.ops {
            plan.ended(i, ok(i));
        }
        out.push(wave.ops);
    }
    out
}

#[test]
fn o9_many_create_write_close_need_three_waves() {
    let ops: Vec<_> = (0..3000)
        .map(|i| {
            let class = [Class::Catalog, Class::Data, Class::DataThenCatalog][i % 3];
            op(class, &[((i / 3) as u64, true)])
        })
        .collect();
    let mut plan = Plan::new(ops, &[], OnError::Continue);
    let waves = waves(&mut plan, |_| true);
    // One wave of each class, but for what lies behind the look-ahead.
    assert!(waves.len() <= 6, "{} waves", waves.len());
    assert_eq!(waves.iter().map(Vec::len).sum::<usize>(), 3000);
}

#[test]
fn b2_stop_without_barriers_skips_what_is_behind_a_failure() {
    let ops = vec![op(Class::Catalog, &[]), op(Class::Data, &[]), op(Class::Data, &[]), op(Class::Catalog, &[])];
    let mut plan = Plan::new(ops, &[], OnError::Stop);
    assert_eq!(waves(&mut plan, |i| i != 0), vec![vec![0]]);
    assert_eq!(plan.skipped().collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn b2_a_group_runs_whole_and_the_next_does_not() {
    let ops: Vec<_> = (0..6).map(|_| op(Class::Data, &[])).collect();
    let mut plan = Plan::new(ops, &[2, 4], OnError::Stop);
    assert_eq!(waves(&mut plan, |i| i != 2), vec![vec![0, 1], vec![2, 3]]);
    assert_eq!(plan.skipped().collect::<Vec<_>>(), [4, 5]);
}

#[test]
fn b1_continue_runs_everything_and_barriers_still_order() {
    let ops: Vec<_> = (0..4).map(|_| op(Class::Data, &[])).collect();
    let mut plan = Plan::new(ops, &[2], OnError::Continue);
    assert_eq!(waves(&mut plan, |_| false), vec![vec![0, 1], vec![2, 3]]);
}

#[test]
fn strict_operations_wait_for_what_they_need() {
    let mut needy = op(Class::Catalog, &[(1, false)]);
    needy.strict = true;
    let ops = vec![op(Class::Catalog, &[(1, true)]), needy, op(Class::Catalog, &[(2, true)])];
    assert_eq!(waves(&mut Plan::new(ops, &[], OnError::Continue), |_| true), vec![vec![0, 2], vec![1]]);
}

fn any_ops() -> impl Strategy<Value = Vec<PlanOp>> {
    let class = prop_oneof![Just(Class::Catalog), Just(Class::Data), Just(Class::DataThenCatalog), Just(Class::Alone)];
    let one = (class, prop::collection::vec((0u64..6, any::<bool>()), 0..3), any::<bool>());
    prop::collection::vec(one.prop_map(|(class, uses, strict)| PlanOp { class, uses, strict }), 0..40)
}

proptest! {
    #[test]
    fn o9_conflicting_operations_keep_their_order(
        ops in any_ops(), barriers in prop::collection::btree_set(0usize..40, 0..4), stop in any::<bool>(),
    ) {
        let barriers: Vec<usize> = barriers.into_iter().collect();
        let policy = if stop { OnError::Stop } else { OnError::Continue };
        let mut plan = Plan::new(ops.clone(), &barriers, policy);
        let mut place = vec![None; ops.len()];
        let mut n = 0;
        while let Some(wave) = plan.next_wave() {
            prop_assert!(wave.ops.iter().all(|i| ops[*i].class == wave.class));
            for &i in &wave.ops {
                place[i] = Some((n, i));
                plan.ended(i, true);
            }
            n += 1;
        }
        let group = |i: usize| barriers.iter().filter(|b| **b <= i).count();
        for a in 0..ops.len() {
            prop_assert!(place[a].is_some(), "operation {} never ran", a);
            for b in a + 1..ops.len() {
                let share = ops[a].uses.iter().any(|(t, w)| ops[b].uses.iter().any(|(u, v)| t == u && (*w || *v)));
                if share {
                    prop_assert!(place[a] < place[b]);
                    if ops[b].strict && !stop {
                        prop_assert!(place[a].unwrap().0 < place[b].unwrap().0);
                    }
                }
                if group(a) < group(b) {
                    prop_assert!(place[a].unwrap().0 < place[b].unwrap().0 || (stop && barriers.is_empty()));
                }
            }
        }
    }
}
