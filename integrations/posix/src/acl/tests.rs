use proptest::prelude::*;

use super::*;

fn acl(text: &str) -> Acl {
    Acl::parse(text).unwrap_or_else(|| panic!("{text}"))
}

fn somebody(uid: u32, gid: u32) -> Caller {
    Caller { uid, gid, ..Caller::default() }
}

#[test]
fn only_what_the_kernel_takes_for_a_list_is_one() {
    for text in
        ["u::rw-,g::r--,o::---", "u::rwx,u:7:r-x,u:8:---,g::r--,g:9:-w-,m::rwx,o::--x", "u::---,g::---,m::---,o::---"]
    {
        assert_eq!(acl(text).text(), text);
    }
    let wrong = [
        "",
        "u::rw-",
        "u::rw-,g::r--",
        "g::r--,u::rw-,o::---",
        "u::rw-,u:7:r--,g::r--,o::---",
        "u::rw-,u::rw-,g::r--,o::---",
        "u::rw-,g::r--,m::r--,m::r--,o::---",
        "u::rw-,g::r--,o::---,",
        "u::rw,g::r--,o::---",
        "u::wr-,g::r--,o::---",
        "u::rwxx,g::r--,o::---",
        "u:-1:rw-,g::r--,m::r--,o::---",
        "u::rw-:,g::r--,o::---",
        "u::rw-,u:4294967296:r--,g::r--,m::r--,o::---",
    ];
    assert!(wrong.iter().all(|text| Acl::parse(text).is_none()), "{wrong:?}");
}

#[test]
fn the_kernels_form_is_read_and_written() {
    let bytes = acl("u::rw-,u:1000:r--,g::r--,m::r--,o::---").to_xattr();
    #[rustfmt::skip]
    let expected = [
        2, 0, 0, 0, //
        1, 0, 6, 0, 255, 255, 255, 255,
        2, 0, 4, 0, 232, 3, 0, 0,
        4, 0, 4, 0, 255, 255, 255, 255,
        16, 0, 4, 0, 255, 255, 255, 255,
        32, 0, 0, 0, 255, 255, 255, 255,
    ];
    assert_eq!(bytes, expected);
    assert_eq!(Acl::from_xattr(&[]), Ok(None));
    assert_eq!(Acl::from_xattr(&bytes[..4]), Ok(None));
    assert_eq!(Acl::from_xattr(&bytes[..20]), Err(Errno::EINVAL), "too few");
    assert_eq!(Acl::from_xattr(&bytes[..43]), Err(Errno::EINVAL), "cut");
    assert_eq!(Acl::from_xattr(&[&[1], &bytes[1..]].concat()), Err(Errno::EOPNOTSUPP), "another version");
    assert_eq!(Acl::from_xattr(&[&bytes[..6], &[8], &bytes[7..]].concat()), Err(Errno::EINVAL), "a fourth right");
}

#[test]
fn a_mode_says_what_owner_mask_and_others_may() {
    let list = acl("u::rwx,u:7:rwx,g::r-x,m::rwx,o::---");
    assert_eq!(list.mode(), 0o770);
    assert_eq!(list.under(0o4641).text(), "u::rw-,u:7:rwx,g::r-x,m::r--,o::--x");
    assert_eq!(acl("u::rwx,g::r-x,o::---").under(0o624).text(), "u::rw-,g::-w-,o::r--");
}

#[test]
fn what_is_new_gets_no_more_than_was_asked_for() {
    let (mode, list) = acl("u::rwx,u:7:rwx,g::r-x,m::rwx,o::r-x").for_new(0o2640);
    assert_eq!((mode, list.unwrap().text().as_str()), (0o2640, "u::rw-,u:7:rwx,g::r-x,m::r--,o::---"));
    assert_eq!(acl("u::rwx,g::r-x,o::r--").for_new(0o666), (0o644, None));
}

#[test]
fn a_list_lets_whom_it_names() {
    let list = acl("u::---,u:7:rwx,g::r--,g:9:-w-,g:10:rwx,m::rw-,o::--x");
    let lets = |caller: &Caller, wanted| list.lets(caller, 5, wanted);
    assert!(lets(&somebody(7, 1), 6) && !lets(&somebody(7, 1), 1), "but for the mask");
    assert!(lets(&somebody(8, 5), 4) && !lets(&somebody(8, 5), 2), "the group");
    assert!(lets(&somebody(8, 10), 6) && !lets(&somebody(8, 10), 1), "another group");
    let both = Caller { groups: vec![9], ..somebody(8, 5) };
    assert!(lets(&both, 4) && lets(&both, 2) && !lets(&both, 6), "no group lets do both");
    assert!(!lets(&both, 1) && lets(&somebody(8, 1), 1), "others are who is in no group");
    assert!(!list.lets(&Caller { groups: vec![10], ..somebody(7, 1) }, 5, 1), "a user is no group");
}

proptest! {
    #[test]
    fn bytes_of_programs_are_a_list_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(Some(list)) = Acl::from_xattr(&bytes) {
            prop_assert_eq!(Acl::from_xattr(&list.to_xattr()), Ok(Some(list)));
        }
    }

    #[test]
    fn lists_are_read_as_they_are_written(
        users in proptest::collection::vec((0..u32::MAX, 0u32..8), 0..5),
        groups in proptest::collection::vec((0..u32::MAX, 0u32..8), 0..5),
        may in 0u32..0o10000,
    ) {
        let mut entries = vec![(Tag::Owner, may & 7)];
        entries.extend(users.iter().map(|(uid, may)| (Tag::User(*uid), *may)));
        entries.push((Tag::Group, may >> 3 & 7));
        entries.extend(groups.iter().map(|(gid, may)| (Tag::NamedGroup(*gid), *may)));
        entries.push((Tag::Mask, may >> 6 & 7));
        entries.push((Tag::Other, may >> 9 & 7));
        let list = Acl::new(entries).unwrap();
        prop_assert_eq!(Acl::parse(&list.text()), Some(list.clone()));
        prop_assert_eq!(Acl::from_xattr(&list.to_xattr()), Ok(Some(list)));
    }

    #[test]
    fn any_text_is_a_list_or_none(text in "[ugmo:,rwx0-9é-]{0,40}") {
        if let Some(list) = Acl::parse(&text) {
            prop_assert_eq!(Acl::parse(&list.text()), Some(list));
        }
    }
}
