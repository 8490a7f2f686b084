//! The types here are those that a C compiler makes of the header.

use std::{mem::offset_of, process::Command};

use super::compile;
use crate::abi::{Capability, Evidence, Host, Object, Op, Ops, Range};

macro_rules! fields {
    ($($rust:ident $c:literal: $($field:ident)*;)*) => {
        vec![$(($c, "", size_of::<$rust>()), $(($c, stringify!($field), offset_of!($rust, $field)),)*)*]
    };
}

#[test]
fn a_c_compiler_sees_the_same() {
    let all: Vec<(&str, &str, usize)> = fields! {
        Object "iov_object": collection slot;
        Range "iov_range": offset len;
        Op "iov_backend_op": size kind tag object source offset source_offset len buf batch expect_epoch expect_version revision
            deadline_ns checksum checksum_kind durability priority;
        Evidence "iov_evidence": size code tag bytes offset version epoch incarnation checksum checksum_kind durability outcome
            detail allocated mtime_ns;
        Capability "iov_capability": size alignment kinds max_len unit space space_free incarnation durability;
        Host "iov_backend_host": size ctx log recall;
        Ops "iov_backend_ops": size name init destroy capability allocate free submit grant release;
    };
    let mut source = String::from("#include <stddef.h>\n#include <stdio.h>\n#include <ioverbs.h>\nint main(void) {\n");
    for (kind, field, _) in &all {
        let what = if field.is_empty() { format!("sizeof({kind})") } else { format!("offsetof({kind}, {field})") };
        source += &format!("printf(\"%zu\\n\", (size_t){what});\n");
    }
    source += "return 0; }\n";
    let dir = tempfile::tempdir().unwrap();
    let (file, program) = (dir.path().join("layout.c"), dir.path().join("layout"));
    std::fs::write(&file, source).unwrap();
    compile(&file, &program, &[]);
    let told = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let told: Vec<usize> = told.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(told.len(), all.len());
    for ((kind, field, here), there) in all.into_iter().zip(told) {
        assert_eq!(here, there, "{kind}.{field}");
    }
}
