use super::*;

fn told(path: &str) -> Option<(String, usize)> {
    let Named { what, rest } = read(path.as_bytes())?;
    let what = match what {
        What::Own(fd) => fd.to_string(),
        What::Others(link) => link.into_string().unwrap(),
        What::Directory => "cwd".into(),
        What::Program => "exe".into(),
    };
    Some((what, rest.len()))
}

#[test]
fn paths_of_descriptors_are_known_however_they_are_spelled() {
    let own = format!("/proc/{}/fd/7", std::process::id());
    for path in ["/proc/self/fd/7", "/proc/thread-self/fd/7", "/dev/fd/7", "/dev/fd//7", "/proc/self/fd/../fd/7", &own]
    {
        assert_eq!(told(path), Some(("7".into(), 0)), "{path}");
    }
    assert_eq!(told("/proc/self/task/99/fd/7/a/../b"), Some(("7".into(), 3)));
    assert_eq!((told("/dev/stdin"), told("/dev/stderr")), (Some(("0".into(), 0)), Some(("2".into(), 0))));
    assert_eq!(told("/proc/1/fd/7"), Some(("/proc/1/fd/7".into(), 0)));
    assert_eq!(told("/proc/self/cwd/.."), Some(("cwd".into(), 1)));
    assert_eq!(told("/proc/self/exe"), Some(("exe".into(), 0)));
    for path in [
        "/proc/1/cwd",
        "/proc/1/exe",
        "/proc/self/fd",
        "/proc/self/fd/x",
        "/proc/self/maps",
        "/dev/null",
        "/process/self/fd/1",
        "proc/self/fd/1",
    ] {
        assert_eq!(told(path), None, "{path}");
    }
}
