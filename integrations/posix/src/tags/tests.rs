use crate::{
    Node, SetXattr,
    tests::{born, file_system, put},
};

use super::*;

fn tag(node: &Arc<Node>, key: &str, value: &str) {
    node.set_xattr(format!("user.{key}").as_bytes(), value.as_bytes(), SetXattr::Either).unwrap();
}

fn names(tags: &Tags, view: &View) -> Vec<String> {
    let names = tags.entries(view).unwrap().into_keys();
    names.map(|name| String::from_utf8_lossy(&name).into_owned()).collect()
}

/// The directory of the view at a path below its root.
fn at(tags: &Tags, path: &[&str]) -> Outcome<View> {
    path.iter().try_fold(tags.root(), |view, name| match tags.find(&view, name.as_bytes())? {
        Tag::View(view) => Ok(view),
        Tag::Link(..) => Err(Errno::ENOTDIR),
    })
}

fn link(tags: &Tags, path: &[&str], name: &str) -> String {
    match tags.find(&at(tags, path).unwrap(), name.as_bytes()) {
        Ok(Tag::Link(_, to)) => String::from_utf8(to).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// What is found anew: nothing is kept from before.
fn fresh(fs: &FileSystem) -> Tags {
    Tags::new(fs.clone(), b"by")
}

#[test]
fn metadata_is_shown_as_directories_and_narrowed_down() {
    let fs = file_system();
    assert!(fresh(&fs).entries(&fresh(&fs).root()).unwrap().is_empty(), "there is a view before there is metadata");
    let runs = fs.mkdir(&fs.root(), b"runs", born(0o755)).unwrap().0;
    let deep = fs.mkdir(&runs, b"deep", born(0o755)).unwrap().0;
    for (parent, name, experiment, run) in
        [(&runs, "one", "nacelle", "1"), (&deep, "two", "nacelle", "2"), (&deep, "other", "wing", "1")]
    {
        let node = put(&fs, parent, name.as_bytes(), name.as_bytes());
        tag(&node, "experiment", experiment);
        tag(&node, "run", run);
    }
    tag(&runs, "experiment", "nacelle");
    put(&fs, &runs, b"untagged", b"");
    let tags = fresh(&fs);
    assert_eq!(names(&tags, &tags.root()), ["experiment", "run"]);
    assert_eq!(names(&tags, &at(&tags, &["experiment"]).unwrap()), ["nacelle", "wing"]);
    let chosen = ["experiment", "nacelle"];
    assert_eq!(names(&tags, &at(&tags, &chosen).unwrap()), ["by", "one", "runs", "two"]);
    assert_eq!(link(&tags, &chosen, "one"), "../../../runs/one");
    assert_eq!(link(&tags, &chosen, "two"), "../../../runs/deep/two");
    assert_eq!(link(&tags, &chosen, "runs"), "../../../runs");
    let narrow = ["experiment", "nacelle", "by", "run", "2"];
    assert_eq!(names(&tags, &at(&tags, &narrow).unwrap()), ["two"], "nothing is left to choose by");
    assert_eq!(link(&tags, &narrow, "two"), "../../../../../../runs/deep/two");
    for nothing in [&["experiment", "rudder"][..], &["colour", "red"], &["experiment", "wing", "by", "run", "2"]] {
        assert_eq!(at(&tags, nothing), Err(Errno::ENOENT), "{nothing:?}");
    }
    let wing = at(&tags, &["experiment", "wing"]).unwrap();
    assert_eq!(tags.find(&wing, b"one"), Err(Errno::ENOENT));
}

#[test]
fn names_that_several_have_are_told_apart_and_stay() {
    let fs = file_system();
    let dirs = [b"a", b"b"].map(|name| fs.mkdir(&fs.root(), name, born(0o755)).unwrap().0);
    let long = "x".repeat(255);
    let mut all = Vec::new();
    for dir in &dirs {
        for name in ["out", "by", &long] {
            let node = put(&fs, dir, name.as_bytes(), b"");
            tag(&node, "k", "v");
            all.push(node);
        }
    }
    let tags = fresh(&fs);
    let shown = names(&tags, &at(&tags, &["k", "v"]).unwrap());
    assert_eq!(shown.len(), 6, "{shown:?}");
    assert!(shown.iter().all(|name| name.len() <= 255 && name.contains('~')), "{shown:?}");
    let mut led: Vec<String> = shown.iter().map(|name| link(&tags, &["k", "v"], name)).collect();
    led.sort();
    let expected = ["a", "b"].map(|dir| ["by", "out", &long].map(|name| format!("../../../{dir}/{name}")));
    assert_eq!(led, expected.concat());
    assert_eq!(names(&fresh(&fs), &at(&fresh(&fs), &["k", "v"]).unwrap()), shown, "as before");
}

#[test]
fn values_of_every_kind_are_names_and_mean_themselves() {
    let fs = file_system();
    let values: [Value; 12] = [
        Value::Str("a/b%c".into()),
        Value::Str(".".into()),
        Value::Str("..".into()),
        Value::Str(String::new()),
        Value::Str("%".into()),
        Value::Str("größe\n".into()),
        Value::I64(-3),
        Value::F64(0.25),
        Value::F64(-3.0),
        Value::Bool(true),
        Value::Bytes(vec![0, 255, b'/']),
        Value::Str("y".repeat(256)),
    ];
    for (i, value) in values.iter().enumerate() {
        let node = put(&fs, &fs.root(), format!("f{i}").as_bytes(), b"");
        let mut pairs = ioverbs::Metadata::new();
        pairs.set("k", value.clone()).unwrap();
        node.with_handle("put", |c| vec![ioverbs::Op::MetaPut { c: c.clone(), pairs: pairs.clone() }]).unwrap();
    }
    let tags = fresh(&fs);
    let of_key = at(&tags, &["k"]).unwrap();
    let shown = tags.entries(&of_key).unwrap();
    // The one that is too long for a name is left out, and -3 and -3.0 are shown alike.
    assert_eq!(shown.len(), 10, "{shown:?}");
    for (i, value) in values.iter().enumerate().take(11) {
        let name = super::shown(value).unwrap();
        assert!(!name.contains(&b'/') && !name.contains(&0) && name != b"." && name != b"..", "{name:?}");
        assert_eq!(meant(&name), bytes_of(value), "{value:?}");
        let Ok(Tag::View(view)) = tags.find(&of_key, &name) else { panic!("{value:?}") };
        assert!(names(&tags, &view).contains(&format!("f{i}")), "{value:?}: {:?}", names(&tags, &view));
    }
}
