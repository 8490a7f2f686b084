use iov_engine::{BatchAttr, Op, OpState};
use iov_types::{EntryKind, Kind, Name};

use super::{Lent, explain_batch, run_batch};

fn workspace(name: &str) -> iov_engine::Workspace {
    let session = crate::open(Some(&format!("mem:lent-{name}")), Default::default()).unwrap();
    session.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap()
}

fn create(ws: &iov_engine::Workspace, name: &str) -> (iov_engine::Collection, Op) {
    let out = ws.pending(EntryKind::Collection);
    let name = Some(Name::new(name).unwrap());
    let (metadata, controls) = Default::default();
    (out.clone(), Op::Create { out, parent: None, name, metadata, controls })
}

#[test]
fn t20_a_batch_reads_in_its_own_memory_what_it_wrote_from_borrowed_memory() {
    let ws = workspace("read");
    let (c, made) = create(&ws, "a");
    let data = vec![7; 300_000];
    let mut room = vec![0; 400_000];
    let ops = vec![
        made.into(),
        Lent::Write { c: c.clone(), offset: 5, data: &data },
        Lent::Read { c: c.clone(), offset: 0, buf: &mut room },
        Op::Close { c }.into(),
    ];
    let statuses = run_batch(ws.session(), BatchAttr::default(), ops).unwrap();
    assert!(statuses.iter().all(|s| s.state == OpState::Ok), "{statuses:?}");
    assert_eq!((statuses[1].bytes, statuses[2].bytes), (300_000, 300_005));
    assert_eq!((&room[..5], &room[5..300_005]), (&[0; 5][..], &data[..]));
}

#[test]
fn b1_each_operation_has_its_own_end() {
    let ws = workspace("ends");
    let (_, first) = create(&ws, "a");
    let (_, again) = create(&ws, "a");
    let statuses = run_batch(ws.session(), BatchAttr::default(), vec![first.into(), again.into()]).unwrap();
    assert_eq!(statuses[0].state, OpState::Ok);
    assert_eq!(statuses[1].error.as_ref().unwrap().kind(), Kind::Exists);
}

#[test]
fn a_plan_moves_nothing() {
    let ws = workspace("plan");
    let c = crate::create(&ws, None, Some("a"), Default::default(), Default::default()).unwrap();
    let plan =
        explain_batch(ws.session(), BatchAttr::default(), vec![Lent::Append { c: c.clone(), data: b"abc" }]).unwrap();
    assert!(plan.contains("\"append\"") && plan.contains("\"bytes\":3"), "{plan}");
    assert_eq!(crate::stat(&c).unwrap().bytes, 0);
    assert_eq!(explain_batch(ws.session(), BatchAttr::default(), Vec::new()).unwrap_err().kind(), Kind::Invalid);
}
