use super::*;

#[test]
fn a_log_is_taken_apart_and_damage_is_found() {
    let mut log = record_of(3, 19, 50);
    log.extend(make("w4.0", 12).unwrap());
    let found = records(&log).unwrap();
    assert_eq!(found.iter().map(|r| (r.writer, r.number, r.offset)).collect::<Vec<_>>(), [(3, 19, 0), (4, 0, 50)]);
    for at in 0..log.len() {
        let mut damaged = log.clone();
        damaged[at] ^= 1;
        // A number may turn into that of another record, but then the bytes behind it do not fit.
        let same = records(&damaged).is_ok_and(|r| r == found);
        assert!(!same, "byte {at}");
    }
    assert!(records(&log[..55]).is_err());
}

#[test]
fn runs_say_what_is_there() {
    assert_eq!(runs(&[1, 1, 2]), "3:1*2,2*1");
    assert_eq!(runs(&[]), "0:");
    let long = [vec![3; 10_000], vec![4; 4096], vec![3]].concat();
    assert_eq!(runs(&long), "14097:3*10000,4*4096,3*1");
    assert_eq!(make("7", 2).unwrap(), [7, 7]);
    assert!(make("x", 2).is_none());
    assert_eq!((number("4096+2*8"), number("3+x")), (Some(4112), None));
}
