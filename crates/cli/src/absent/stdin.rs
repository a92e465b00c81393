//! Standard input in a build without the feature `cli-extras`, and off Unix: not looked at.

pub(super) fn has_piped_text() -> bool {
    false
}
