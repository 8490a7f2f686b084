use super::*;
use crate::open;

fn workspace(store: &str) -> Workspace {
    let session = open(Some(&format!("mem:segments-{store}")), Default::default()).unwrap();
    let made = session.create_workspace(Name::new("w").unwrap(), Default::default());
    made.or_else(|_| session.load_workspace(Which::parse("w").unwrap())).unwrap()
}

#[test]
fn a_segment_is_as_long_as_it_was_made() {
    let segments = Segments::of(&workspace("len")).unwrap();
    let id = segments.create(100_000, &Controls::default()).unwrap();
    let mut out = vec![1; 100_000];
    segments.get(id, 0, &mut out).unwrap();
    assert!(out == [0; 100_000] && segments.size(id).unwrap() == 100_000);
    segments.put(id, 99_990, &[7; 10]).unwrap();
    let e = segments.put(id, 99_991, &[8; 10]).unwrap_err();
    assert_eq!(e.kind(), Kind::FileTooBig, "{e}");
    let e = segments.get(id, 99_991, &mut out[..10]).unwrap_err();
    assert!(e.kind() == Kind::Invalid && e.detail().contains("it ends after 9"), "{e}");
    segments.get(id, 99_990, &mut out[..10]).unwrap();
    assert_eq!(out[..10], [7; 10]);
    assert_eq!(segments.create(0, &Controls::default()).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn c1_what_is_put_is_got_by_others_at_once_until_it_is_removed() {
    let (one, other) = (Segments::of(&workspace("shared")).unwrap(), Segments::of(&workspace("shared")).unwrap());
    let ids = [1, 2, 3].map(|_| one.create(10_000, &Controls::default()).unwrap());
    let mut out = [0; 100];
    for round in 1..5 {
        one.put(ids[0], 77, &[round; 100]).unwrap();
        other.get(ids[0], 77, &mut out).unwrap();
        assert_eq!(out, [round; 100]);
    }
    let listed: Vec<Uuid> = other.list().unwrap().into_iter().map(|(id, _)| id).collect();
    let mut sorted = ids;
    sorted.sort_unstable();
    assert_eq!(listed, sorted);
    other.remove(ids[0]).unwrap();
    for segments in [&one, &other] {
        let e = segments.get(ids[0], 0, &mut out).unwrap_err();
        assert_eq!(e.kind(), Kind::NotFound, "{e}");
    }
    assert_eq!(other.remove(ids[0]).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(one.list().unwrap().len(), 2);
}

#[test]
fn the_space_has_no_end() {
    let (one, other) = (Segments::of(&workspace("endless")).unwrap(), Segments::of(&workspace("endless")).unwrap());
    let (near, far) = (Uuid([0; 16]), Uuid([0xff; 16]));
    let mut out = [9; 8];
    assert_eq!((one.read(far, 1 << 60, &mut out).unwrap(), out), (0, [0; 8]), "nobody has written it");
    one.write(far, 1 << 60, b"edge").unwrap();
    assert_eq!((other.read(far, (1 << 60) - 2, &mut out).unwrap(), &out), (6, b"\0\0edge\0\0"));
    other.write(near, 0, b"first").unwrap();
    // One that another process has removed, and made again.
    one.remove(near).unwrap();
    one.write(near, 3, b"second").unwrap();
    assert_eq!((other.read(near, 0, &mut out).unwrap(), &out), (8, b"\0\0\0secon"));
    assert_eq!(other.size(far).unwrap(), (1 << 60) + 4);
    // Many at once, each under its own number.
    let one = std::sync::Arc::new(one);
    let writers = (0..4_u8).map(|writer| {
        let one = one.clone();
        let body = move || {
            for n in 0..20_u8 {
                one.write(Uuid([n + 1; 16]), u64::from(writer) * 4, &[writer; 4]).unwrap();
            }
        };
        seam::spawn("writer", body).unwrap()
    });
    writers.collect::<Vec<_>>().into_iter().for_each(|writer| writer.join().unwrap());
    for n in 0..20_u8 {
        let mut all = [9; 16];
        assert_eq!(other.read(Uuid([n + 1; 16]), 0, &mut all).unwrap(), 16);
        assert_eq!(all, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
    }
    assert_eq!(one.list().unwrap().len(), 22);
}

#[test]
fn p5_what_only_a_commit_or_a_close_would_keep_is_refused() {
    let ws = workspace("refused");
    let segments = Segments::of(&ws).unwrap();
    for asked in ["atomicity=publication", "persistence=volatile@close", "persistence=volatile@explicit"] {
        let mut controls = Controls::default();
        crate::text::parse(&mut controls, asked).unwrap();
        let e = segments.create(100, &controls).unwrap_err();
        assert!(e.kind() == Kind::Invalid && e.detail().contains("with each put"), "{asked}: {e}");
    }
    // Nor does a workspace's default matter.
    let mut defaults = Controls::default();
    crate::text::parse(&mut defaults, "atomicity=publication").unwrap();
    let attr = iov_types::WorkspaceAttr { controls: Some(defaults), ..Default::default() };
    let session = open(Some("mem:segments-refused"), Default::default()).unwrap();
    let ws = session.create_workspace(Name::new("published").unwrap(), attr).unwrap();
    let id = Segments::of(&ws).unwrap().create(100, &Controls::default()).unwrap();
    let (one, other) = (Segments::of(&ws).unwrap(), Segments::of(&ws).unwrap());
    one.put(id, 0, b"seen").unwrap();
    let mut out = [0; 4];
    other.get(id, 0, &mut out).unwrap();
    assert_eq!(&out, b"seen");
}

#[test]
fn ids_have_one_name() {
    let id = Uuid([0xab; 16]);
    assert_eq!(id_of(name(id).as_bytes()), Some(id));
    for other in ["AB".repeat(16), "ab".repeat(15), format!("+{}", "ab".repeat(15)), "zz".repeat(16)] {
        assert_eq!(id_of(other.as_bytes()), None, "{other}");
    }
}
