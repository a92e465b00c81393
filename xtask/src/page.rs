//! A Markdown file as the checks see it: lines outside code blocks.
//!
//! It refuses to know the rest of Markdown.

/// One `.md` file.
pub(crate) struct Page<'a> {
    /// From the repository root, with `/` on every system.
    pub(crate) path: &'a str,
    text: &'a str,
}

impl<'a> Page<'a> {
    pub(crate) fn new(path: &'a str, text: &'a str) -> Self {
        Self { path, text }
    }

    /// Number (from 1) and text of each line outside code blocks; the fences are not among them.
    pub(crate) fn prose(&self) -> impl Iterator<Item = (usize, &'a str)> {
        let mut in_block = false;
        let lines = self.text.lines().enumerate();
        lines.filter_map(move |(i, line)| {
            let is_fence = line.trim_start().starts_with("```");
            in_block ^= is_fence;
            (!in_block && !is_fence).then_some((i + 1, line))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_blocks_are_no_prose() {
        let page = Page::new("a.md", "a\n```sh\nb\n```\nc\n  ```\nd\n  ```\n");
        assert_eq!(page.prose().collect::<Vec<_>>(), [(1, "a"), (5, "c")]);
    }
}
