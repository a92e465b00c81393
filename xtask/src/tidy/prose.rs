//! The rule that comments and pages name the actor and the thing, without words such as `nobody` in
//! their place.
//!
//! It refuses to judge the rest of the prose, and skips quotations and laboratory notes. The one
//! idea: readers search by the field's words, so a sentence must hold them; these phrases stand
//! where they are missing.

use super::Finding;
use crate::page::Page;
use crate::paragraph::{Paragraph, comments, paragraphs};
use crate::source::RustFile;

/// Lower case, one space between words.
const PHRASES: [&str; 24] = [
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "whoever",
    "whom",
    "of which",
    "what is",
    "what was",
    "what has",
    "what stands",
    "what comes",
    "what goes",
    "what there",
    "comes to grief",
    "come to grief",
    "grief",
    "of no account",
    "as long as there is",
    "the same, but",
    "if it is none",
    "of ours",
    "of theirs",
    "is theirs",
];

/// Dated records, which are not rewritten.
const NOTES: &str = "docs/notes/";

pub(super) fn check(source: &RustFile<'_>) -> Vec<Finding> {
    find(source.path, comments(source))
}

pub(super) fn check_page(page: &Page<'_>) -> Vec<Finding> {
    if page.path.starts_with(NOTES) {
        return Vec::new();
    }
    let own_words = page.prose().filter(|(_, line)| !line.starts_with('>'));
    find(page.path, paragraphs(own_words))
}

fn find(path: &str, paragraphs: Vec<Paragraph>) -> Vec<Finding> {
    let paragraphs = paragraphs.into_iter();
    paragraphs
        .flat_map(|paragraph| {
            let found = PHRASES.iter().flat_map(|phrase| {
                let lines = paragraph.lines_with(phrase).into_iter();
                lines.map(move |line| (line, phrase))
            });
            found
                .map(|(line, phrase)| {
                    Finding::new(path, line, format!("`{phrase}`: name the thing"))
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::*;

    #[test]
    fn private_phrases_in_comments_are_found() {
        for text in [
            "/// Whoever asks.",
            "// It says what is there.",
            "/* Nobody */",
            "//! Two, one of\n//! which is late.",
        ] {
            let found = findings(check, "a.rs", text);
            assert_eq!(found.len(), 1, "{text}");
            assert!(found[0].ends_with(": name the thing"), "{text}");
        }
    }

    #[test]
    fn the_line_is_that_of_the_phrase() {
        let text = "x\n// a\n// b nobody c\n";
        assert_eq!(
            findings(check, "a.rs", text),
            ["3: `nobody`: name the thing"]
        );
    }

    #[test]
    fn quotations_strings_and_longer_words_are_left_alone() {
        for text in [
            "// asks \"what is this\" and `nobody`",
            "f(\"nobody\");",
            "// somebodys",
            "// of\n\n// which",
            "fn whoever() {}",
        ] {
            assert_eq!(findings(check, "a.rs", text), [""; 0], "{text}");
        }
    }

    #[test]
    fn pages_are_read_but_for_code_blocks() {
        let found = check_page(&Page::new("a.md", "```\nnobody\n```\nSo nobody\n"));
        assert_eq!(found, [Finding::new("a.md", 4, "`nobody`: name the thing")]);
        for (path, text) in [("docs/notes/a.md", "nobody"), ("a.md", "> nobody")] {
            assert_eq!(check_page(&Page::new(path, text)), [], "{path}");
        }
    }
}
