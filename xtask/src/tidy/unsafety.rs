//! Rules about `unsafe`: where it may stand, that the other crates forbid it, that each use says
//! why it is sound, that a block for many intrinsics follows no pointer.
//!
//! It refuses to judge the reason; it only wants one. The one idea: the list of places is here and
//! short, so that a reader who wants to audit the memory safety of atta knows every file to read.

use super::Finding;
use crate::source::{RustFile, TokenKind};

/// Paths, or directories by their trailing `/`, in which `unsafe` may be written.
const ALLOWED: [&str; 13] = [
    "crates/afxdp/src/os.rs",
    "crates/capi/src/",
    "crates/kernels/src/fused/",
    "crates/kernels/src/isa/",
    "crates/kernels/src/pool/",
    "crates/kernels/src/pool.rs",
    "crates/kernels/src/table/",
    "crates/kernels/src/table.rs",
    "crates/kernels/src/tiles.rs",
    "crates/kernels/src/topology/apple.rs",
    "crates/kernels/src/topology/windows.rs",
    "crates/store/src/os/",
    "crates/web/src/",
];
/// Crates that cannot forbid it.
const EXEMPT: [&str; 5] = [
    "crates/afxdp/",
    "crates/capi/",
    "crates/kernels/",
    "crates/store/",
    "crates/web/",
];
/// The macro of kernels that puts whole methods into `unsafe` blocks, for the features of the CPU.
const PROVEN: [&str; 3] = ["proven", "!", "{"];
/// Methods that make, or follow, a pointer.
const POINTER_METHODS: [&str; 4] = ["as_ptr", "as_mut_ptr", "read_unaligned", "write_unaligned"];
/// What the names of intrinsics that follow a pointer begin with, and have in them.
const POINTER_INTRINSICS: [(&str, &[&str]); 4] = [
    (
        "_mm",
        &[
            "_load",
            "_store",
            "_stream",
            "_prefetch",
            "gather",
            "scatter",
        ],
    ),
    ("vld", &[""]),
    ("vst", &[""]),
    ("v128_", &["load", "store"]),
];
const FORBID: [&str; 8] = ["#", "!", "[", "forbid", "(", "unsafe_code", ")", "]"];

pub(super) fn check(source: &RustFile<'_>) -> Vec<Finding> {
    let uses = (0..source.code.len()).filter(|&i| source.code[i].is("unsafe"));
    uses.flat_map(|i| [placed(source, i), explained(source, i)])
        .flatten()
        .chain(forbidden(source))
        .chain(pointers(source))
        .collect()
}

/// Pointers in the blocks of [`PROVEN`], whose one note is about the features of the CPU.
fn pointers(source: &RustFile<'_>) -> impl Iterator<Item = Finding> {
    let blocks = (0..source.code.len()).filter(|&i| source.spells(i, &PROVEN));
    let words = blocks.flat_map(|i| {
        let open = i + PROVEN.len() - 1;
        open..source.closing(open).unwrap_or(source.code.len())
    });
    words
        .map(|i| &source.code[i])
        .filter(|token| POINTER_METHODS.contains(&token.text) || follows_pointer(token.text))
        .map(|token| {
            let message = format!("`{}` in `proven!`, beside no note of its own", token.text);
            Finding::new(source.path, token.line, message)
        })
}

fn follows_pointer(name: &str) -> bool {
    POINTER_INTRINSICS.iter().any(|(start, parts)| {
        name.starts_with(start) && parts.iter().any(|part| name.contains(part))
    })
}

fn placed(source: &RustFile<'_>, i: usize) -> Option<Finding> {
    let allowed = ALLOWED.iter().any(|place| {
        source.path == *place || place.ends_with('/') && source.path.starts_with(place)
    });
    (!allowed).then(|| {
        Finding::new(
            source.path,
            source.code[i].line,
            "`unsafe` outside the places listed in xtask",
        )
    })
}

fn explained(source: &RustFile<'_>, i: usize) -> Option<Finding> {
    let discharges = source
        .code
        .get(i + 1)
        .is_some_and(|next| next.is("{") || next.is("impl"));
    let says_why = source
        .comments_above(i)
        .any(|comment| comment.text.contains("SAFETY:"));
    (discharges && !says_why).then(|| {
        Finding::new(
            source.path,
            source.code[i].line,
            "`unsafe` without a `SAFETY:` comment directly above",
        )
    })
}

fn forbidden(source: &RustFile<'_>) -> Option<Finding> {
    let must = is_crate_root(source.path) && !EXEMPT.iter().any(|dir| source.path.starts_with(dir));
    let does = (0..source.code.len())
        .any(|i| source.code[i].kind == TokenKind::Punct && source.spells(i, &FORBID));
    (must && !does).then(|| {
        Finding::new(
            source.path,
            1,
            "crate root without `#![forbid(unsafe_code)]`",
        )
    })
}

