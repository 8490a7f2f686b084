use std::io::Cursor;

use ioverbs::{Which, catalog::SearchSpec};

use super::*;
use crate::{facts, interrupt::Interrupt, options::Global, output::Out};

struct World {
    ctx: Ctx,
    ws: Workspace,
}

impl World {
    fn new(name: &str) -> World {
        let url = format!("mem:storing-{name}");
        let global = Global { store: Some(url), timeout: "60s".into(), quiet: true, ..Global::default() };
        let out = || Out::new(Box::new(Vec::new()), false);
        let mut ctx = Ctx::new(global, out(), out(), Box::new(Cursor::new(Vec::new())), Interrupt::default());
        let session = ctx.session_or_new().unwrap();
        let ws = session.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
        World { ctx, ws }
    }

    /// A collection with so many bytes, as it was found when it had `size`.
    fn source(&self, name: &str, bytes: usize, size: u64) -> Content {
        let c = ioverbs::create(&self.ws, None, Some(name), Metadata::new(), Controls::default()).unwrap();
        ioverbs::write_at(&c, 0, &vec![7; bytes]).unwrap();
        ioverbs::close(&c).unwrap();
        let which = Which::Name(Name::new(name).unwrap());
        let found = crate::locate::find_in(&self.ws, Uuid::NIL, &which, facts::KEYS).unwrap().expect("it is there");
        let spot = Spot { ws: self.ws.clone(), parent: None, which };
        Content::Copy(spot, Box::new(Facts { size, ..found }))
    }

    fn item(&self, name: &str, content: Content, controls: &str) -> Item {
        let mut asked = Controls::default();
        ioverbs::text::parse(&mut asked, controls).unwrap();
        let at = Address::parse("w".as_ref()).unwrap();
        let place = Place { parent: None, at, name: Name::new(name).unwrap() };
        Item { source: name.into(), place, content, metadata: Metadata::new(), controls: asked, mode: None }
    }

    /// The names of all collections, and of those without one nothing.
    fn all(&self) -> Vec<String> {
        let mut results = facts::search(&self.ws, SearchSpec::default()).unwrap();
        let mut all = Vec::new();
        while let Some(entry) = results.next().unwrap() {
            all.push(entry.name.map_or(String::new(), |name| String::from_utf8_lossy(name.as_bytes()).into_owned()));
        }
        all.sort();
        all
    }
}

/// One copy of a batch has nothing to copy any more, another one's source has grown beyond what it may hold.
#[test]
fn what_grows_while_it_is_copied_leaves_nothing_of_the_others_behind() {
    let mut world = World::new("grown");
    let gone = world.source("gone", 5, 5);
    let delete = Op::Delete { w: world.ws.clone(), parent: None, which: Which::Name(Name::new("gone").unwrap()) };
    ioverbs::run(world.ws.session(), delete).unwrap();
    let sources = [
        world.item("a", gone, ""),
        world.item("b", world.source("grows", 1000, 5), "collection_size=..100"),
        world.item("c", world.source("kept", 5, 5), ""),
        world.item("d", world.source("grew", 1000, 5), ""),
    ];
    let mut storer = Storer::new(&world.ctx, &world.ws, "cp", sources.len(), IfExists::Fail, false);
    for item in sources {
        storer.add(&mut world.ctx, item).unwrap();
    }
    let ended = storer.end(&mut world.ctx).and_then(|()| world.ctx.end());
    assert!(ended.is_err(), "two of them failed");
    assert_eq!(world.all(), ["c", "d", "grew", "grows", "kept"], "and nothing without a name");
}
