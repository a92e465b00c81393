//! Guesses of the next tokens that are fitted to a grammar.

use std::sync::Arc;

use super::{greatest, noise, small};
use crate::{Constraint, Grammars, Guide};

const REPLY: &str = "(yes, of course|no), [a-z ]{5,40}[.] And (that is the end of it|so on)[.]";

/// Tokens of a fitted guess at most.
const MAX: usize = 12;

/// As many as no vocabulary here has tokens.
const N_LOGITS: usize = 1 << 18;

fn guide(grammars: &Arc<Grammars>) -> Guide {
    Guide::new(grammars, &Constraint::Regex(REPLY.to_owned())).unwrap()
}

/// A text by steps: in each a choice, and the tokens that are forced behind it.
fn steps(grammars: &Arc<Grammars>, random: &mut u64) -> Vec<Vec<u32>> {
    let mut guide = guide(grammars);
    let mut steps = Vec::new();
    while !guide.is_complete() {
        let n_vocab = grammars.tokenizer.n_vocab();
        let mut logits: Vec<f32> = (0..n_vocab).map(|_| noise(random)).collect();
        guide.restrict(&mut logits).unwrap();
        steps.push(step(&mut guide, greatest(&logits)));
    }
    steps
}

/// Appends a choice, and returns it with the tokens that are forced behind it.
fn step(guide: &mut Guide, choice: u32) -> Vec<u32> {
    guide.accept(choice).unwrap();
    let mut tokens = guide.forced(usize::MAX).unwrap();
    tokens.insert(0, choice);
    tokens
}

fn allows(guide: &mut Guide, token: u32) -> bool {
    let mut logits = vec![0.0; N_LOGITS];
    guide.restrict(&mut logits).unwrap();
    logits[token as usize] == 0.0
}

/// Asserts that tokens are what plain decoding writes if it chooses the choices among them.
fn assert_written(guide: &mut Guide, tokens: &[u32], are_choices: &[bool]) {
    let mut n = 0;
    while n < tokens.len() {
        assert!(are_choices[n] && allows(guide, tokens[n]), "token {n}");
        let step = step(guide, tokens[n]);
        let end = tokens.len().min(n + step.len());
        assert_eq!(tokens[n..end], step[..end - n]);
        assert!(are_choices[n + 1..end].iter().all(|is_choice| !is_choice));
        n = end;
    }
}

#[test]
fn a_guess_ends_where_no_such_token_may_follow_and_goes_on_with_forced_ones() {
    let mut n_cut = 0;
    let mut n_forced = 0;
    for (grammars, seed) in small().iter().cycle().zip(1..40) {
        let mut random = seed;
        let steps = steps(grammars, &mut random);
        let n_before = seed as usize % steps.len().min(4);
        let mut guide = guide(grammars);
        let mut plain = self::guide(grammars);
        for written in &steps[..n_before] {
            assert_eq!(step(&mut guide, written[0]), *written);
            step(&mut plain, written[0]);
        }
        let right = steps[n_before..].concat();
        let n_right = seed as usize % right.len();
        let mut guess = right.clone();
        guess[n_right] = noise(&mut random).to_bits() % grammars.tokenizer.n_vocab() as u32;
        let wrong = guess[n_right];
        let are_choices = guide.fit_guess(&mut guess, MAX);
        assert_eq!(guess.len(), are_choices.len());
        assert!(guess.len() <= MAX);
        let n_kept = n_right.min(MAX);
        assert_eq!(guess[..n_kept], right[..n_kept]);
        n_cut += usize::from(guess.get(n_right) != Some(&wrong));
        n_forced += are_choices.iter().filter(|is_choice| !**is_choice).count();
        assert_written(&mut plain, &guess, &are_choices);
        // The guide is where it was.
        assert_eq!(step(&mut guide, steps[n_before][0]), steps[n_before]);
    }
    assert!(n_cut > 5 && n_forced > 5, "{n_cut} cut, {n_forced} forced");
}

#[test]
fn nothing_is_left_of_a_guess_that_begins_with_no_token() {
    for grammars in small() {
        let mut guess = vec![u32::MAX, 1];
        assert!(guide(&grammars).fit_guess(&mut guess, MAX).is_empty());
        assert!(guess.is_empty());
    }
}
