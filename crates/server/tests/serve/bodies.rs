//! Hostile bodies: each is answered, or refused in the form of its interface.

use std::{mem::discriminant, path::Path};

use atta_server::Server;
use serde_json::{Map, Value, json};

use crate::{form::check, tiny};

/// A request that the fuzz target begins with.
struct Seed {
    name: String,
    path: &'static str,
    body: Vec<u8>,
}

/// All of them. The first byte of each is a letter for its path.
fn seeds() -> Vec<Seed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/requests");
    let paths = Server::post_paths();
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .collect();
    files.sort_by_key(std::fs::DirEntry::file_name);
    let seed = |file: &std::fs::DirEntry| {
        let bytes = std::fs::read(file.path()).unwrap();
        let path = paths[usize::from(bytes[0] - b'a')];
        Seed {
            name: file.file_name().into_string().unwrap(),
            path,
            body: bytes[1..].to_vec(),
        }
    };
    files.iter().map(seed).collect()
}

/// Sends a request and checks the form of its response. Returns whether it was answered.
fn ask(server: &Server, path: &'static str, body: Vec<u8>) -> bool {
    check(path, &server.answer(path, body))
}

/// Requests as they should be are answered, and those that cannot be are refused.
fn check_seeds(server: &Server, seeds: &[Seed]) {
    for Seed { name, path, body } in seeds {
        let answer = server.answer(path, body.clone());
        let text = String::from_utf8_lossy(&answer.body);
        assert_eq!(
            check(path, &answer),
            !name.ends_with("-refused"),
            "{name}: {text}"
        );
    }
}

/// Random numbers: xorshift (Marsaglia 2003).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A body with some bytes changed, removed, repeated, or taken from another body.
    fn damaged(&mut self, body: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = body.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() + 1);
            let end = self.below(bytes.len() + 1);
            let range = at.min(end)..at.max(end).min(at.min(end) + 40);
            match self.below(5) {
                0 => bytes[range]
                    .iter_mut()
                    .take(2)
                    .for_each(|byte| *byte ^= 1 << self.below(8)),
                1 => drop(bytes.drain(range)),
                2 => drop(bytes.splice(at..at, bytes[range].to_vec())),
                3 => {
                    let from = self.below(other.len());
                    let until = other.len().min(from + self.below(60));
                    drop(bytes.splice(range, other[from..until].iter().copied()));
                }
                _ => {
                    let pieces: [&[u8]; 8] = [
                        b"\xff", b"\\ud800", b"\0", b"[[", b"1e999", b"\"", b"null", b"-1",
                    ];
                    drop(bytes.splice(at..at, self.one_of(&pieces).iter().copied()));
                }
            }
        }
        bytes
    }

    /// Changes a value at any depth, or removes or adds a field.
    fn changed(&mut self, value: &mut Value) {
        let n = match value {
            Value::Array(all) => all.len(),
            Value::Object(all) => all.len(),
            _ => 0,
        };
        // Most values lie deep.
        if n > 0 && self.below(5) > 0 {
            let at = self.below(n);
            match value {
                Value::Array(all) => return self.changed(&mut all[at]),
                Value::Object(all) => {
                    return self.changed(all.values_mut().nth(at).expect("there are more"));
                }
                _ => {}
            }
        }
        match (self.below(4), &mut *value) {
            (0, Value::Object(all)) if n > 0 => {
                let name = all
                    .keys()
                    .nth(self.below(n))
                    .expect("there are more")
                    .clone();
                all.shift_remove(&name);
            }
            (1, Value::Object(all)) => {
                let name = *self.one_of(&[
                    "model",
                    "stream",
                    "content",
                    "type",
                    "$ref",
                    "pattern",
                    "unheard_of",
                    "",
                ]);
                all.insert(name.to_owned(), self.strange());
            }
            (1, Value::Array(all)) if n > 0 => all.push(all[0].clone()),
            _ => {
                let may_be_any = self.below(2) == 0;
                *value = loop {
                    let other = self.strange();
                    if may_be_any || discriminant(&other) == discriminant(value) {
                        break other;
                    }
                };
            }
        }
    }

    /// Something of any type.
    fn strange(&mut self) -> Value {
        let nested = |n| {
            (0..n).fold(Value::Null, |inside, i| {
                if i % 2 == 0 {
                    json!([inside])
                } else {
                    json!({ "a": inside })
                }
            })
        };
        let all = [
            Value::Null,
            json!(true),
            json!(0),
            json!(-1),
            json!(1u64 << 40),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(1e300),
            json!(-1e-320),
            json!(""),
            json!("\0\u{fdd0}<|im_end|><tool_call>"),
            json!("x".repeat(2000)),
            json!([]),
            json!({}),
            json!([[5], "a"]),
            json!({ "type": "object" }),
            nested(20),
            nested(110),
        ];
        self.one_of(&all).clone()
    }
}

/// The same body with a field twice.
fn doubled(body: &Value, dice: &mut Dice) -> Vec<u8> {
    let fields: &Map<String, Value> = body.as_object().expect("all bodies are objects");
    let name = fields
        .keys()
        .nth(dice.below(fields.len()))
        .expect("there are more");
    format!(
        "{{{}: {}, {}",
        json!(name),
        dice.strange(),
        &body.to_string()[1..]
    )
    .into_bytes()
}

#[test]
fn whatever_comes_is_answered_or_refused_and_does_no_harm() {
    let server = tiny::server();
    let seeds = seeds();
    let mut dice = Dice(0x5eed);
    check_seeds(&server, &seeds);
    let mut n_answered = 0;
    let mut n_refused = 0;
    let mut count = |is_answered| {
        *(if is_answered {
            &mut n_answered
        } else {
            &mut n_refused
        }) += 1
    };
    for Seed { path, body, .. } in &seeds {
        let value: Value = serde_json::from_slice(body).unwrap();
        for _ in 0..8 {
            let other = &dice.one_of(&seeds).body;
            count(ask(&server, path, dice.damaged(body, other)));
        }
        for i in 0..18 {
            let mut changed = value.clone();
            (0..=i % 3).for_each(|_| dice.changed(&mut changed));
            count(ask(&server, path, changed.to_string().into_bytes()));
        }
        count(ask(&server, path, doubled(&value, &mut dice)));
        for other in Server::post_paths() {
            count(ask(&server, other, body.clone()));
        }
    }
    assert!(
        n_answered > 100 && n_refused > 300,
        "{n_answered} answers, {n_refused} refusals"
    );
    check_seeds(&server, &seeds);
}

#[test]
fn a_prompt_of_nothing_is_refused_before_a_stream_begins() {
    let answer = tiny::server().answer(
        "/v1/completions",
        br#"{"prompt": [[]], "stream": true}"#.to_vec(),
    );
    check("/v1/completions", &answer);
    assert_eq!(answer.status, 400);
}
