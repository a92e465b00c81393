//! Arbitrary bytes as a message between members of a group. A message is written back as the same
//! bytes.
#![no_main]

use atta_cluster::wire::{MESSAGE_HEAD_BYTES, MemberLimits, MessageHead, write_message};
use libfuzzer_sys::fuzz_target;

const LIMITS: MemberLimits = MemberLimits {
    n_members: 4,
    n_numbers: 4096,
    n_batch: 16,
    d_model: 8,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((head, body)) = bytes.split_first_chunk::<MESSAGE_HEAD_BYTES>() else {
        return;
    };
    let Ok(parsed) = MessageHead::parse(head, &LIMITS) else {
        return;
    };
    if let Ok(message) = parsed.message(body, &LIMITS) {
        assert_eq!(write_message(&message).expect("it was read"), bytes);
    }
});
