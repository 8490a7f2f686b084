//! `iov-manpages HEADER FOLDER [DATE]`: writes `man3/*.3` and `man7/*.7` into a folder.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [header, folder] => write(header, folder, ""),
        [header, folder, date] => write(header, folder, date),
        _ => Err("usage: iov-manpages HEADER FOLDER [DATE]".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("iov-manpages: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the pages, and removes those of an earlier header.
fn write(header: &str, folder: &str, date: &str) -> Result<(), String> {
    let source = fs::read_to_string(header).map_err(|e| format!("{header}: {e}"))?;
    let pages = iov_manpages::pages(&iov_manpages::header::parse(&source)?, date)?;
    for section in ["man3", "man7"] {
        let dir = Path::new(folder).join(section);
        match fs::remove_dir_all(&dir) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(format!("{}: {e}", dir.display())),
            _ => fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?,
        }
    }
    for (name, text) in pages {
        let path = Path::new(folder).join(&name);
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}