fn is_crate_root(path: &str) -> bool {
    let inner = path
        .strip_prefix("crates/")
        .and_then(|rest| rest.split_once('/'))
        .map(|(_, inner)| inner);
    let inner = inner.or_else(|| path.strip_prefix("xtask/"));
    inner.is_some_and(|inner| {
        matches!(inner, "src/lib.rs" | "src/main.rs") || inner.starts_with("src/bin/")
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::*;

    const ISA: &str = "crates/kernels/src/isa/avx2.rs";

    #[test]
    fn unsafe_outside_the_list_is_found() {
        let text = "// SAFETY: none.\nunsafe fn f() {}";
        for path in [
            "crates/model/src/a.rs",
            "crates/store/src/mapped.rs",
            "crates/kernels/src/algo/dot.rs",
            "fuzz/a.rs",
        ] {
            assert!(
                findings(check, path, text)[0].starts_with("2: `unsafe` outside"),
                "{path}"
            );
        }
        for path in [
            ISA,
            "crates/kernels/src/table/",
            "crates/kernels/src/table.rs",
            "crates/store/src/os/unix.rs",
            "crates/kernels/src/pool/park.rs",
        ] {
            assert_eq!(findings(check, path, text).len(), 0, "{path}");
        }
    }

    #[test]
    fn unsafe_in_macros_is_seen_and_in_text_is_not() {
        assert_eq!(
            findings(
                check,
                "a.rs",
                "macro_rules! m { () => { unsafe fn f() {} } }"
            )
            .len(),
            1
        );
        assert_eq!(
            findings(
                check,
                "a.rs",
                "// unsafe\nconst A: &str = \"unsafe\"; // unsafe"
            )
            .len(),
            0
        );
    }

    #[test]
    fn an_unsafe_block_or_impl_says_why() {
        for text in [
            "fn f() { let x = unsafe { 1 }; }",
            "unsafe impl Send for T {}",
            "// SAFETY: a.\nf();\nunsafe { g() }",
        ] {
            assert!(
                findings(check, ISA, text)[0].contains("without a `SAFETY:`"),
                "{text}"
            );
        }
        for text in [
            "// SAFETY: a.\nlet x = unsafe { 1 };",
            "/* SAFETY: a. */ unsafe impl Send for T {}",
            "// SAFETY: a.\n#[inline]\nunsafe { 1 }",
        ] {
            assert_eq!(findings(check, ISA, text).len(), 0, "{text}");
        }
    }

    #[test]
    fn a_block_for_many_intrinsics_follows_no_pointer() {
        for access in [
            "x.as_ptr()",
            "x.as_mut_ptr()",
            "at.read_unaligned()",
            "_mm256_loadu_ps(&x[0])",
            "_mm_storel_epi64(&mut x, v)",
            "_mm512_i32gather_epi32::<4>(v, at)",
            "_mm_prefetch::<_MM_HINT_T0>(at)",
            "vld1q_u8(at)",
            "vst1q_u8(at, v)",
            "v128_load(at)",
        ] {
            let text = format!("impl T {{ proven! {{\nfn f(self) {{ g(\n{access}) }} }} }}");
            let found = findings(check, ISA, &text);
            assert!(found[0].starts_with("3: `"), "{access}: {found:?}");
            let outside = format!("proven! {{ fn f(self) {{}} }} fn g() {{ {access} }}");
            assert_eq!(findings(check, ISA, &outside).len(), 0, "{access}");
        }
        for harmless in [
            "load(x)",
            "_mm256_set1_ps(x)",
            "vsubq_u8(v, w)",
            "vtstq_u8(v, w)",
        ] {
            let text = format!("proven! {{ fn f(self) {{ {harmless} }} }}");
            assert_eq!(findings(check, ISA, &text).len(), 0, "{harmless}");
        }
    }

    #[test]
    fn a_crate_root_that_may_forbid_unsafe_must() {
        for path in [
            "crates/model/src/lib.rs",
            "crates/cli/src/main.rs",
            "xtask/src/main.rs",
            "crates/cli/src/bin/a.rs",
        ] {
            assert_eq!(
                findings(check, path, "//! It is.\n#![warn(unsafe_code)]").len(),
                1,
                "{path}"
            );
            assert_eq!(
                findings(check, path, "#![forbid(unsafe_code)]").len(),
                0,
                "{path}"
            );
        }
        assert_eq!(findings(check, "crates/kernels/src/lib.rs", "").len(), 0);
    }
}
