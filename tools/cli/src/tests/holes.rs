use std::{
    fs::File,
    os::unix::fs::{FileExt, MetadataExt},
};

use super::{World, arg};
use crate::transfer::extents::{Pieces, of_file};

/// A sparse file: `data` bytes at each offset.
fn sparse(world: &World, name: &str, size: u64, at: &[u64]) -> String {
    let path = world.path(name);
    let file = File::create(&path).unwrap();
    file.set_len(size).unwrap();
    at.iter().for_each(|offset| file.write_all_at(&[7; 4096], *offset).unwrap());
    arg(&path)
}

fn blocks(path: &std::path::Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

#[test]
fn o6_holes_stay_holes_on_the_way_in_and_out() {
    let world = World::with_workspace();
    let (size, at) = (64 << 20, [0, 20 << 20, (64 << 20) - 4096]);
    let file = sparse(&world, "sparse", size, &at);
    if blocks(&world.path("sparse")) > 4 << 20 {
        return; // a file system without holes cannot show anything
    }
    world.iov(&["put", &file, "w"]).ok();
    let stat = world.iov(&["stat", "w/sparse", "--json"]).ok().json();
    assert_eq!(stat[0]["size"], size);
    assert!(stat[0]["allocated"].as_u64().unwrap() < 4 << 20, "{stat}");
    for (from, to) in [("w/sparse", "back"), ("w/copy", "copied")] {
        if to == "copied" {
            world.iov(&["cp", "w/sparse", "w/copy"]).ok();
        }
        world.iov(&["get", from, &arg(&world.path(to))]).ok();
        let back = world.path(to);
        assert_eq!(back.metadata().unwrap().len(), size);
        assert!(blocks(&back) < 4 << 20, "{to}: {}", blocks(&back));
        assert!(std::fs::read(&back).unwrap() == std::fs::read(&file).unwrap(), "{to}");
    }
    assert!(world.cat("w/sparse") == std::fs::read(&file).unwrap());
}

#[test]
fn o6_holes_of_small_files_stay_too() {
    let world = World::with_workspace();
    let file = sparse(&world, "f", 1 << 20, &[512 << 10]);
    if blocks(&world.path("f")) > 64 << 10 {
        return; // a file system without holes cannot show anything
    }
    world.iov(&["put", &file, "w"]).ok();
    world.iov(&["get", "-r", "w", &arg(&world.path("back"))]).ok();
    assert!(std::fs::read(world.path("back/f")).unwrap() == std::fs::read(&file).unwrap());
    assert!(blocks(&world.path("back/f")) <= 64 << 10);
}

#[test]
fn o6_a_hole_at_the_end_counts() {
    let world = World::with_workspace();
    let file = sparse(&world, "f", 3 << 20, &[0]);
    world.iov(&["put", &file, "w"]).ok();
    assert!(world.cat("w/f") == std::fs::read(&file).unwrap());
    let nothing = sparse(&world, "nothing", 5 << 20, &[]);
    world.iov(&["put", &nothing, "w"]).ok();
    assert_eq!(world.cat("w/nothing").len(), 5 << 20);
    assert_eq!(world.iov(&["cat", "w/nothing", "--range", "1MiB+10"]).ok().out, [0; 10]);
}

#[test]
fn extents_of_a_file_cover_its_data() {
    let world = World::new();
    sparse(&world, "f", 10 << 20, &[1 << 20, 5 << 20]);
    let file = File::open(world.path("f")).unwrap();
    let ranges = of_file(&file, 10 << 20).unwrap();
    for at in [1 << 20, 5 << 20] {
        assert!(ranges.iter().any(|r| r.offset <= at && at + 4096 <= r.end()), "{ranges:?}");
    }
    assert!(ranges.windows(2).all(|w| w[0].end() <= w[1].offset), "{ranges:?}");
    assert!(of_file(&file, 0).unwrap().is_empty());
}

#[test]
fn pieces_cover_ranges_and_end_at_boundaries() {
    let range = |offset, len| ioverbs::Range { offset, len };
    let pieces: Vec<_> = Pieces::new(vec![range(5, 0), range(6, 10), range(100, 3)], 8).collect();
    assert_eq!(pieces, [range(6, 2), range(8, 8), range(100, 3)]);
}
