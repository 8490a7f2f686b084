use std::time::Duration;

use super::*;

fn text(path: &std::path::Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

#[test]
fn what_is_old_goes_and_what_is_new_stays() {
    let all = std::env::temp_dir().join(format!("iov-temporary-{}", std::process::id()));
    std::fs::create_dir(&all).unwrap();
    let dir = text(&all);
    let (old, new) = (new_in(&dir).unwrap(), new_in(&dir).unwrap());
    assert_ne!(old, new);
    let path = |dir: &CStr| std::path::PathBuf::from(OsStr::from_bytes(dir.to_bytes()));
    // A link is removed, and not what it leads to.
    std::os::unix::fs::symlink(&all, path(&old).join("link")).unwrap();
    let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(3600);
    std::fs::File::open(path(&old)).unwrap().set_modified(long_ago).unwrap();
    sweep(&dir, 600);
    assert_eq!((path(&old).exists(), path(&new).exists()), (false, true));
    std::fs::remove_dir_all(&all).unwrap();
}

#[test]
fn only_a_directory_of_this_user_alone_is_taken() {
    let here = std::env::temp_dir().join(format!("iov-own-{}", std::process::id()));
    assert_eq!(is_own(&text(&here)), Err(Errno::ENOENT));
    std::os::unix::fs::symlink("/tmp", &here).unwrap();
    assert_eq!(is_own(&text(&here)), Err(Errno::EACCES));
    std::fs::remove_file(&here).unwrap();
    std::fs::create_dir(&here).unwrap();
    assert_eq!(is_own(&text(&here)), Ok(()));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&here).unwrap().permissions());
    assert_eq!(mode & 0o7777, 0o700);
    std::fs::remove_dir(&here).unwrap();
}
