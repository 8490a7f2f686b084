use super::*;

#[test]
fn what_is_written_down_is_read_again_and_damage_is_told() {
    let member = Member {
        daemon: Uuid([1; 16]),
        store: Uuid([2; 16]),
        catalog: vec![Host::parse("node7-ib").unwrap(), Host::parse("[::1]:99").unwrap()],
        domain: Some("rack 2".into()),
        targets: vec![Uuid([3; 16]), Uuid([4; 16])],
    };
    assert_eq!(Member::read(&member.text()), Ok(member.clone()));
    let whole = member.text();
    for cut in 0..whole.find("catalog").unwrap() {
        assert_eq!(Member::read(&whole[..cut]).map_err(|e| e.kind()), Err(Kind::Corrupt), "cut at {cut}");
    }
    assert_eq!(Member::read(&format!("{whole}more\n")).map_err(|e| e.kind()), Err(Kind::Corrupt));
}
